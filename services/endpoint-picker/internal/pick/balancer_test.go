package pick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
	"fairlead.dev/services/endpoint-picker/test/apitest"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newEndpoint(address string) *endpoint.Endpoint {
	return estimate.New(prefixindex.NewMemoryBudget(1<<20)).NewEndpoint(endpoint.Description{Identity: endpoint.Identity{Pod: address,
		Address: netip.MustParseAddrPort(address)}}, noon)
}

func snapshotOf(endpoints ...*endpoint.Endpoint) *pool.Snapshot {
	return &pool.Snapshot{Endpoints: endpoints}
}

func running(n float64) endpoint.Gauges { return endpoint.Gauges{Running: n} }

// always is a configuration that does not change.
func always(c *pluginconfig.Config) func() *pluginconfig.Config {
	return func() *pluginconfig.Config { return c }
}

func soonestFirst() func() *pluginconfig.Config {
	return always(pluginconfig.Default(pluginconfig.Options{StaleAfter: time.Minute}))
}

func leastLoaded(t testing.TB) func() *pluginconfig.Config {
	t.Helper()
	return configured(t, "plugins: [{type: active-request-scorer, parameters: {maxBusyScore: 0.9}}]\nflowControl: {noEndpointRequestTTL: 0s}")
}

// configured is a configuration by its text.
func configured(t testing.TB, text string) func() *pluginconfig.Config {
	t.Helper()
	c, err := pluginconfig.Load([]byte("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"+text), pluginconfig.Options{StaleAfter: time.Minute})
	require.NoError(t, err)
	return always(c)
}

// counter is a source of random numbers that counts up.
func counter() func() uint64 {
	var n atomic.Uint64
	return func() uint64 { return n.Add(1) }
}

// rig is a Balancer over these endpoints.
type rig struct {
	*Balancer

	endpoints []*endpoint.Endpoint
	outliers  *mockOutliers
	observed  *mockObserver
}

func newRig(t *testing.T, s *pool.Snapshot) *rig {
	t.Helper()
	r := &rig{endpoints: s.Endpoints, outliers: newMockOutliers(t), observed: newMockObserver(t)}
	r.Balancer = New(Params{
		Snapshot: func() *pool.Snapshot { return s }, Estimator: estimate.New(prefixindex.NewMemoryBudget(1 << 20)), Config: leastLoaded(t), Rules: pool.NewRules(),
		Outliers: r.outliers, Observer: r.observed, Clock: clocktesting.NewFakePassiveClock(noon), Random: counter(),
	})
	r.outliers.EXPECT().EndpointsLacking(mock.Anything).Return(nil).Maybe()
	r.observed.EXPECT().ObservePick(mock.Anything, nil).Maybe()
	r.observed.EXPECT().StreamStarted().Maybe()
	r.observed.EXPECT().RequestPlaced(mock.Anything).Maybe()
	r.observed.EXPECT().ObserveRequest(mock.Anything).Maybe()
	return r
}

// signal matches a response with a signal.
func signal(v request.HealthSignal) any {
	return mock.MatchedBy(func(r pool.Response) bool { return r.Signal == v })
}

// failure matches a response that failed.
func failure(v request.HealthSignal, placed time.Time, why string) any {
	return mock.MatchedBy(func(r pool.Response) bool { return r.Signal == v && r.Placed.Equal(placed) && r.Failure == why })
}

// decide has a request decided at noon.
func (b *Balancer) decide(rc *request.Context) *request.Refusal {
	rc.StartRequest(b, &request.Options{Now: func() time.Time { return noon }})
	return rc.PickEndpoint(context.Background(), rc.Input.Incoming.Body)
}

// pick places a request; the gateway hears of it.
func (b *Balancer) placed(t *testing.T, in api.Incoming) *request.Context {
	t.Helper()
	rc := &request.Context{Input: request.PickInput{Incoming: in}}
	rc.ArrivalTime = noon
	require.Nil(t, b.decide(rc))
	rc.ConfirmSent()
	return rc
}

func TestPickTakesTheLeastLoadedAndCountsIt(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000")
	a.RecordSample(a.StartScrape(noon), running(2))
	r := newRig(t, snapshotOf(a, b))
	for range 2 {
		assert.Equal(t, "10.0.0.2:8000", r.placed(t, api.Incoming{}).Destination)
	}
	a.RecordSample(a.StartScrape(noon), running(1))
	rc := r.placed(t, api.Incoming{})
	assert.Equal(t, "10.0.0.1:8000", rc.Destination)
	assert.Same(t, a, rc.Endpoint)
	assert.EqualValues(t, 2, b.StatsAt(noon).InFlight)
}

func TestBurstBetweenTwoScrapesIsSpread(t *testing.T) {
	t.Parallel()
	r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000"), newEndpoint("10.0.0.3:8000")))
	for range 300 {
		r.placed(t, api.Incoming{})
	}
	for _, e := range r.endpoints {
		assert.EqualValues(t, 100, e.StatsAt(noon).InFlight)
	}
}

func TestSlowEndpointGetsItsShare(t *testing.T) {
	t.Parallel()
	// Thirty requests are always open; two servers finish one in a step, the third one in four.
	r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000"), newEndpoint("10.0.0.3:8000")))
	queues := map[*endpoint.Endpoint][]*endpoint.Lease{}
	place := func() {
		rc := r.placed(t, api.Incoming{})
		queues[rc.Endpoint] = append(queues[rc.Endpoint], rc.Placements.AnsweringLease())
	}
	for range 30 {
		place()
	}
	for step := range 4000 {
		for i, e := range r.endpoints {
			if i == 2 && step%4 != 0 || len(queues[e]) == 0 {
				continue
			}
			queues[e][0].Release()
			queues[e] = queues[e][1:]
			place()
		}
	}
	picks := func(i int) float64 { return float64(r.endpoints[i].StatsAt(noon).Picks) }
	assert.Less(t, picks(2)/(picks(0)+picks(1)+picks(2)), 0.15)
}

// refused places a request that cannot be placed.
func (r *rig) refused(t *testing.T, rc *request.Context, err error) *request.Refusal {
	t.Helper()
	r.observed.EXPECT().ObservePick(mock.Anything, mock.MatchedBy(func(got error) bool { return errors.Is(got, err) })).Once()
	refusal := r.decide(rc)
	require.NotNil(t, refusal)
	assert.Nil(t, rc.Placements.AnsweringLease())
	return refusal
}

// TestPickFollowsTheLabels checks that a decision by the labels of a server holds until the snapshot or the configuration changes.
func TestPickFollowsTheLabels(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000")
	role := func(e *endpoint.Endpoint, role string) {
		e.UpdateDescription(endpoint.Description{Identity: e.Identity(), Labels: map[string]string{"llm-d.ai/role": role}})
	}
	var snapshot *pool.Snapshot
	r := newRig(t, snapshotOf())
	r.params.Snapshot = func() *pool.Snapshot { return snapshot }
	with := func(filter string) func() *pluginconfig.Config {
		return configured(t, "plugins: [{type: "+filter+"}]\nschedulingProfiles: [{name: default, plugins: [{pluginRef: "+filter+"}]}]")
	}
	picks := func() *endpoint.Endpoint {
		rc := &request.Context{}
		require.Nil(t, r.decide(rc))
		return rc.Endpoint
	}
	role(a, "prefill")
	role(b, "decode")
	snapshot, r.params.Config = snapshotOf(a, b), with("decode-filter")
	assert.Same(t, b, picks())
	r.params.Config = with("prefill-filter")
	assert.Same(t, a, picks(), "another configuration")
	r.refused(t, &request.Context{Input: request.PickInput{Subset: scheduling.ParseSubset([]string{"10.0.0.2:8000"})}}, scheduling.ErrFiltered)
	r.refused(t, &request.Context{Input: request.PickInput{Subset: scheduling.ParseSubset([]string{"10.0.0.3:8000"})}}, scheduling.ErrNoneInSubset)

	role(a, "decode")
	role(b, "prefill")
	snapshot = snapshotOf(a, b)
	assert.Same(t, b, picks(), "another snapshot")
}

