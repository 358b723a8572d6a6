package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/pick"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// A Split is the distribution of requests to the replicas of a picker.
type Split uint8

// The distributions.
const (
	InTurn Split = iota
	AtRandom
)

// ConfiguredPicker is the same with requests in turn and a configuration. It calls load for each replica, because plugins have a state.
func ConfiguredPicker(name string, replicas int, load func(o pluginconfig.Options) *pluginconfig.Config) Policy {
	return pickerOf(name, replicas, InTurn, load)
}

func pickerOf(name string, replicas int, split Split, load func(o pluginconfig.Options) *pluginconfig.Config) Policy {
	return Policy{Name: name, start: func(f *fleet) chooser { return newPicker(f, replicas, split, load) }}
}

func newPicker(f *fleet, replicas int, split Split, load func(o pluginconfig.Options) *pluginconfig.Config) *picker {
	p := &picker{split: split, random: rand.New(rand.NewPCG(f.seed, 2))}
	for i := range replicas {
		p.replicas = append(p.replicas, newReplica(f, load(PluginOptions()), uint64(i)))
	}
	return p
}

// PluginOptions are the options of configurations of simulated pickers.
func PluginOptions() pluginconfig.Options {
	return pluginconfig.Options{StaleAfter: modelserver.DefaultOptions().StaleAfter}
}

// picker contains all replicas.
type picker struct {
	replicas []*replica
	split    Split
	random   *rand.Rand
	next     int
}

func (p *picker) choosePlacement(a *arrival) (placement, bool) {
	i := p.next
	if p.next = (p.next + 1) % len(p.replicas); p.split == AtRandom {
		i = p.random.IntN(len(p.replicas))
	}
	return p.replicas[i].choosePlacement(a)
}

func (p *picker) addServer(s *server) {
	for _, r := range p.replicas {
		r.addServer(s)
	}
}

func (p *picker) removeServer(s *server) {
	for _, r := range p.replicas {
		r.removeServer(s)
	}
}

// replica is one picker: all parts that decide, with simulated input.
type replica struct {
	timeline *timeline
	config   *pluginconfig.Config
	factory  *estimate.Estimator
	detector *pool.Detector
	balancer *pick.Balancer
	scraping *scraping
	body     []byte // of the current request
	unobserved

	members   []*member
	snapshot  *pool.Snapshot
	ejections int
}

// member is a server in the view of a replica.
type member struct {
	server    *server
	endpoint  *endpoint.Endpoint
	isRemoved bool
}

func newReplica(f *fleet, config *pluginconfig.Config, number uint64) *replica {
	const scrapes = 1 << 32 // of the streams of random numbers, those for the times of scrapes
	random := rand.New(rand.NewPCG(f.seed, 3+number))
	estimator := estimate.New(prefixindex.NewMemoryBudget(prefixindex.DefaultMaxBytes))
	r := &replica{
		timeline: f.timeline,
		config:   config,
		factory:  estimator,
		snapshot: &pool.Snapshot{},
	}
	r.detector = pool.NewDetector(pool.DefaultDetectorOptions(), zap.NewNop(), func(string) { r.ejections++ }, f.timeline)
	r.scraping = newScraping(f.timeline, &config.Scraping, r.detector, rand.New(rand.NewPCG(f.seed, scrapes+number)))
	estimator.SetCacheSize(estimate.CacheSize{Blocks: config.Prefix.CacheBlocks, FromPage: config.Prefix.AutoTune}, nil)
	r.balancer = pick.New(pick.Params{
		Snapshot: r.Snapshot, Config: r.Current, Rules: pool.NewRules(), Estimator: estimator,
		Outliers: r.detector, Observer: unobserved{}, Clock: f.timeline, Random: random.Uint64,
	})
	return r
}

// unobserved discards measurements, because the simulation measures in another way.
type unobserved struct{}

func (unobserved) StreamStarted()                   {}
func (unobserved) ObservePick(time.Duration, error) {}
func (unobserved) RequestPlaced(*request.Record)    {}
func (unobserved) ObserveRequest(*request.Record)   {}

// Snapshot returns the known endpoints.
func (r *replica) Snapshot() *pool.Snapshot { return r.snapshot }

// Current returns the configuration.
func (r *replica) Current() *pluginconfig.Config { return r.config }

func (r *replica) addServer(s *server) {
	pod := fmt.Sprintf("vllm-%d", s.number)
	d := endpoint.Description{Identity: endpoint.Identity{Namespace: "default", Pod: pod, UID: pod, Address: s.address()}}
	m := &member{server: s, endpoint: r.factory.NewEndpoint(d, r.timeline.Now())}
	r.members = append(r.members, m)
	r.publishSnapshot()
}

