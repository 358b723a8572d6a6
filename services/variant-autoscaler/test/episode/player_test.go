// Package episode plays loads against autoscalers in simulated time: model servers behind a picker, pods that take time to start, a
// Prometheus that scrapes them, HorizontalPodAutoscalers, and the passes of this service or of other laws.
//
// A request is within its objectives if its time to the first token and its mean time per further token are. One that finds no ready pod,
// or whose pod ends before it, is not. Replicas count from the creation of a pod until it is gone, so starting and draining ones do too.
package episode

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"fairlead.dev/services/variant-autoscaler/test/modelserver"
)

// Variant is one way to serve a model.
type Variant struct {
	Name     string
	Model    string
	Role     string  // prefill, decode, or empty: whole requests
	Cost     float64 // of a replica and hour
	Start    float64 // seconds from the creation of a pod to its first token
	Min, Max int
	KV       float64 // tokens
	Prefill  float64 // tokens per second, measured by hand for the token-aware law
	Server   func(r *rand.Rand) modelserver.Server
}

// Arrival is a request to come.
type Arrival struct {
	Model         string
	At            float64
	Input, Output int
}

// Scenario is a load and what may serve it.
type Scenario struct {
	Variants   []Variant
	Arrivals   []Arrival          // ordered by time
	Phases     map[string][]Phase // by model, that they come from, for a plan that knows them
	End        float64            // seconds
	TTFT       float64            // objective of each request, in seconds
	TPOT       float64
	Patience   float64 // seconds after which a client has given up. Zero: none does
	Grace      float64 // seconds in which a pod that ends may finish its requests
	Hold       float64 // seconds for which the picker holds requests while no pod is ready; 0: it refuses them
	RoundRobin bool    // the picker ignores load; it sends to the pod with the fewest requests otherwise
	Transfer   float64 // seconds from the end of a prefill to the arrival at the decode server
	Seed       uint64
}

// Phase is a constant rate for a time.
type Phase struct{ Seconds, Rate float64 }

// PoissonArrivals returns arrivals of phases with log-normal sizes.
func PoissonArrivals(phases []Phase, input, output, spread float64, seed uint64) (arrivals []Arrival, end float64) {
	r := rand.New(rand.NewPCG(seed, 7))
	deviation := math.Sqrt(math.Log(1 + spread*spread))
	size := func(mean float64) int {
		return max(int(math.Round(mean*math.Exp(deviation*r.NormFloat64()-deviation*deviation/2))), 1)
	}
	for _, p := range phases {
		for at := end + r.ExpFloat64()/p.Rate; at < end+p.Seconds; at += r.ExpFloat64() / p.Rate {
			arrivals = append(arrivals, Arrival{Model: model, At: at, Input: size(input), Output: size(output)})
		}
		end += p.Seconds
	}
	return arrivals, end
}

// largestRate returns the largest rate of a model in a time.
func (s *Scenario) largestRate(model string, from, to float64) float64 {
	most, at := 0.0, 0.0
	for _, p := range s.Phases[model] {
		if at < to && at+p.Seconds > from {
			most = max(most, p.Rate)
		}
		at += p.Seconds
	}
	return most
}

// Result is the outcome of a run.
type Result struct {
	Requests, Within, Cut int
	Completed             int // before the client gave up
	LateFirst, LateRest   int // beyond the objective of the first token, and of the further ones
	ReplicaSeconds        float64
	Pods                  map[string]int // created, by variant
	Wakes                 []Wake
	Cost                  float64 // per hour, in the mean
	Seconds               float64
	Timeline              []Moment
}

// Moment is the state of a world at a time.
type Moment struct {
	At       float64
	Rate     float64 // of arrivals in the last 15 s
	Replicas int
	Within   float64 // part of the requests that arrived in the last 15 s and are within their objectives
}

// AttainedShare returns the part of the requests that was within the objectives.
func (r *Result) AttainedShare() float64 { return float64(r.Within) / float64(max(r.Requests, 1)) }

