package debugpage

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/golden"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// content is what the JSON of a page has.
type content struct {
	Problem    string
	AgeSeconds float64
	Decision   *struct {
		Time                        time.Time
		Since                       time.Time
		Limiting                    []string
		ModelsLeftOut               int
		VariantsOfAll, ModelsOfAll  int
		VariantsWithProblems        int
		CostPerHour, CostGapPerHour float64
		PlannedCostPerHour          float64
		Models                      []modelContent
	}
}

type modelContent struct {
	Namespace, Model, Role string
	LoadMessage            string
	RequestsPerSecond      float64
	VariantsLeftOut        int
	CostPerHour            float64
	Variants               []struct{ Name, Reason, Message, Problem string }
	History                struct {
		UnixTime                                                                                   []int64
		RequestsPerSecond, DemandPerSecond, TtftToTarget, ItlToTarget, Desired, Ready, CostPerHour []*float64
	}
}

func read(t *testing.T, p *Page) content {
	t.Helper()
	var c content
	require.NoError(t, json.Unmarshal(get(t, p, "/debug/models.json", "").Body.Bytes(), &c))
	return c
}

func TestPage(t *testing.T) {
	t.Parallel()
	p := newPage(noon)
	s, d := small(noon.Add(-time.Minute), "chat", 9)
	p.ObserveDecision(s, d)
	s, d = small(noon, "chat", 10)
	s.Groups[0].Variants = append(s.Groups[0].Variants, snapshot.Variant{Namespace: "ns", Name: "lost", Source: snapshot.ScaledObject, Cost: 5e6, Now: 1, Problem: &snapshot.Problem{Reason: "TargetNotFound"}})
	d.Groups[0].Variants = append(d.Groups[0].Variants, decision.Variant{Desired: 1, Max: 4, Reason: decision.Excluded, Message: "Kept 1 replicas: Deployment <b>lost</b> does not exist"})
	s.Settings.Percentile = 90
	d.Groups[0].Acted, d.Limiting = 999_999, []string{"gpus"}
	p.ObserveDecision(s, d)
	tests := []struct{ name, path, accept, wantType, wantBody string }{
		{name: "a program", path: "/debug/models", accept: "*/*", wantType: "application/json", wantBody: "testdata/models.json"},
		{name: "a browser", path: "/debug/models", accept: "text/html,application/xhtml+xml,*/*;q=0.8", wantType: "text/html; charset=utf-8", wantBody: "testdata/models.html"},
		{name: "by name", path: "/debug/models.html", wantType: "text/html; charset=utf-8", wantBody: "testdata/models.html"},
		{name: "by the other name", path: "/debug/models.json", accept: "text/html", wantType: "application/json", wantBody: "testdata/models.json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := get(t, p, tt.path, tt.accept)
			assert.Equal(t, tt.wantType, w.Header().Get("Content-Type"))
			golden.File(t, tt.wantBody, w.Body.Bytes())
		})
	}
	assert.Equal(t, "default-src 'none'; style-src 'unsafe-inline'", get(t, p, "/debug/models.html", "").Header().Get("Content-Security-Policy"))
	assert.Equal(t, "Accept", get(t, p, "/debug/models", "").Header().Get("Vary"))
}

func TestWithoutDecision(t *testing.T) {
	t.Parallel()
	p := newPage(noon)
	check := func() {
		t.Helper()
		for _, path := range []string{"/debug/models.json", "/debug/models.html"} {
			body := get(t, p, path, "").Body.String()
			assert.Contains(t, body, "This replica has no decision: it does not lead")
			assert.Contains(t, body, "spec.holderIdentity of the Lease "+lease)
		}
		assert.Nil(t, read(t, p).Decision)
	}
	check()
	p.ObserveDecision(small(noon, "chat", 1))
	assert.Empty(t, read(t, p).Problem)
	p.EndTerm()
	check()
	p.ObserveDecision(small(noon, "chat", 1))
	c := read(t, p)
	assert.Len(t, c.Decision.Models[0].History.UnixTime, 1, "of this term")
	assert.Equal(t, noon, c.Decision.Since)
}

func TestAgeOfTheLastPass(t *testing.T) {
	t.Parallel()
	p := newPage(noon)
	p.ObserveDecision(small(noon, "chat", 1))
	assert.InDelta(t, 12, read(t, p).AgeSeconds, 0)
	assert.Contains(t, get(t, p, "/debug/models.html", "").Body.String(), "<b>12s</b>since the last pass, of 12:00:00 UTC")
	p = newPage(noon.Add(staleAge))
	p.ObserveDecision(small(noon, "chat", 1))
	assert.Contains(t, read(t, p).Problem, "The last pass that decided is 5m12s old.")
	assert.NotNil(t, read(t, p).Decision, "it is still in force")
}