func TestPickKeepsToTheSubset(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.1:8001")
	b.RecordSample(b.StartScrape(noon), running(50))
	r := newRig(t, snapshotOf(a, b))
	rc := &request.Context{Input: request.PickInput{Subset: scheduling.ParseSubset([]string{"10.0.0.1:8001"})}}
	require.Nil(t, r.decide(rc))
	assert.Equal(t, "10.0.0.1:8001", rc.Destination)

	refusal := r.refused(t, &request.Context{Input: request.PickInput{Subset: scheduling.ParseSubset(nil)}}, scheduling.ErrNoneInSubset)
	assert.Equal(t, 503, refusal.Code)
}

func TestPickWithoutEndpoints(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give *pool.Snapshot
		want string
	}{
		{name: "empty pool", give: snapshotOf(), want: "no ready endpoints in the pool"},
		{name: "no pool", give: &pool.Snapshot{Err: pool.ErrNoPool}, want: "no ready endpoints in the pool: the InferencePool does not exist"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			refusal := newRig(t, tt.give).refused(t, &request.Context{}, scheduling.ErrNoEndpoints)
			assert.Equal(t, 503, refusal.Code)
			assert.Equal(t, request.ReasonNoEndpoints, refusal.Reason)
			assert.Equal(t, tt.want, refusal.Text)
		})
	}
}

// silent takes measurements and forgets them.
type silent struct{}

func (silent) StreamStarted()                                    {}
func (silent) ObservePick(time.Duration, error)                  {}
func (silent) RequestPlaced(*request.Record)                     {}
func (silent) ObserveRequest(*request.Record)                    {}
func (silent) ObserveResponse(*endpoint.Endpoint, pool.Response) {}
func (silent) EndpointsLacking(uint64) pool.Lacks                { return nil }

func BenchmarkPick(b *testing.B) { benchmarkPick(b, soonestFirst()) }

// BenchmarkPickWithoutEstimates has a profile that reads no estimates.
func BenchmarkPickWithoutEstimates(b *testing.B) {
	c := *leastLoaded(b)()
	profile := *c.Profile
	profile.WithoutEstimates, c.Profile = true, &profile
	benchmarkPick(b, always(&c))
}

func benchmarkPick(b *testing.B, config func() *pluginconfig.Config) {
	for _, n := range []int{8, 64, 256} {
		for _, size := range []int{0, 5_000, 67_000} {
			b.Run(fmt.Sprintf("endpoints=%d/body=%d", n, size), func(b *testing.B) {
				estimator, snapshot := estimate.New(prefixindex.NewMemoryBudget(24<<20)), &pool.Snapshot{}
				for i := range n {
					address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i%250 + 1)}), 8000)
					e := estimator.NewEndpoint(endpoint.Description{
						Identity: endpoint.Identity{Pod: address.String(), Address: address},
						Labels:   map[string]string{"app": "vllm", "llm-d.ai/role": "decode", "pod-template-hash": "7bbb54d4cd", "llm-d.ai/model": "m"},
					}, noon)
					e.RecordSample(e.StartScrape(noon), running(float64(i%7)))
					snapshot.Endpoints = append(snapshot.Endpoints, e)
				}
				balancer := New(Params{
					Snapshot: func() *pool.Snapshot { return snapshot }, Estimator: estimator, Config: config, Rules: pool.NewRules(), Outliers: silent{}, Observer: silent{}, Clock: clock.RealClock{}, Random: rand.Uint64,
				})
				in := api.Incoming{Path: "/v1/chat/completions"}
				if size > 0 {
					in.Body = []byte(`{"model": "m", "stream": true, "messages": [{"role": "user", "content": "` + strings.Repeat("word ", size/5) + `"}]}`)
				}
				b.ReportAllocs()
				for b.Loop() {
					rc := &request.Context{Input: request.PickInput{Incoming: in}}
					rc.ArrivalTime = noon
					if balancer.decide(rc) != nil {
						b.Fatal("refused")
					}
					rc.ConfirmSent()
					rc.Placements.AnsweringLease().Release()
				}
			})
		}
	}
}

// newSoonestFirst returns a Balancer of the default configuration, at noon.
func newSoonestFirst(snapshot *pool.Snapshot, estimator *estimate.Estimator) *Balancer {
	return New(Params{
		Snapshot: func() *pool.Snapshot { return snapshot }, Estimator: estimator, Config: soonestFirst(), Rules: pool.NewRules(),
		Outliers: silent{}, Observer: silent{}, Clock: clocktesting.NewFakePassiveClock(noon), Random: counter(),
	})
}

// chat is a request whose prompt begins with one of a few long texts.
func chat(text string, own int) api.Incoming {
	body := fmt.Sprintf(`{"model": "m", "stream": true, "messages": [{"role": "system", "content": %q}, {"role": "user", "content": %q}]}`,
		strings.Repeat(text+" ", 2000), strings.Repeat(fmt.Sprint(own, " "), 100))
	return api.Incoming{Path: "/v1/chat/completions", Body: []byte(body)}
}

func TestPickGoesWhereThePromptIsUnlessThatIsTooBusy(t *testing.T) {
	t.Parallel()
	estimator := estimate.New(prefixindex.NewMemoryBudget(1 << 20))
	snapshot := &pool.Snapshot{}
	for _, address := range []string{"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"} {
		d := endpoint.Description{Identity: endpoint.Identity{Pod: address, Address: netip.MustParseAddrPort(address)}}
		snapshot.Endpoints = append(snapshot.Endpoints, estimator.NewEndpoint(d, noon))
	}
	b := newSoonestFirst(snapshot, estimator)
	homes := map[string]string{}
	for _, text := range []string{"one", "two", "three"} {
		first := b.placed(t, chat(text, 0))
		homes[text] = first.Destination
		assert.Zero(t, first.MatchedTokens)
		first.Placements.AnsweringLease().MarkFirstContent(noon)
		first.Placements.AnsweringLease().Release()
	}
	for own := range 20 {
		for text, home := range homes {
			rc := b.placed(t, chat(text, own))
			assert.Equal(t, home, rc.Destination)
			assert.Greater(t, rc.MatchedTokens, rc.PromptTokens*3/4)
			rc.Placements.AnsweringLease().MarkFirstContent(noon)
			rc.Placements.AnsweringLease().Release()
		}
	}
	seen := map[string]bool{}
	for own := range 300 { // at once, and none is answered
		seen[b.placed(t, chat("one", own)).Destination] = true
	}
	assert.Len(t, seen, 3)
}