// MeanReplicas returns the mean number of replicas.
func (r *Result) MeanReplicas() float64 { return r.ReplicaSeconds / r.Seconds }

func (r *Result) String() string {
	return fmt.Sprintf("%.1f %% at %.2f replicas, cost %.1f, %d cut, %d late first, %d late rest of %d",
		100*r.AttainedShare(), r.MeanReplicas(), r.Cost, r.Cut, r.LateFirst, r.LateRest, r.Requests)
}

// scaler decides on replicas.
type scaler interface {
	// stepSecond is called every second. It sets the wanted replicas of deployments.
	stepSecond(w *world)
}

// pod is a pod of a deployment.
type pod struct {
	name           string
	created, ready float64
	ends           float64 // when it was told to end; infinite: it was not
	gone           float64
	server         modelserver.Server
	requests       []*modelserver.Request
	scrapes        []scrape
}

type scrape struct {
	at   float64
	page modelserver.Page
}

// deployment is a variant that runs.
type deployment struct {
	*Variant

	wanted    int // replicas in its spec
	pods      []*pod
	podNumber int
}

type world struct {
	*Scenario

	now         float64
	random      *rand.Rand
	deployments []*deployment
	requests    []*modelserver.Request
	cut         map[*modelserver.Request]bool
	turn        int
	legs        []*legs
	held        []held
	wakes       []woken
	picks       []float64 // times
	queues      []queued  // at scrapes
}

const (
	scrapeEvery = 15
	finishTime  = 3600 // seconds in which requests may end after the end
)

// Run plays a scenario with the initial replicas of each variant.
func Run(s *Scenario, with func(s *Scenario) scaler, initial ...int) *Result {
	w := &world{Scenario: s, random: rand.New(rand.NewPCG(s.Seed, 11)), cut: map[*modelserver.Request]bool{}}
	for i := range s.Variants {
		d := &deployment{Variant: &s.Variants[i], wanted: initial[i]}
		w.deployments = append(w.deployments, d)
		for range d.wanted {
			w.createPod(d, -1000)
		}
	}
	law := with(s)
	r := &Result{Seconds: s.End, Requests: len(s.Arrivals)}
	next := 0
	for second := range int(s.End) {
		w.now = float64(second)
		if second%scrapeEvery == 0 {
			w.scrapeAll()
		}
		law.stepSecond(w)
		w.reconcilePods()
		w.releaseHeld()
		w.addCosts(r)
		if second%scrapeEvery == 0 {
			r.Timeline = append(r.Timeline, Moment{At: w.now, Replicas: w.countPods()})
		}
		for ; next < len(s.Arrivals) && s.Arrivals[next].At < w.now+1; next++ {
			if a := &s.Arrivals[next]; w.dispatchRequest(a) {
				if h, tells := law.(holder); tells {
					h.onHold(w, a.Model, a.At)
				}
			}
		}
		w.handOver()
	}
	w.finishAll(r)
	return r
}

// addCosts adds the costs of a second.
func (w *world) addCosts(r *Result) {
	for _, d := range w.deployments {
		present := float64(d.countPods(w.now))
		r.ReplicaSeconds += present
		r.Cost += d.Cost * present / w.End
	}
}

func (w *world) countPods() int {
	n := 0
	for _, d := range w.deployments {
		n += d.countPods(w.now)
	}
	return n
}

// countPods returns the pods that are not gone.
func (d *deployment) countPods(now float64) int {
	n := 0
	for _, p := range d.pods {
		if p.gone > now {
			n++
		}
	}
	return n
}

func (w *world) createPod(d *deployment, at float64) {
	d.podNumber++
	p := &pod{
		name: fmt.Sprintf("%s-7d-%d", d.Name, d.podNumber), created: at, ready: at + d.Start, ends: math.Inf(1), gone: math.Inf(1),
		server: d.Server(rand.New(rand.NewPCG(w.random.Uint64(), 3))),
	}
	p.server.Advance(max(p.ready, 0))
	d.pods = append(d.pods, p)
}