func (r *replica) removeServer(s *server) {
	i := slices.IndexFunc(r.members, func(m *member) bool { return m.server == s })
	m := r.members[i]
	m.isRemoved = true // its page may be under way
	r.members = slices.Delete(r.members, i, i+1)
	r.publishSnapshot()
	r.factory.ForgetEndpoint(m.endpoint)
}

// publishSnapshot makes a snapshot of the members.
func (r *replica) publishSnapshot() {
	next := &pool.Snapshot{}
	for _, m := range r.members {
		next.Endpoints = append(next.Endpoints, m.endpoint)
	}
	r.snapshot = next
	r.detector.SetEndpoints(next.Endpoints)
	r.scraping.setMembers(r.members)
}

// choosePlacement passes the request to the picker, like a gateway's stream.
func (r *replica) choosePlacement(a *arrival) (placement, bool) {
	r.body = a.appendBody(r.body[:0])
	rc := &request.Context{}
	rc.StartRequest(r.balancer, &request.Options{Now: r.timeline.Now})
	rc.SetRequestHeaders(&request.IncomingHeaders{Path: path})
	if rc.PickEndpoint(context.Background(), r.body) != nil {
		rc.EndRequest(nil)
		return nil, false
	}
	rc.ConfirmSent()
	i := slices.IndexFunc(r.members, func(m *member) bool { return m.endpoint == rc.Endpoint })
	return &placedRequest{replica: r, requestContext: rc, on: r.members[i]}, true
}

// placedRequest is the picker's choice for one request.
type placedRequest struct {
	replica        *replica
	requestContext *request.Context
	on             *member
}

func (p *placedRequest) targetServer() *server { return p.on.server }

func (*placedRequest) travelTime() time.Duration { return hop }

func (p *placedRequest) onStatus(status int) {
	p.requestContext.OnResponseHeaders(&request.ResponseHeaders{Status: status, Events: p.requestContext.Streaming})
}

// onFirstPiece passes the first piece of an answer.
func (p *placedRequest) onFirstPiece() {
	text := "\n" // before an object
	if p.requestContext.Streaming {
		text = `data: {"choices":[{"text":"a"}]}` + "\n\n"
	}
	p.requestContext.OnResponseChunk([]byte(text))
}

// onMoreContent records another piece of an answer, as OnResponseChunk does, without the time to read one.
func (p *placedRequest) onMoreContent() {
	rc := p.requestContext
	rc.LastContent = p.replica.timeline.Now()
	rc.Placements.AnsweringLease().MarkMoreContent(rc.LastContent)
}

// onClientGone passes that the response ended early, which may be the server's fault.
func (p *placedRequest) onClientGone() {
	p.requestContext.ReportHealth(request.Doubtful)
	p.requestContext.EndRequest(nil)
}

// onEnd passes the whole answer, or an error. Streams do not contain their usage, because no client requests it, unless the server
// reports cached tokens.
func (p *placedRequest) onEnd(j *job) {
	rc := p.requestContext
	if j != nil {
		p.sendLastPiece(j)
	}
	rc.OnResponseEnd()
	rc.EndRequest(nil)
}

// sendLastPiece passes the last piece of an answer.
func (p *placedRequest) sendLastPiece(j *job) {
	usage, details := "", ""
	if r := p.on.server.Reports; r.Usage && (j.hit > 0 || !r.NoZero) {
		details = fmt.Sprintf(`,"prompt_tokens_details":{"cached_tokens":%d}`, j.hit)
	}
	if p.on.server.Reports.Usage || !j.stream {
		usage = fmt.Sprintf(`,"usage":{"prompt_tokens":%d,"completion_tokens":%d%s}`, j.prompt, j.out, details)
	}
	text := `{"choices":[{"text":"","finish_reason":"stop"}]` + usage + "}"
	if j.stream {
		text = "data: " + text + "\n\n"
	}
	p.requestContext.OnResponseChunk([]byte(text))
	if j.stream && usage == "" {
		p.requestContext.ContentPieces = j.out
	}
}

func (p *placedRequest) onServerLost() { p.requestContext.EndRequest(nil) }

// onFailureStart passes the beginning of an answer that is none.
func (p *placedRequest) onFailureStart(f *Failure) {
	p.requestContext.OnResponseHeaders(&f.Response)
	p.requestContext.OnResponseChunk([]byte(f.Body))
}

// onFailure passes the end of an answer that is none.
func (p *placedRequest) onFailure(f *Failure) {
	rc := p.requestContext
	if !f.Silent && !f.Stalls {
		p.onFailureStart(f)
	}
	switch {
	case f.Unclear && (f.Stalls || f.Cut):
		rc.ReportHealth(request.Doubtful)
	case f.Silent, f.Stalls:
		rc.OnClientGone()
	case f.Cut:
		rc.ReportHealth(request.Faulty)
	default:
		rc.OnResponseEnd()
	}
	rc.EndRequest(nil)
}