func TestPickLeavesABodyThatItCannotReadToTheServerUnlessARuleNeedsTheModel(t *testing.T) {
	t.Parallel()
	const (
		completions = "/v1/completions"
		unread      = "at byte 1: unexpected end"
		none        = "model not found in request body"
		encoded     = "the picker does not read compressed bodies: send it without Content-Encoding"
	)
	rewrite := func(models ...string) []pool.RewriteObject {
		return []pool.RewriteObject{{Name: "canary", Rules: []pool.Rule{{Models: models, Targets: []pool.RewriteTarget{{Model: "base-v2", Weight: 1}}}}}}
	}
	header := api.Headers{{Name: api.HeaderModel, Value: "mine"}}
	gzip := api.Headers{{Name: "content-encoding", Value: "gzip"}}
	tests := []struct {
		name, path, body string
		headers          api.Headers
		rewrites         []pool.RewriteObject
		wantCode         int // 0: it is placed
		want             string
	}{
		{name: "cut off", path: completions, body: "{"},
		{name: "no model", path: completions, body: "{}"},
		{name: "compressed", path: completions, body: "\x1f\x8b", headers: gzip},
		{name: "another path", path: "/v1/files", body: "anything"},
		{
			name: "cut off, a rule for one model", path: completions, body: "{", rewrites: rewrite("asked"), wantCode: 400,
			want: "parse request body: InferenceModelRewrites of this pool may be for its model: " + unread,
		},
		{
			name: "cut off, a rule for all models", path: completions, body: "{", rewrites: rewrite(), wantCode: 400,
			want: "parse request body: InferenceModelRewrite canary is for all models: " + unread,
		},
		{
			name: "cut off, a header", path: completions, body: "{", headers: header, wantCode: 400,
			want: `parse request body: a header asks for model "mine" in place of that of the body: ` + unread,
		},
		{name: "no model, a rule for one model", path: completions, body: "{}", rewrites: rewrite("asked")},
		{
			name: "no model, a rule for all models", path: completions, body: `{"model": null}`, rewrites: rewrite(), wantCode: 400,
			want: "parse request body: InferenceModelRewrite canary is for all models: " + none,
		},
		{
			name: "no model, a header", path: completions, body: `{"model": ""}`, headers: header, wantCode: 400,
			want: `parse request body: a header asks for model "mine" in place of that of the body: ` + none,
		},
		{
			name: "compressed, a rule", path: completions, body: "\x1f\x8b", headers: gzip, rewrites: rewrite("asked"), wantCode: 415,
			want: "parse request body: InferenceModelRewrites of this pool may be for its model: " + encoded,
		},
		{name: "no model where none needs to be", path: "/generate", body: "{}", headers: header, rewrites: rewrite()},
		{name: "another path, rules", path: "/v1/files", body: "anything", headers: header, rewrites: rewrite()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000")))
			r.params.Rules.SetSnapshot(pool.CompileRules(nil, tt.rewrites))
			in := api.Incoming{Path: tt.path, Body: []byte(tt.body), Headers: tt.headers}
			if tt.wantCode == 0 {
				rc := r.placed(t, in)
				assert.Equal(t, "10.0.0.1:8000", rc.Destination)
				assert.Empty(t, rc.Model)
				assert.Empty(t, rc.Target)
				assert.Nil(t, rc.Edit.Replacement)
				return
			}
			refusal := r.refused(t, &request.Context{Input: request.PickInput{Incoming: in}}, api.ErrMalformed)
			assert.Equal(t, tt.wantCode, refusal.Code)
			assert.Equal(t, tt.want, refusal.Text)
		})
	}
}

// formWith is a request with the parts of a form.
func formWith(parts ...string) api.Incoming {
	return api.Incoming{
		Path: "/v1/audio/transcriptions", Headers: api.Headers{{Name: "content-type", Value: "multipart/form-data; boundary=b"}},
		Body: []byte("--b\r\nContent-Disposition: form-data; " + strings.Join(parts, "\r\n--b\r\nContent-Disposition: form-data; ") + "\r\n--b--\r\n"),
	}
}

func TestRewriteOfAForm(t *testing.T) {
	t.Parallel()
	const model, file = "name=\"model\"\r\n\r\nasked", "name=\"file\"; filename=\"a\"\r\n\r\nx"
	r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000")))
	r.params.Rules = holds()
	for _, in := range []api.Incoming{formWith(model, file), formWith(file, model)} {
		rc := r.placed(t, in)
		assert.Equal(t, "asked", rc.Model)
		assert.Equal(t, "canary", rc.Rewrite)
		assert.Equal(t, strings.Replace(string(in.Body), "asked", "base-v2", 1),
			string(in.Body[:rc.Edit.From])+string(rc.Edit.Replacement)+string(in.Body[rc.Edit.To:]))
		assert.JSONEq(t, `{"model":"asked"}`, string(rc.Restore.Append(nil, []byte(`{"model":"base-v2"}`))))
	}
	broken := formWith(file, model)
	broken.Body = broken.Body[:len(broken.Body)-len("\r\n--b--\r\n")]
	assert.Equal(t, 400, r.refused(t, &request.Context{Input: request.PickInput{Incoming: broken}}, api.ErrMalformed).Code)
	r.params.Rules = pool.NewRules()
	assert.Empty(t, r.placed(t, broken).Model)
}

func TestRewriteOnOtherPathsAndSpellingsOfPaths(t *testing.T) {
	t.Parallel()
	r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000")))
	r.params.Rules = holds()
	for _, path := range []string{
		"/v1/rerank", "/v1/score", "/tokenize", "/pooling", "/classify", "/v1/audio/speech", "/v1/responses/compact", "/generative_scoring",
		"/v1/%63ompletions", "//v1/completions", "/v1/completions/",
	} {
		rc := r.placed(t, api.Incoming{Path: path, Body: []byte(askedBody)})
		assert.Equal(t, "asked", rc.Model, path)
		assert.Equal(t, "base-v2", rc.Target, path)
		assert.JSONEq(t, `{"model": "base-v2", "prompt": "a"}`, askedBody[:rc.Edit.From]+string(rc.Edit.Replacement)+askedBody[rc.Edit.To:], path)
	}
}