func TestNoVariants(t *testing.T) {
	t.Parallel()
	p := newPage(noon)
	p.ObserveDecision(&snapshot.Snapshot{Time: noon}, &decision.Decision{})
	assert.Contains(t, get(t, p, "/debug/models.html", "").Body.String(), "There are no variants. Declare one")
}

func TestWhatTenantsWriteIsTextAndCut(t *testing.T) {
	t.Parallel()
	const script = "<script>alert(1)</script>"
	long := strings.Repeat("é", 1000) // two bytes each
	s, d := small(noon, script, 1)
	g, v := &s.Groups[0], &s.Groups[0].Variants[0]
	g.Class, g.Load.Message, v.Name, v.Accelerator = script, script, script, script
	v.Problem = &snapshot.Problem{Reason: script}
	d.Groups[0].Variants[0].Message, d.Limiting = long+script, []string{script}
	p := newPage(noon)
	p.ObserveDecision(s, d)
	body := get(t, p, "/debug/models.html", "").Body.String()
	assert.NotContains(t, body, "<script")
	assert.Equal(t, 7, strings.Count(body, "&lt;script&gt;alert(1)&lt;/script&gt;"))
	assert.Contains(t, body, strings.Repeat("é", maxText/2)+"…")
	assert.NotContains(t, body, strings.Repeat("é", maxText/2+1))
	assert.Equal(t, strings.Repeat("a", 255)+"…", cutText(strings.Repeat("a", 255)+long), "no half of a character")
	assert.Equal(t, "a?b", cutText("a\xffb"))
}

func TestLargestFirst(t *testing.T) {
	t.Parallel()
	s, d := &snapshot.Snapshot{Time: noon}, &decision.Decision{}
	for i := range maxModels + 7 {
		variant, decided := small(noon, fmt.Sprint("m", i), int64(i))
		s.Groups, d.Groups = append(s.Groups, variant.Groups...), append(d.Groups, decided.Groups...)
	}
	p := newPage(noon)
	p.ObserveDecision(s, d)
	c := read(t, p).Decision
	require.Len(t, c.Models, maxModels)
	assert.Equal(t, "m206", c.Models[0].Model)
	assert.Equal(t, "m7", c.Models[maxModels-1].Model)
	assert.Equal(t, 7, c.ModelsLeftOut)
	assert.Equal(t, maxModels+7, c.VariantsOfAll)
	assert.Contains(t, get(t, p, "/debug/models.html", "").Body.String(), "The 200 models with the largest demand are shown. 7 more are left out")
}

// TestRolesOfAModel: each role of a model has figures and a history of its own.
func TestRolesOfAModel(t *testing.T) {
	t.Parallel()
	p := newPage(noon)
	for minute := range 2 {
		s, d := small(noon.Add(time.Duration(minute)*time.Minute), "chat", 2)
		other, decided := small(s.Time, "chat", 2)
		s.Groups[0].Role, other.Groups[0].Role = snapshot.Decode, snapshot.Prefill
		other.Groups[0].Load.Rate = 7e6
		s.Groups, d.Groups = append(s.Groups, other.Groups...), append(d.Groups, decided.Groups...)
		p.ObserveDecision(s, d)
	}
	models := read(t, p).Decision.Models
	require.Len(t, models, 2)
	for i, want := range []struct {
		role string
		rate float64
	}{{"decode", 2}, {"prefill", 7}} {
		assert.Equal(t, want.role, models[i].Role)
		require.Len(t, models[i].History.RequestsPerSecond, 2)
		assert.InDelta(t, want.rate, *models[i].History.RequestsPerSecond[0], 1e-6)
	}
	assert.Contains(t, get(t, p, "/debug/models.html", "").Body.String(), "<small>pool pool</small> <small>prefill</small></h2>")
}

