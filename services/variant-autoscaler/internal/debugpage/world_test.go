package debugpage

import (
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

const lease = "fairlead/fairlead-variant-autoscaler"

// newPage returns a page, twelve seconds after a pass at the given time.
func newPage(now time.Time) *Page {
	return New(Params{Log: zap.NewNop(), Version: "v1.2.3", Lease: lease, Clock: clocktesting.NewFakePassiveClock(now.Add(12 * time.Second))})
}

func get(t *testing.T, p *Page, path, accept string) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	for pattern, h := range p.Handlers() {
		mux.Handle(pattern, h)
	}
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	return w
}

// small returns a snapshot of one model with one variant, and a decision on it.
func small(at time.Time, model string, demand int64) (*snapshot.Snapshot, *decision.Decision) {
	return &snapshot.Snapshot{Time: at, Groups: []snapshot.Group{{
			Namespace: "ns", Pool: "pool", Model: model, Class: "gold", Priority: 1, Targets: snapshot.Targets{TTFT: 500, ITL: 40},
			Load:     snapshot.Load{State: snapshot.Found, Rate: demand * 1e6, Input: 800, Output: 200, TTFT: 250, ITL: 50},
			Variants: []snapshot.Variant{{Namespace: "ns", Name: "v", Source: snapshot.HorizontalPodAutoscaler, Accelerator: "H100", Cost: 20e6, Now: 2, Ready: 1}},
		}}}, &decision.Decision{Cost: 60e6, Bound: 60e6, Acted: 60e6, Groups: []decision.Group{{
			Demand: demand * 11e5, Share: 1e6, Acted: 1e6,
			Variants: []decision.Variant{{Planned: 3, Wanted: 3, Desired: 3, Reason: decision.Optimal, Message: "as planned", Capacity: 4e6, CapacitySource: decision.FromPicker, Confidence: 0.85}},
		}}}
}

// variantKind is a variant of the fleet.
type variantKind struct {
	name, accelerator string
	cost, rate        int64 // a replica serves this many requests per second
	most              int
}

// groupOf returns a model of namespace models with targets of 800 and 40 ms.
func groupOf(model, class string, priority int, load snapshot.Load, kinds ...variantKind) snapshot.Group {
	g := snapshot.Group{Namespace: "models", Pool: model + "-pool", Model: model, Class: class, Priority: priority, Targets: snapshot.Targets{TTFT: 800, ITL: 40}, Load: load}
	for _, k := range kinds {
		v := snapshot.Variant{
			Namespace: "models", Name: model + "-" + k.name, Source: snapshot.HorizontalPodAutoscaler, Accelerator: k.accelerator, Cards: 1, Cost: k.cost * 1e6, Min: 1, Max: k.most,
			Measured: &snapshot.Measured{Proven: k.rate * 1e6, Input: 900, Output: 250, Source: string(decision.FromPicker), Samples: 30},
		}
		if k.rate == 0 {
			v.Measured = nil
		}
		g.Variants = append(g.Variants, v)
	}
	return g
}

// fleet shows decisions on three models over six hours: a day's wave with noise, a burst that limits and start-up times do not follow,
// and one without metrics. Replicas follow a decision three minutes later.
func fleet(t *testing.T, p *Page) {
	t.Helper()
	desired := map[string][]int{} // of the last passes
	for minute := range 361 {
		hours := float64(minute) / 60
		noise := 0.5 * math.Sin(float64(minute*minute%97))
		chat := 34 + 26*math.Sin(hours*1.1-1) + noise
		burst := 6 + noise/2
		if minute > 170 && minute < 230 {
			burst = 30
		}
		found := func(rate, slow float64) snapshot.Load {
			return snapshot.Load{State: snapshot.Found, Rate: int64(rate * 1e6), Input: 900, Output: 250, TTFT: 380 * slow, ITL: 24 * math.Sqrt(slow)}
		}
		slow := 1 + 0.15*noise
		if minute > 170 && minute < 178 {
			slow = 3.4
		}
		s := &snapshot.Snapshot{
			Time: noon.Add(time.Duration(minute-360) * time.Minute), Settings: snapshot.Settings{Split: "observed", HeadroomPercent: 10, SavingPercent: 5, Percentile: 90},
			Limits: []snapshot.Limit{{Name: "l40s-cards", Unit: snapshot.Cards, Accelerator: "L40S", Amount: 9}},
			Groups: []snapshot.Group{
				groupOf("qwen3-32b", "premium", 1, found(chat, 1+0.2*noise), variantKind{"h100", "H100", 12, 14, 8}, variantKind{"l40s", "L40S", 4, 4, 6}),
				groupOf("llama-3.1-8b", "standard", 2, found(burst, slow), variantKind{"l4", "L4", 1, 3, 12}, variantKind{"spot", "A10G", 2, 0, 4}),
				groupOf("embedding-large", "batch", 5, snapshot.Load{State: snapshot.Missing, Message: "Prometheus has no metrics of 2 of 2 ready pods: let a PodMonitor scrape them"}, variantKind{"l4", "L4", 1, 3, 4}),
			},
		}
		s.Groups[1].Variants[1].Problem = &snapshot.Problem{Reason: "TargetNotFound", Message: "Deployment llama-3.1-8b-spot does not exist: create it, or correct scaleTargetRef"}
		for g := range s.Groups {
			for i := range s.Groups[g].Variants {
				v := &s.Groups[g].Variants[i]
				v.Now, v.Ready, v.Previous = 1, 1, 1
				if past := desired[v.Name]; len(past) > 0 {
					v.Now, v.Previous, v.Decided, v.Held = past[len(past)-1], past[len(past)-1], true, past[len(past)-1]-1
					v.Ready = min(past[max(len(past)-3, 0)], v.Now)
				}
			}
		}
		s.Groups[1].Variants[1].Now, s.Groups[1].Variants[1].Ready, s.Groups[1].Variants[1].Previous = 0, 0, 0
		d, err := decision.Decide(s)
		require.NoError(t, err)
		for g := range d.Groups {
			for i := range d.Groups[g].Variants {
				name := s.Groups[g].Variants[i].Name
				desired[name] = append(desired[name], d.Groups[g].Variants[i].Desired)
			}
		}
		p.ObserveDecision(s, d)
	}
}