func TestPickAsksForAnotherModel(t *testing.T) {
	t.Parallel()
	const body = `{"max_tokens": 1, "model": "asked", "prompt": "\"model\": \"asked\""}`
	tests := []struct {
		name, header, value string
		want                string // empty: the body stays as it is
	}{
		{name: "no header"},
		{name: "the same model", header: api.HeaderModel, value: "asked"},
		{
			name: "another model", header: api.HeaderModel, value: "base-v2",
			want: `{"max_tokens": 1, "model": "base-v2", "prompt": "\"model\": \"asked\""}`,
		},
		{
			name: "the older header, and a name that needs escapes", header: api.HeaderModelOld, value: `a"b`,
			want: `{"max_tokens": 1, "model": "a\"b", "prompt": "\"model\": \"asked\""}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000")))
			in := api.Incoming{Path: "/v1/completions", Body: []byte(body), Headers: api.Headers{{Name: tt.header, Value: tt.value}}}
			rc := r.placed(t, in)
			assert.Equal(t, "asked", rc.Model)
			if tt.want == "" {
				assert.Nil(t, rc.Edit.Replacement)
				assert.Nil(t, rc.Restore)
				assert.Equal(t, "asked", rc.Target)
				return
			}
			assert.Equal(t, tt.value, rc.Target)
			assert.Equal(t, tt.want, body[:rc.Edit.From]+string(rc.Edit.Replacement)+body[rc.Edit.To:])
			assert.Equal(t, len(tt.want)-len(body), rc.Edit.GrowthBytes())
			quoted, err := json.Marshal(tt.value)
			require.NoError(t, err)
			assert.JSONEq(t, `{"model":"asked"}`, string(rc.Restore.Append(nil, []byte(`{"model":`+string(quoted)+`}`))))
			assert.Contains(t, rc.Remove, "accept-encoding", "else the answer could not be read")
		})
	}
}

func TestRewriteKnowsAModelHoweverItIsSpelled(t *testing.T) {
	t.Parallel()
	const name, target = "org/modèle&1", "org/cible&2"
	r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000")))
	r.params.Rules.SetSnapshot(pool.CompileRules(nil, []pool.RewriteObject{
		{Name: "canary", Rules: []pool.Rule{{Models: []string{name}, Targets: []pool.RewriteTarget{{Model: target, Weight: 1}}}}},
	}))
	for _, asked := range []string{`org/modèle&1`, `org\/mod\u00e8le\u00261`, `\u006frg/modèle&1`} {
		body := `{"model": "` + asked + `", "prompt": "a"}`
		rc := r.placed(t, api.Incoming{Path: "/v1/completions", Body: []byte(body)})
		assert.Equal(t, name, rc.Model)
		assert.Equal(t, target, rc.Target)
		assert.JSONEq(t, `{"model": "`+target+`", "prompt": "a"}`, body[:rc.Edit.From]+string(rc.Edit.Replacement)+body[rc.Edit.To:])
		for _, served := range []string{`org/cible&2`, `org\/cible&2`, `org/cible\u00262`} {
			assert.Equal(t, `{"model": "`+asked+`"}`, string(rc.Restore.Append(nil, []byte(`{"model": "`+served+`"}`))), served)
		}
	}
	rc := r.placed(t, api.Incoming{Path: "/v1/completions", Body: []byte(`{"model": "org\/cible&2"}`)})
	assert.Nil(t, rc.Edit.Replacement, "it is the target already")
}

func TestPromptIsTheSameHoweverTheModelIsSpelled(t *testing.T) {
	t.Parallel()
	b := replica()
	prompt := strings.Repeat("word ", 1000)
	first := b.placed(t, api.Incoming{Path: "/v1/completions", Body: []byte(`{"model": "org/m", "prompt": "` + prompt + `"}`)})
	again := &request.Context{Input: request.PickInput{Incoming: api.Incoming{Path: "/v1/completions",
		Body: []byte(`{"model": "org\/m", "prompt": "` + prompt + `"}`)}}}
	again.Input.Subset = scheduling.ParseSubset([]string{first.Destination})
	require.Nil(t, b.decide(again))
	assert.Greater(t, again.MatchedTokens, 1200)
}

func TestMediaTakeTheirTokensInTheIndex(t *testing.T) {
	t.Parallel()
	image := strings.Repeat("A", 500<<10)
	with := func(question string) api.Incoming {
		return api.Incoming{Path: "/v1/chat/completions", Body: []byte(`{"model": "m", "stream": true, "messages": [{"role": "user", "content": [` +
			`{"type": "image_url", "image_url": {"url": "data:image/png;base64,` + image + `"}}, {"type": "text", "text": "` + question + `"}]}]}`)}
	}
	b := replica()
	before := b.params.Estimator.IndexStats().Blocks
	rc := b.placed(t, with("What is it?"))
	assert.InDelta(t, 583, rc.PromptTokens, 5)
	assert.Equal(t, rc.PromptTokens/prefixindex.BlockTokens, b.params.Estimator.IndexStats().Blocks-before)

	backlog := rc.Endpoint.StatsAt(noon).Backlog
	y := &request.Context{Input: request.PickInput{Incoming: with(strings.Repeat("a new and long document ", 2000)),
		Subset: scheduling.ParseSubset([]string{rc.Destination})}}
	y.ArrivalTime = noon
	require.Nil(t, b.decide(y))
	assert.InDelta(t, 576, y.MatchedTokens, prefixindex.BlockTokens, "the image")
	assert.InDelta(t, 12_000, y.Endpoint.StatsAt(noon).Backlog-backlog, 50, "the document")
}

func TestEjectedEndpointsGetNothingUnlessNoOtherIsAllowed(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000")
	r := newRig(t, snapshotOf(a, b))
	a.Health().EjectUntil("responses", noon.Add(time.Second))
	for range 10 {
		assert.Same(t, b, r.placed(t, api.Incoming{}).Endpoint)
	}
	rc := &request.Context{Input: request.PickInput{Subset: scheduling.ParseSubset([]string{a.Address()})}}
	require.Nil(t, r.decide(rc))
	assert.Same(t, a, rc.Endpoint)
}

func TestEndpointIsProbedByOneRequestAtATime(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000")
	r := newRig(t, snapshotOf(a, b))
	b.RecordSample(b.StartScrape(noon), running(100))
	a.Health().EjectUntil("responses", noon)
	probe := r.placed(t, api.Incoming{})
	assert.Same(t, a, probe.Endpoint)
	assert.Same(t, b, r.placed(t, api.Incoming{}).Endpoint)
	probe.Placements.AnsweringLease().Release() // and nothing was learnt
	assert.Same(t, a, r.placed(t, api.Incoming{}).Endpoint)
}

func TestRespondedSaysWhoHasFailed(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000")
	b.RecordSample(b.StartScrape(noon), running(100))
	r := newRig(t, snapshotOf(a, b))
	respond := func(served string, status int) {
		rc := r.placed(t, api.Incoming{})
		require.Same(t, a, rc.Endpoint)
		rc.OnResponseHeaders(&request.ResponseHeaders{Status: status, Served: served})
		rc.OnResponseEnd()
		rc.EndRequest(nil)
	}
	r.outliers.EXPECT().ObserveResponse(a, signal(request.Begun)).Once()
	r.outliers.EXPECT().ObserveResponse(a, signal(request.Answered)).Once()
	respond("", 200)
	r.outliers.EXPECT().ObserveResponse(a, signal(request.Faulty)).Once()
	respond(a.Address(), 502)
	r.outliers.EXPECT().ObserveResponse(a, signal(request.Faulty)).Twice()
	r.outliers.EXPECT().ObserveResponse(b, signal(request.Begun)).Once()
	r.outliers.EXPECT().ObserveResponse(b, signal(request.Answered)).Once()
	respond(b.Address(), 200)
	respond("10.0.0.9:8000", 200)
	results := func(e *endpoint.Endpoint) map[string]int64 {
		counted := map[string]int64{}
		for _, result := range endpoint.Results() {
			if n := e.StatsAt(noon).Results[result]; n > 0 {
				counted[result.String()] = n
			}
		}
		return counted
	}
	assert.Equal(t, map[string]int64{"answered": 1, "5xx": 1, "none": 2}, results(a), "two went elsewhere")
	assert.Equal(t, map[string]int64{"answered": 1}, results(b))

	r.outliers.EXPECT().ObserveResponse(mock.Anything, mock.Anything)
	rc := r.placed(t, api.Incoming{})
	rc.OnFailedAttempt(a.Address(), 200)
	rc.OnFailedAttempt("10.0.0.9:8000", 500) // has left the pool
	rc.OnResponseHeaders(&request.ResponseHeaders{Status: 503, Served: b.Address(), Unanswered: true})
	assert.Equal(t, map[string]int64{"answered": 1, "5xx": 1, "none": 2, "incomplete": 1}, results(a))
	assert.Equal(t, map[string]int64{"answered": 1, "none": 1}, results(b))
	rc.EndRequest(nil)
}

// A client that waited for longer than an answer takes says something of the server that answered nothing.
func TestClientsThatWaitedInVain(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000")
	b.RecordSample(b.StartScrape(noon), running(100))
	r := newRig(t, snapshotOf(a, b))
	leave := func(waited time.Duration, act func(rc *request.Context)) {
		rc := r.placed(t, api.Incoming{})
		require.Same(t, a, rc.Endpoint)
		rc.ArrivalTime, rc.Inference = noon.Add(-waited), true
		act(rc)
		rc.OnClientGone()
		rc.EndRequest(nil)
	}
	nothing := func(*request.Context) {}
	leave(firstDuration-1, nothing)
	r.outliers.EXPECT().ObserveResponse(a, failure(request.Doubtful, noon.Add(-firstDuration), "no answer")).Once()
	leave(firstDuration, nothing)
	r.meanDuration.addSample(time.Second)
	r.outliers.EXPECT().ObserveResponse(a, failure(request.Doubtful, noon.Add(-time.Second), "no answer")).Once()
	leave(time.Second, nothing)
	stalled := r.params.Estimator.Paces().Stall
	sending := func(ago time.Duration) func(rc *request.Context) {
		return func(rc *request.Context) {
			rc.Status, rc.FirstContent, rc.LastContent = 200, noon.Add(-ago), noon.Add(-ago)
		}
	}
	leave(time.Minute, sending(stalled-1))
	r.outliers.EXPECT().ObserveResponse(a, failure(request.Doubtful, noon.Add(-time.Minute), "ended early")).Once()
	leave(time.Minute, sending(stalled))
	r.outliers.EXPECT().ObserveResponse(a, failure(request.Steered, noon.Add(-time.Minute), "no answer")).Once()
	leave(time.Minute, func(rc *request.Context) { rc.PromptTokens, rc.MatchedTokens = 100, 90 })
	r.outliers.EXPECT().ObserveResponse(b, failure(request.Doubtful, noon.Add(-time.Minute), "no content")).Once()
	r.outliers.EXPECT().ObserveResponse(a, signal(request.Faulty)).Twice()
	leave(time.Minute, func(rc *request.Context) {
		rc.OnResponseHeaders(&request.ResponseHeaders{Status: 200, Events: true, Served: b.Address()})
	})
	leave(time.Minute, func(rc *request.Context) { rc.OnFailedAttempt(a.Address(), 0) }) // nobody knows which server has it
}

// An answer that ends early for an unknown reason counts as load for as long as others take: the client has gone, or the server.
func TestAnswerThatEndsEarlyCountsForAsLongAsOthers(t *testing.T) {
	t.Parallel()
	a := newEndpoint("10.0.0.1:8000")
	r := newRig(t, snapshotOf(a))
	r.outliers.EXPECT().ObserveResponse(a, signal(request.Begun)).Once()
	r.outliers.EXPECT().ObserveResponse(a, failure(request.Doubtful, noon, "ended early")).Once()
	rc := r.placed(t, api.Incoming{})
	rc.OnResponseHeaders(&request.ResponseHeaders{Status: 200, Events: true})
	rc.OnResponseChunk([]byte("data: 1\n\n"))
	rc.ReportHealth(request.Doubtful)
	rc.EndRequest(nil)
	assert.InDelta(t, 1, a.Load().Requests, 0)
	a.ExpireFailed(noon.Add(firstDuration-1), 0)
	assert.InDelta(t, 1, a.Load().Requests, 0)
	a.ExpireFailed(noon.Add(firstDuration), 0)
	assert.Zero(t, a.Load().Requests)
}

// A server that seems to have stopped gets requests if the others are ejected, or if it alone may have what a request names.
func TestSuspectEndpointsGetNothingUnlessNoOtherWorks(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000")
	r := newRig(t, snapshotOf(a, b))
	r.outliers.EXPECT().ObserveResponse(mock.Anything, mock.Anything).Maybe()
	b.RecordSample(b.StartScrape(noon), running(100))
	stored := r.placed(t, api.Incoming{Path: apitest.Responses, Body: []byte(`{"model":"m","input":"a"}`)})
	require.Same(t, a, stored.Endpoint)
	respond(stored, false, `{"id":"resp_1","object":"response"}`)
	only := func(e *endpoint.Endpoint) *scheduling.Subset { return scheduling.ParseSubset([]string{e.Address()}) }
	fail := func(e *endpoint.Endpoint) {
		for range 6 {
			rc := &request.Context{Input: request.PickInput{Subset: only(e), Incoming: chat("a", 0)}}
			require.Nil(t, r.decide(rc))
			rc.ConfirmSent()
			rc.OnResponseHeaders(&request.ResponseHeaders{Status: 500})
			rc.OnResponseEnd()
			rc.EndRequest(nil)
		}
	}
	fail(a)
	for range 3 {
		rc := r.placed(t, api.Incoming{})
		assert.Same(t, b, rc.Endpoint)
	}
	assert.Same(t, a, r.placed(t, api.Incoming{Path: "/v1/responses/resp_1"}).Endpoint)
	rc := &request.Context{Input: request.PickInput{Subset: only(a)}}
	require.Nil(t, r.decide(rc), "no other is allowed")
	b.Health().EjectUntil("responses", noon.Add(time.Second))
	assert.Same(t, a, r.placed(t, api.Incoming{}).Endpoint, "the other is ejected")
	b.Health().RecordSuccess()
	fail(b)
	a.RecordSample(a.StartScrape(noon), running(200))
	assert.Same(t, b, r.placed(t, api.Incoming{}).Endpoint, "both are alike")
}

// A server that seems to have stopped gets requests for which the others have no room.
func TestSuspectEndpointsGetWhatOthersHaveNoRoomFor(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000")
	r := newRig(t, snapshotOf(a, b))
	r.outliers.EXPECT().ObserveResponse(mock.Anything, mock.Anything).Maybe()
	r.params.Config = configured(t, `
plugins:
- {type: utilization-filter, parameters: {conditions: [{metric: waiting-queue, maxValue: 5}]}}
schedulingProfiles: [{name: default, plugins: [{pluginRef: utilization-filter}]}]`)
	for range 6 {
		rc := &request.Context{Input: request.PickInput{Subset: scheduling.ParseSubset([]string{a.Address()}), Incoming: chat("a", 0)}}
		require.Nil(t, r.decide(rc))
		rc.ConfirmSent()
		rc.OnResponseHeaders(&request.ResponseHeaders{Status: 500})
		rc.OnResponseEnd()
		rc.EndRequest(nil)
	}
	assert.Same(t, b, r.placed(t, api.Incoming{}).Endpoint)
	b.RecordSample(b.StartScrape(noon), endpoint.Gauges{Waiting: 10})
	assert.Same(t, a, r.placed(t, api.Incoming{}).Endpoint)
	a.RecordSample(a.StartScrape(noon), endpoint.Gauges{Waiting: 10})
	assert.Equal(t, 429, r.refused(t, &request.Context{}, scheduling.ErrNoCapacity).Code)
}

// The gateway fell back to the second server: from then on the request is its load, its backlog and its cached prompt.
func TestFallbackBelongsToTheServerThatServed(t *testing.T) {
	t.Parallel()
	estimator, snapshot := estimate.New(prefixindex.NewMemoryBudget(1<<20)), &pool.Snapshot{}
	for _, address := range []string{"10.0.0.1:8000", "10.0.0.2:8000"} {
		d := endpoint.Description{Identity: endpoint.Identity{Pod: address, Address: netip.MustParseAddrPort(address)}}
		snapshot.Endpoints = append(snapshot.Endpoints, estimator.NewEndpoint(d, noon))
	}
	tests := []struct {
		name   string
		served func(other *endpoint.Endpoint) string
		moved  bool
	}{
		{name: "fallback", served: (*endpoint.Endpoint).Address, moved: true},
		{name: "no fallback", served: func(*endpoint.Endpoint) string { return "" }},
		{name: "server that left the pool", served: func(*endpoint.Endpoint) string { return "10.0.0.9:8000" }},
	}
	for i, tt := range tests {
		b := newSoonestFirst(snapshot, estimator)
		in := chat(tt.name, i)
		rc := b.placed(t, in)
		picked, other := rc.Endpoint, snapshot.Endpoints[0]
		if picked == other {
			other = snapshot.Endpoints[1]
		}
		inFlight := func() [2]int64 { return [2]int64{picked.StatsAt(noon).InFlight, other.StatsAt(noon).InFlight} }
		backlog := func() [2]bool { return [2]bool{picked.StatsAt(noon).Backlog > 0, other.StatsAt(noon).Backlog > 0} }
		blocks := func(e *endpoint.Endpoint) int { n, _ := estimator.CacheSize(e); return n }
		assert.Equal(t, [2]int64{1, 0}, inFlight(), tt.name)
		before, prompt := blocks(other), rc.PromptTokens/prefixindex.BlockTokens

		rc.OnResponseHeaders(&request.ResponseHeaders{Status: 200, Events: true, Served: tt.served(other)})
		assert.Equal(t, picked, rc.Endpoint, "the record keeps the pick")
		want, serving := [2]int64{1, 0}, picked
		if tt.moved {
			want, serving = [2]int64{0, 1}, other
			assert.InDelta(t, prompt, blocks(other)-before, 1, tt.name)
			assert.Zero(t, blocks(picked), tt.name)
		}
		assert.Equal(t, want, inFlight(), tt.name)
		assert.Equal(t, [2]bool{!tt.moved, tt.moved}, backlog(), tt.name)
		assert.Same(t, serving, rc.Placements.AnsweringLease().Endpoint(), tt.name)

		rc.OnResponseChunk([]byte("data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n\ndata: " + `{"usage":{"completion_tokens":160}}` + "\n\n"))
		assert.Equal(t, [2]bool{}, backlog(), tt.name)
		before = blocks(serving)
		rc.OnResponseEnd()
		rc.EndRequest(nil)
		assert.Equal(t, 10, blocks(serving)-before, tt.name)
		assert.Equal(t, [2]int64{}, inFlight(), tt.name)

		next := b.placed(t, in)
		assert.Same(t, serving, next.Endpoint, "the prompt is there: %s", tt.name)
		next.Placements.AnsweringLease().Release()
	}
}

// A pod is replaced while a stream on it is still open. When the stream ends, minutes later, its server's place in the prefix
// index belongs to the new pod, whose account must not change.
func TestRollingRestartUnderALongStream(t *testing.T) {
	t.Parallel()
	estimator, snapshot := estimate.New(prefixindex.NewMemoryBudget(1<<20)), &pool.Snapshot{}
	newPod := func(uid string) *endpoint.Endpoint {
		id := endpoint.Identity{Pod: "vllm-0", UID: uid, Address: netip.MustParseAddrPort("10.0.0.1:8000")}
		return estimator.NewEndpoint(endpoint.Description{Identity: id}, noon)
	}
	old := newPod("old")
	snapshot.Endpoints = []*endpoint.Endpoint{old}
	b := newSoonestFirst(snapshot, estimator)
	long := b.placed(t, chat("long", 1))

	estimator.ForgetEndpoint(old)
	replacement := newPod("new")
	replacement.RecordSample(replacement.StartScrape(noon), endpoint.Gauges{Blocks: 2000})
	snapshot.Endpoints = []*endpoint.Endpoint{replacement}
	fresh := b.placed(t, chat("fresh", 3))
	fresh.Placements.AnsweringLease().Release()
	blocks, capacity := estimator.CacheSize(replacement)
	assert.Positive(t, blocks)
	assert.Equal(t, 2000, capacity)

	long.OnResponseHeaders(&request.ResponseHeaders{Status: 200})
	long.OnResponseChunk([]byte(`{"usage":{"completion_tokens":100000}}`)) // they would evict everything
	long.OnResponseEnd()
	long.EndRequest(nil)
	old.RecordSample(old.StartScrape(noon), endpoint.Gauges{Blocks: 1, Running: 1000})
	after, capacity := estimator.CacheSize(replacement)
	assert.Equal(t, []int{blocks, 2000}, []int{after, capacity})
	assert.Equal(t, fresh.PromptTokens/prefixindex.BlockTokens, b.placed(t, chat("fresh", 3)).MatchedTokens/prefixindex.BlockTokens)
}

// A profile that reads no estimates does not pay for them: no prompt is looked up or kept. Its requests count as load.
func TestProfileWithoutEstimatesKeepsNoPrompts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		scorer string
		want   bool // prompts are kept
	}{
		{scorer: "queue-scorer"},
		{scorer: "consistent-hash-scorer"},
		{scorer: "prefix-cache-scorer", want: true},
		{scorer: "token-load-scorer", want: true},
		{scorer: "predicted-wait-scorer", want: true},
	}
	for _, tt := range tests {
		t.Run(tt.scorer, func(t *testing.T) {
			t.Parallel()
			estimator := estimate.New(prefixindex.NewMemoryBudget(1 << 20))
			e := estimator.NewEndpoint(endpoint.Description{Identity: endpoint.Identity{Address: netip.MustParseAddrPort("10.0.0.1:8000")}}, noon)
			b := newSoonestFirst(snapshotOf(e), estimator)
			b.params.Config = configured(t, `
plugins: [{type: `+tt.scorer+`}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: `+tt.scorer+`}]}]`)
			rc := b.placed(t, chat("one", 1))
			assert.Positive(t, rc.PromptTokens)
			assert.InDelta(t, rc.PromptTokens, e.StatsAt(noon).Backlog, 0)
			rc.OnResponseHeaders(&request.ResponseHeaders{Status: 200})
			rc.OnResponseChunk([]byte(`{"choices":[{}],"usage":{"completion_tokens":1000}}`))
			rc.OnResponseEnd()
			rc.EndRequest(nil)
			assert.Equal(t, tt.want, estimator.IndexStats().Blocks > 0)
			assert.Equal(t, tt.want, b.placed(t, chat("one", 1)).MatchedTokens > 0)
		})
	}
}

// After a change of the configuration, what an earlier pick knew of its prompt must not count for the next.
func TestProfileWithoutEstimatesAfterOneWithThem(t *testing.T) {
	t.Parallel()
	estimator := estimate.New(prefixindex.NewMemoryBudget(1 << 20))
	e := estimator.NewEndpoint(endpoint.Description{Identity: endpoint.Identity{Address: netip.MustParseAddrPort("10.0.0.1:8000")}}, noon)
	b := newSoonestFirst(snapshotOf(e), estimator)
	for range 2 {
		b.placed(t, chat("one", 1)).Placements.AnsweringLease().Release()
	}
	b.params.Config = leastLoaded(t)
	b.params.Config().Profile.WithoutEstimates = true
	rc := b.placed(t, chat("one", 1))
	assert.Zero(t, rc.MatchedTokens)
	assert.InDelta(t, rc.PromptTokens, e.StatsAt(noon).Backlog, 0, "the whole prompt")
}

// holds are rules of one objective each for two priorities, and of one rewrite.
func holds() *pool.Rules {
	r := pool.NewRules()
	r.SetSnapshot(pool.CompileRules(
		[]pool.Objective{{Name: "batch", Priority: -1}, {Name: "urgent", Priority: 10}},
		[]pool.RewriteObject{{Name: "canary", Rules: []pool.Rule{{Models: []string{"asked"}, Targets: []pool.RewriteTarget{{Model: "base-v2", Weight: 1}}}}}},
	))
	return r
}

const askedBody = `{"model": "asked", "prompt": "a"}`

func TestRulesHoldUnlessTheClientNamesTheModel(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		headers      api.Headers
		body         string
		wantTarget   string
		wantRewrite  string
		wantPriority int
		wantFairness string
	}{
		{name: "rewrite", body: askedBody, wantTarget: "base-v2", wantRewrite: "canary"},
		{name: "no rule", body: `{"model": "other", "prompt": "a"}`, wantTarget: "other"},
		{name: "header", body: askedBody, headers: api.Headers{{Name: api.HeaderModel, Value: "mine"}}, wantTarget: "mine"},
		{name: "no body", headers: api.Headers{{Name: api.HeaderModel, Value: "mine"}}},
		{
			name: "objective and tenant", body: askedBody, wantTarget: "base-v2", wantRewrite: "canary", wantPriority: 10, wantFairness: "tenant",
			headers: api.Headers{{Name: api.HeaderObjectiveOld, Value: "urgent"}, {Name: api.HeaderFairness, Value: "tenant"}},
		},
		{
			name: "unknown objective", body: askedBody, wantTarget: "base-v2", wantRewrite: "canary",
			headers: api.Headers{{Name: api.HeaderObjective, Value: "nothing"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000")))
			r.params.Rules = holds()
			rc := r.placed(t, api.Incoming{Path: "/v1/completions", Body: []byte(tt.body), Headers: tt.headers})
			assert.Equal(t, tt.wantTarget, rc.Target)
			assert.Equal(t, tt.wantRewrite, rc.Rewrite)
			assert.Equal(t, tt.wantPriority, rc.Priority)
			assert.Equal(t, tt.wantFairness, rc.Fairness)
		})
	}
}

func TestSaturatedPoolShedsWhatCanWait(t *testing.T) {
	t.Parallel()
	full := newEndpoint("10.0.0.1:8000")
	full.RecordSample(full.StartScrape(noon), endpoint.Gauges{Waiting: 10, Running: 40, KVUsage: 0.99})
	r := newRig(t, snapshotOf(full))
	r.params.Rules = holds()
	with := func(objective string) *request.Context {
		rc := &request.Context{Input: request.PickInput{Incoming: api.Incoming{Headers: api.Headers{{Name: api.HeaderObjective, Value: objective}}}}}
		rc.ArrivalTime = noon
		return rc
	}
	refusal := r.refused(t, with("batch"), scheduling.ErrSaturated)
	assert.Equal(t, 429, refusal.Code)
	assert.Equal(t, request.ReasonSaturated, refusal.Reason)
	assert.Equal(t, time.Second, refusal.RetryAfter)
	require.Nil(t, r.decide(with("urgent")))
	require.Nil(t, r.decide(with("")))
	assert.Equal(t, 2.0, r.PoolSaturation())

	full.RecordSample(full.StartScrape(noon), endpoint.Gauges{})
	require.Nil(t, r.decide(with("batch")), "idle again")
	assert.Zero(t, r.PoolSaturation())
}

func TestSaturationByTokensShedsToo(t *testing.T) {
	t.Parallel()
	r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000")))
	r.params.Rules = holds()
	r.params.Config = configured(t, `