func TestProblemsFirst(t *testing.T) {
	t.Parallel()
	s, d := small(noon, "chat", 1)
	v, decided := s.Groups[0].Variants[0], d.Groups[0].Variants[0]
	s.Groups[0].Variants, d.Groups[0].Variants = nil, nil
	add := func(name string, desired int, reason decision.Reason, problem *snapshot.Problem) {
		v.Name, v.Problem, decided.Desired, decided.Reason = name, problem, desired, reason
		s.Groups[0].Variants, d.Groups[0].Variants = append(s.Groups[0].Variants, v), append(d.Groups[0].Variants, decided)
	}
	for i := range maxVariants {
		add(fmt.Sprintf("v%02d", i), 1, decision.Optimal, nil)
	}
	add("many", 9, decision.Stabilized, nil)
	add("lost", 0, decision.Excluded, &snapshot.Problem{Reason: "TargetNotFound"})
	add("blind", 2, decision.NoCapacity, nil)
	add("far", 2, decision.OutOfReach, nil)
	p := newPage(noon)
	p.ObserveDecision(s, d)
	c := read(t, p).Decision
	var names []string
	for _, variant := range c.Models[0].Variants {
		names = append(names, variant.Name)
	}
	assert.Equal(t, []string{"blind", "far", "lost", "many", "v00"}, names[:5])
	assert.Len(t, names, maxVariants)
	assert.Equal(t, 4, c.Models[0].VariantsLeftOut)
	assert.Equal(t, 3, c.VariantsWithProblems)
	assert.InDelta(t, 20*(20+9+0+2+2), c.Models[0].CostPerHour, 1e-9, "with those that are left out")
	assert.Contains(t, get(t, p, "/debug/models.html", "").Body.String(), "4 more variants of this model are left out.")
}

func TestHistory(t *testing.T) {
	t.Parallel()
	p := newPage(noon)
	for minute := range 400 {
		at := noon.Add(time.Duration(minute-399) * time.Minute)
		s, d := small(at, "chat", int64(minute))
		if minute == 390 {
			s.Groups[0].Load = snapshot.Load{State: snapshot.Failed, Message: "no answer", Rate: 77e6, TTFT: 0}
		}
		p.ObserveDecision(s, d)
		s, d = small(at.Add(20*time.Second), "chat", int64(minute)+1000) // a pass for an event
		if minute%2 == 0 {
			p.ObserveDecision(s, d)
		}
	}
	h := read(t, p).Decision.Models[0].History
	require.Len(t, h.UnixTime, maxPoints)
	assert.Equal(t, noon.Unix(), h.UnixTime[maxPoints-1])
	assert.Less(t, noon.Unix()-h.UnixTime[0], int64(history.Seconds()))
	for i, at := range h.UnixTime {
		minute := i + 400 - maxPoints
		want := float64(minute)
		if minute%2 == 0 {
			want += 1000
		}
		require.InDelta(t, want, *h.RequestsPerSecond[i], 1e-3, "the last pass of a minute counts, at %d", at)
		require.InDelta(t, 1.1*want, *h.DemandPerSecond[i], 1e-3)
		require.InDelta(t, 0.5, *h.TtftToTarget[i], 1e-6)
		require.InDelta(t, 1.25, *h.ItlToTarget[i], 1e-6)
		require.InDelta(t, 3, *h.Desired[i], 0)
		require.InDelta(t, 1, *h.Ready[i], 0)
		require.InDelta(t, 60, *h.CostPerHour[i], 0)
	}
}

func TestUnknownLoadsAreNotZero(t *testing.T) {
	t.Parallel()
	p := newPage(noon)
	s, d := small(noon, "chat", 5)
	s.Groups[0].Load = snapshot.Load{State: snapshot.Failed, Message: "no answer", Rate: 77e6}
	p.ObserveDecision(s, d)
	m := read(t, p).Decision.Models[0]
	assert.Equal(t, []*float64{nil}, m.History.RequestsPerSecond)
	assert.Equal(t, []*float64{nil}, m.History.DemandPerSecond)
	assert.Equal(t, []*float64{nil}, m.History.TtftToTarget)
	assert.Zero(t, m.RequestsPerSecond)
	body := get(t, p, "/debug/models.html", "").Body.String()
	assert.Contains(t, body, "The load is not known (PrometheusError): no answer.")
	assert.Contains(t, body, "load not known")
}