// reconcilePods does what the controllers of Deployments and ReplicaSets do, and the kubelet: it creates pods, ends those that are not
// ready first, then those that became ready last, and kills what does not end in time.
func (w *world) reconcilePods() {
	for _, d := range w.deployments {
		var alive []*pod
		kept := d.pods[:0]
		for _, p := range d.pods {
			if !math.IsInf(p.ends, 1) && math.IsInf(p.gone, 1) {
				w.drainPod(p)
			}
			if math.IsInf(p.ends, 1) {
				alive = append(alive, p)
			}
			if p.gone > w.now {
				kept = append(kept, p)
			}
		}
		d.pods = kept
		slices.SortStableFunc(alive, func(a, b *pod) int { return int(a.ready - b.ready) })
		for len(alive) > d.wanted {
			p := alive[len(alive)-1]
			alive = alive[:len(alive)-1]
			p.ends = w.now
			if p.ready > w.now {
				p.gone = w.now
			}
		}
		for n := len(alive); n < d.wanted; n++ {
			w.createPod(d, w.now)
		}
	}
}

func (w *world) drainPod(p *pod) {
	p.server.Advance(w.now)
	if p.server.Requests() > 0 && w.now < p.ends+w.Grace {
		return
	}
	p.gone = w.now
	for _, r := range p.requests {
		if r.End == 0 {
			w.cut[r] = true
		}
	}
}

func (p *pod) isServing(now float64) bool { return p.ready <= now && p.ends > now }

func (w *world) leastLoaded(ready []*pod, now float64) *pod {
	offset := w.random.IntN(len(ready))
	best, fewest := ready[0], math.MaxInt
	for i := range ready {
		p := ready[(i+offset)%len(ready)]
		p.server.Advance(now)
		if n := p.server.Requests(); n < fewest {
			best, fewest = p, n
		}
	}
	return best
}

// scrapeAll reads the pages of the picker and of all pods that run. A pod that starts has none.
func (w *world) scrapeAll() {
	w.queues = append(w.queues, queued{w.now, len(w.held)})
	for _, d := range w.deployments {
		for _, p := range d.pods {
			if p.ready > w.now || p.gone <= w.now {
				continue
			}
			p.server.Advance(w.now)
			page := p.server.Read()
			page.Firsts, page.Pending = nil, nil
			p.scrapes = append(p.scrapes, scrape{at: w.now, page: page})
			p.scrapes = p.scrapes[max(0, len(p.scrapes)-30):]
		}
	}
}

// meetsObjectives reports whether a request was within its objectives.
func (w *world) meetsObjectives(r *modelserver.Request) (first, rest bool) {
	first = r.First > 0 && r.First-r.Arrived <= w.TTFT
	rest = r.Output < 2 || r.End > 0 && (r.End-r.First)/float64(r.Output-1) <= w.TPOT
	return first, rest
}

// finishAll lets all requests end that pods have, and counts them.
func (w *world) finishAll(r *Result) {
	w.finishRoles()
	for _, d := range w.deployments {
		for _, p := range d.pods {
			p.server.Advance(w.End + finishTime)
		}
	}
	w.countWakes(r)
	arrived, good := make([]float64, len(r.Timeline)), make([]float64, len(r.Timeline))
	for _, q := range w.requests {
		at := min(int(q.Arrived/scrapeEvery), len(arrived)-1)
		arrived[at]++
		first, rest := w.meetsObjectives(q)
		if !w.cut[q] && (w.Patience == 0 || q.End-q.Arrived <= w.Patience) {
			r.Completed++
		}
		switch {
		case w.cut[q]:
			r.Cut++
		case !first:
			r.LateFirst++
		case !rest:
			r.LateRest++
		default:
			r.Within++
			good[at]++
		}
	}
	for i := range r.Timeline {
		r.Timeline[i].Rate = arrived[i] / scrapeEvery
		r.Timeline[i].Within = good[i] / max(arrived[i], 1)
	}
}