plugins:
- {type: concurrency-detector, parameters: {concurrencyMode: tokens, maxTokenConcurrency: 1000}}
- {type: queue-scorer}
schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
saturationDetector: {pluginRef: concurrency-detector}`)
	batch := func() *request.Context {
		return &request.Context{Input: request.PickInput{Incoming: api.Incoming{Headers: api.Headers{{Name: api.HeaderObjective, Value: "batch"}}}}}
	}
	first := batch()
	require.Nil(t, r.decide(first), "idle")
	first.ConfirmSent()
	r.placed(t, chat(strings.Repeat("long ", 1000), 1))
	assert.Equal(t, 429, r.refused(t, batch(), scheduling.ErrSaturated).Code)
	assert.Greater(t, r.PoolSaturation(), 1.0, "what sheds is what metrics show")
}

func TestFilterThatGoesByLoadRefusesWithARetry(t *testing.T) {
	t.Parallel()
	full := newEndpoint("10.0.0.1:8000")
	full.RecordSample(full.StartScrape(noon), endpoint.Gauges{Waiting: 10})
	r := newRig(t, snapshotOf(full))
	r.params.Config = configured(t, `
plugins:
- {type: utilization-filter, parameters: {conditions: [{metric: waiting-queue, maxValue: 5}]}}
schedulingProfiles: [{name: default, plugins: [{pluginRef: utilization-filter}]}]`)
	assert.Equal(t, 429, r.refused(t, &request.Context{}, scheduling.ErrNoCapacity).Code)
}

func TestSessionGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, parameters string
		headers          func(last *request.Context) api.Headers
	}{
		{name: "in the client's header", parameters: `{}`, headers: func(last *request.Context) api.Headers {
			return last.Reply // the client sends back what it got
		}},
		{
			name: "by a name in a header", parameters: `{strategy: session_id, sessionIdConfig: {sources: [{header: X-Chat}]}}`,
			headers: func(*request.Context) api.Headers { return api.Headers{{Name: "x-chat", Value: "7"}} },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000"), newEndpoint("10.0.0.3:8000")))
			r.params.Config = configured(t, `