// TestModelsThatReturn: the history of a model ends with it, and two models whose names begin alike have their own.
func TestModelsThatReturn(t *testing.T) {
	t.Parallel()
	p := newPage(noon)
	long := strings.Repeat("x", 2*maxText)
	p.ObserveDecision(small(noon.Add(-4*time.Minute), long+"1", 1))
	p.ObserveDecision(small(noon.Add(-3*time.Minute), long+"2", 1))
	assert.Len(t, read(t, p).Decision.Models[0].History.UnixTime, 1)
	p.ObserveDecision(small(noon.Add(-2*time.Minute), long+"2", 1))
	assert.Len(t, read(t, p).Decision.Models[0].History.UnixTime, 2)
	p.ObserveDecision(small(noon.Add(-3*time.Minute), long+"2", 1))
	assert.Len(t, read(t, p).Decision.Models[0].History.UnixTime, 1, "the clock was put back")
}

// TestNumbersThatCannotBe: what no one should have let through does not stop the page.
func TestNumbersThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e308, 5e-324} {
		s, d := small(noon, "chat", math.MaxInt64/2_000_000)
		g, v := &s.Groups[0], &s.Groups[0].Variants[0]
		g.Targets, v.Cost, v.Ready = snapshot.Targets{TTFT: x, ITL: x}, math.MaxInt64, math.MaxInt64
		g.Load.Input, g.Load.Output, g.Load.Queued, g.Load.TTFT, g.Load.ITL = x, x, x, x, 1e308
		d.Groups[0].Variants[0].Confidence, d.Groups[0].Variants[0].Desired = x, math.MaxInt64
		p := newPage(noon)
		p.ObserveDecision(s, d)
		assert.Len(t, read(t, p).Decision.Models, 1)
		body := get(t, p, "/debug/models.html", "").Body.String()
		assert.True(t, strings.HasSuffix(body, "</html>\n"), x)
		assert.NotContains(t, body, "NaN")
		assert.NotContains(t, body, "Inf")
	}
}

// TestMemoryIsBounded has more models and variants than are shown, with long texts. It is not parallel: it measures the memory of the
// process.
func TestMemoryIsBounded(t *testing.T) {
	p := newPage(noon)
	before := heap()
	for minute := range maxPoints + 5 {
		if minute > 0 && minute < maxPoints {
			p.shown.Load().grow(noon.Add(time.Duration(minute) * time.Minute)) // as passes do, but faster
			continue
		}
		p.ObserveDecision(large(noon.Add(time.Duration(minute) * time.Minute)))
	}
	used := heap() - before
	t.Logf("%.1f MB", float64(used)/1e6)
	assert.Less(t, used, int64(10.5e6))
	assert.Greater(t, used, int64(8e6), "all is full")
	runtime.KeepAlive(p)
}

// large returns a decision on more than is shown. Some of its texts are parts of larger ones.
func large(at time.Time) (*snapshot.Snapshot, *decision.Decision) {
	s, d := &snapshot.Snapshot{Time: at}, &decision.Decision{}
	for g := range maxModels + 20 {
		variant, decided := small(at, fmt.Sprint(g, strings.Repeat("m", 20_000)), 1)
		group, of := variant.Groups[0], decided.Groups[0]
		group.Variants, of.Variants = nil, nil
		group.Namespace, group.Pool, group.Class, group.Load.Message = strings.Repeat("n", 5000), strings.Repeat("p", 5000), strings.Repeat("c", 5000)[:200], strings.Repeat("l", 5000)
		for i := range maxVariants + 5 {
			v, dv := variant.Groups[0].Variants[0], decided.Groups[0].Variants[0]
			v.Name, v.Accelerator, dv.Message = fmt.Sprint(i, strings.Repeat("v", 1000)), strings.Repeat("a", 1000)[:200], strings.Repeat("x", 1000)
			v.Source, v.Problem = snapshot.Source(strings.Repeat("s", 1000)), &snapshot.Problem{Reason: strings.Repeat("r", 1000)}
			group.Variants, of.Variants = append(group.Variants, v), append(of.Variants, dv)
		}
		s.Groups, d.Groups = append(s.Groups, group), append(d.Groups, of)
	}
	return s, d
}

// grow adds a point to each model.
func (v *view) grow(at time.Time) {
	for i := range v.Models {
		v.Models[i].History = v.Models[i].History.withPoint(at, point{})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	p := newPage(noon)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for n := range 50 {
				switch {
				case i == 0 && n%10 == 9:
					p.EndTerm()
				case i < 2:
					p.ObserveDecision(small(noon.Add(time.Duration(n)*time.Minute), "chat", 1))
				default:
					assert.Equal(t, http.StatusOK, get(t, p, "/debug/models", []string{"text/html", ""}[n%2]).Code)
				}
			}
		})
	}
	group.Wait()
}