plugins:
- {type: session-affinity-filter, parameters: `+tt.parameters+`}
schedulingProfiles: [{name: default, plugins: [{pluginRef: session-affinity-filter}]}]`)
			first := r.placed(t, api.Incoming{Headers: tt.headers(&request.Context{})})
			for range 20 {
				assert.Same(t, first.Endpoint, r.placed(t, api.Incoming{Headers: tt.headers(first)}).Endpoint)
			}
		})
	}
}

func TestFallbackListIsInOrderAndOnRequest(t *testing.T) {
	t.Parallel()
	a, b, c := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000"), newEndpoint("[2001:db8::3]:8000")
	b.RecordSample(b.StartScrape(noon), running(10))
	c.RecordSample(c.StartScrape(noon), running(5))
	r := newRig(t, snapshotOf(a, b, c))
	r.params.Config = configured(t, `
plugins:
- {type: running-requests-size-scorer}
- {type: max-score-picker, parameters: {maxNumOfEndpoints: 3}}
schedulingProfiles: [{name: default, plugins: [{pluginRef: running-requests-size-scorer}, {pluginRef: max-score-picker}]}]`)
	rc := r.placed(t, api.Incoming{})
	assert.Equal(t, "10.0.0.1:8000,[2001:db8::3]:8000,10.0.0.2:8000", rc.Destination)
	assert.Same(t, a, rc.Endpoint)
	assert.EqualValues(t, 0, b.StatsAt(noon).InFlight, "only the first is counted")
}

func TestPickIsExplainedToThoseWhoAsk(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000")
	b.RecordSample(b.StartScrape(noon), running(1))
	r := newRig(t, snapshotOf(a, b))
	assert.Nil(t, r.placed(t, api.Incoming{}).Scores)
	assert.Nil(t, r.placed(t, api.Incoming{}).Reply)
	r.params.Options = Options{Scores: true, Explain: true}
	rc := r.placed(t, api.Incoming{})
	require.Len(t, rc.Scores, 2)
	assert.Same(t, b, rc.Scores[1].Endpoint)
	assert.InDelta(t, 0.45, rc.Scores[1].Total, 1e-9)
	require.Len(t, rc.Reply, 1)
	assert.Equal(t, headerExplained, rc.Reply[0].Name)
	assert.Regexp(t, `^10\.0\.0\.2:8000 of 2; 10\.0\.0\.2:8000 score=0\.450 wait=0\.\d{3}s requests=1 cached=0/0; 10\.0\.0\.1:8000 score=0\.000 `, rc.Reply[0].Value)
}

func TestForcedSelectionIsReportedOnlyIfItIsConfigured(t *testing.T) {
	t.Parallel()
	a, b := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000")
	b.RecordSample(b.StartScrape(noon), running(100))
	r := newRig(t, snapshotOf(a, b))
	in := api.Incoming{Headers: api.Headers{{Name: api.HeaderSelection, Value: "10.0.0.2"}}}
	rc := r.placed(t, in)
	assert.Same(t, a, rc.Endpoint)
	assert.False(t, rc.Conformance)

	r.params.Config = configured(t, `
plugins: [{type: header-based-testing-filter}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: header-based-testing-filter}]}]`)
	rc = r.placed(t, in)
	assert.Same(t, b, rc.Endpoint)
	assert.True(t, rc.Conformance)
	assert.False(t, r.placed(t, api.Incoming{}).Conformance)
}

func TestConsistentHashKeepsOneBeginningTogetherAndAgreesWithOthers(t *testing.T) {
	t.Parallel()
	const text = `
plugins: [{type: consistent-hash-scorer}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: consistent-hash-scorer}]}]`
	endpoints := func() *pool.Snapshot {
		return snapshotOf(newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000"), newEndpoint("10.0.0.3:8000"))
	}
	one, other := newRig(t, endpoints()), newRig(t, endpoints())
	one.params.Config, other.params.Config = configured(t, text), configured(t, text)
	for i := range 20 {
		beginning := fmt.Sprint("tenant ", i)
		first := one.placed(t, chat(beginning, 0))
		first.Placements.AnsweringLease().Release()
		second := other.placed(t, chat(beginning, 1))
		second.Placements.AnsweringLease().Release()
		assert.Equal(t, first.Destination, second.Destination)
	}
}

func TestAnswersTakeRoomInTheCache(t *testing.T) {
	t.Parallel()
	estimator := estimate.New(prefixindex.NewMemoryBudget(1 << 20))
	e := estimator.NewEndpoint(endpoint.Description{Identity: endpoint.Identity{Address: netip.MustParseAddrPort("10.0.0.1:8000")}}, noon)
	r := newRig(t, snapshotOf(e))
	r.params.Estimator, r.params.Config = estimator, soonestFirst()
	answer := func(chunks ...string) {
		rc := r.placed(t, api.Incoming{})
		rc.OnResponseHeaders(&request.ResponseHeaders{Status: 200, Events: true})
		for _, c := range chunks {
			rc.OnResponseChunk([]byte(c))
		}
		rc.OnResponseEnd()
		rc.EndRequest(nil)
	}
	r.outliers.EXPECT().ObserveResponse(e, signal(request.Begun))
	r.outliers.EXPECT().ObserveResponse(e, signal(request.Answered))
	answer(slices.Repeat([]string{"data: a\n\n"}, 15)...)
	assert.Zero(t, estimator.IndexStats().Blocks, "less than a block")
	answer(slices.Repeat([]string{"data: a\n\n"}, 33)...)
	assert.Equal(t, 2, estimator.IndexStats().Blocks, "a token an event, about")
	answer("data: a\n\n", `data: {"usage":{"completion_tokens":160}}`+"\n\n")
	assert.Equal(t, 12, estimator.IndexStats().Blocks)
}

func TestNothingIsRememberedOfRequestsThatGenerateNothing(t *testing.T) {
	t.Parallel()
	estimator := estimate.New(prefixindex.NewMemoryBudget(1 << 20))
	e := estimator.NewEndpoint(endpoint.Description{Identity: endpoint.Identity{Address: netip.MustParseAddrPort("10.0.0.1:8000")}}, noon)
	r := newRig(t, snapshotOf(e))
	r.params.Estimator = estimator
	in := chat("text", 0)
	in.Path = "/v1/messages/count_tokens"
	rc := r.placed(t, in)
	assert.Zero(t, estimator.IndexStats().Blocks)
	assert.Zero(t, rc.PromptTokens)
	assert.EqualValues(t, 1, e.StatsAt(noon).InFlight)
}

// A client that aborts its picks cannot make a server's cache contain, as far as the picker knows, what was never sent there.
func TestAbortedRequestLeavesNoPrompt(t *testing.T) {
	t.Parallel()
	b := replica()
	first := b.placed(t, chat("known", 0))
	first.ReportHealth(request.Answered)
	first.EndRequest(nil)
	for text, known := range map[string]bool{"known": true, "guessed": false} {
		for range 2 {
			rc := &request.Context{Input: request.PickInput{Incoming: chat(text, 0), Subset: scheduling.ParseSubset([]string{first.Destination})}}
			require.Nil(t, b.decide(rc))
			assert.Equal(t, known, rc.MatchedTokens > 0, text)
			rc.ConfirmSent()
			rc.ReportHealth(request.Aborted)
			rc.EndRequest(nil)
		}
	}
}

func TestRankingIsForCarriersThatAskForIt(t *testing.T) {
	t.Parallel()
	a, b, c := newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000"), newEndpoint("10.0.0.3:8000")
	a.RecordSample(a.StartScrape(noon), running(2))
	c.RecordSample(c.StartScrape(noon), running(1))
	tests := []struct {
		name string
		size int
		want []*endpoint.Endpoint
	}{
		{"none", 0, nil},
		{"the best two", 2, []*endpoint.Endpoint{b, c}},
		{"all", 9, []*endpoint.Endpoint{b, c, a}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, snapshotOf(a, b, c))
			rc := &request.Context{}
			rc.StartRequest(r.Balancer, &request.Options{Now: func() time.Time { return noon }, Ranking: tt.size})
			require.Nil(t, rc.PickEndpoint(t.Context(), nil))
			var ranked []*endpoint.Endpoint
			for _, s := range rc.Ranking {
				ranked = append(ranked, s.Endpoint)
			}
			assert.Equal(t, tt.want, ranked)
			rc.EndRequest(nil)
		})
	}
}
