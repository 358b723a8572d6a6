package collect

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/promclient"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

var present = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// stub answers queries of a Collector.
type stub func(ctx context.Context, expr string) ([]promclient.Series, error)

func (s stub) Query(ctx context.Context, expr string) ([]promclient.Series, error) {
	return s(ctx, expr)
}

// value returns an element of a figure.
func value(figure, pod string, v float64) promclient.Series {
	return promclient.Series{Labels: map[string]string{labelFigure: figure, "pod": pod}, Value: v}
}

// idle is the answer on a pod that has metrics and no requests.
func idle(pod string) []promclient.Series {
	return []promclient.Series{value(clock, "", 1000), value(sampled, pod, 990), value(finished, pod, 0), value(runningGrowth, pod, 0)}
}

func groupOf(namespace, model string, pods ...string) Group {
	v := Variant{Name: "v"}
	for _, p := range pods {
		v.Pods = append(v.Pods, snapshot.Pod{Name: p, Ready: present.Add(-time.Hour)})
	}
	return Group{Namespace: namespace, Pool: "p", Model: model, Retention: 10 * time.Minute, Variants: []Variant{v}}
}

func collectOne(t *testing.T, q Querier, g Group) Result {
	t.Helper()
	r := New(q, Options{}).Collect(t.Context(), present, []Group{g})
	require.Len(t, r, 1)
	require.Len(t, r[0].Variants, len(g.Variants))
	return r[0]
}

// always answers each query alike.
func always(answer ...promclient.Series) stub {
	return func(context.Context, string) ([]promclient.Series, error) { return answer, nil }
}

func TestOneFailureCostsOneGroup(t *testing.T) {
	t.Parallel()
	refuses := stub(func(_ context.Context, expr string) ([]promclient.Series, error) {
		if strings.Contains(expr, `model_name="bad"`) {
			return nil, errors.New("too many series match")
		}
		return idle("a"), nil
	})
	groups := []Group{groupOf("ns", "good", "a"), groupOf("ns", "bad", "a"), groupOf("ns", "fine", "a")}
	for i, r := range New(refuses, Options{}).Collect(t.Context(), present, groups) {
		if groups[i].Model == "bad" {
			assert.Equal(t, snapshot.Load{State: snapshot.Failed, Message: "too many series match"}, r.Load)
			assert.Nil(t, r.Requests)
			assert.Equal(t, "too many series match", r.RequestsMessage)
			assert.Equal(t, []VariantResult{{}}, r.Variants)
			continue
		}
		assert.Equal(t, snapshot.Load{State: snapshot.Found}, r.Load)
		assert.NotNil(t, r.Requests)
	}
}

// TestErrorsAreNeverZero fails one query of a group after the other.
func TestErrorsAreNeverZero(t *testing.T) {
	t.Parallel()
	failsWith := func(part string, answer []promclient.Series) stub {
		return func(_ context.Context, expr string) ([]promclient.Series, error) {
			if strings.Contains(expr, part) {
				return nil, errors.New("lost")
			}
			return answer, nil
		}
	}
	r := collectOne(t, failsWith("min_over_time", idle("a")), groupOf("ns", "m", "a"))
	assert.Equal(t, snapshot.Found, r.Load.State)
	assert.Nil(t, r.Requests)
	assert.Equal(t, "lost", r.RequestsMessage)

	r = collectOne(t, failsWith(":1m]", []promclient.Series{value(clock, "", 1000)}), groupOf("ns", "m", "a"))
	assert.Equal(t, snapshot.Load{State: snapshot.Failed, Message: "lost"}, r.Load)
	assert.Nil(t, r.Requests)

	r = collectOne(t, always(), groupOf("ns", "m", "a"))
	assert.Equal(t, snapshot.Failed, r.Load.State, "not even a time")
	assert.Nil(t, r.Requests)
}

func TestAge(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		age  float64
		want snapshot.LoadState
	}{
		{"fresh", 1, snapshot.Found},
		{"the oldest", 300, snapshot.Found},
		{"too old", 301, snapshot.Stale},
	}
	for _, tt := range tests {
		r := collectOne(t, always(value(clock, "", 1000), value(sampled, "a", 1000-tt.age), value(finished, "a", 2)), groupOf("ns", "m", "a"))
		assert.Equal(t, tt.want, r.Load.State, tt.name)
		assert.Equal(t, tt.want == snapshot.Found, r.Variants[0].Sample != nil, tt.name)
	}
	r := collectOne(t, always(value(clock, "", 1000), value(sampled, "a", 400), value(sampled, "b", 100), value(finished, "a", 2)), groupOf("ns", "m", "a", "b"))
	assert.Equal(t, `the newest metrics of model "m" in namespace ns in Prometheus are 10m0s old: check the scrape targets of its pods`, r.Load.Message)
}

// TestNoPartOfAnAnswerIsTrusted takes every figure from an answer in turn, and makes it impossible.
func TestNoPartOfAnAnswerIsTrusted(t *testing.T) {
	t.Parallel()
	figures := append([]string{clock, sampled, running, waiting, runningNow, waitingNow, runningGrowth, waitingGrowth, kvUsage, kvTokens, lazy,
		picks, attempts, oldAttempts, refused, queued, perToken, slowdown, tokenTime, backlog, batch, pickerReady}, counted...)
	for _, wrong := range figures {
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -5, 1e300, -1e300, math.MaxFloat64} {
			var answer []promclient.Series
			for _, f := range figures {
				number := 2.0
				if f == clock || f == sampled {
					number = 1000
				}
				if f == wrong {
					number = v
				}
				answer = append(answer, value(f, "a", number), value(f, "", number))
			}
			r := collectOne(t, always(answer...), groupOf("ns", "m", "a"))
			for _, got := range []float64{float64(r.Load.Rate), r.Load.Input, r.Load.Output, r.Load.TTFT, r.Load.ITL, r.Load.Queued, float64(r.Variants[0].Weight)} {
				assert.True(t, got >= 0 && got <= 1e15, "%s %v: %v", wrong, v, got)
			}
			if s := r.Variants[0].Sample; s != nil {
				for _, got := range []float64{s.Rate, s.Input, s.Output, s.Cached, s.Running, s.Waiting, s.Prefill, s.TTFT, s.ITL, s.KVUsage, s.KVTokens} {
					assert.True(t, got >= 0 && got <= 2e15, "%s %v: %v", wrong, v, got)
				}
				if s.Picker != nil {
					for _, got := range []float64{s.Picker.PrefillRate, s.Picker.BatchCapacity} {
						assert.True(t, got >= 0 && got <= 1e15, "%s %v: %v", wrong, v, got)
					}
				}
				assert.LessOrEqual(t, s.KVUsage, 1.0)
				assert.LessOrEqual(t, s.Cached, 1.0)
			}
		}
	}
}

func TestEmptyGroups(t *testing.T) {
	t.Parallel()
	assert.Empty(t, New(always(), Options{}).Collect(t.Context(), present, nil))
	r := collectOne(t, always(value(clock, "", 1000)), Group{Namespace: "ns", Model: "m"})
	assert.Equal(t, snapshot.Missing, r.Load.State)
	assert.Contains(t, r.Load.Message, "Let Prometheus scrape the picker")
	assert.Nil(t, r.Requests)
	assert.Empty(t, r.RequestsMessage, "not asked for")
}

func TestLongModel(t *testing.T) {
	t.Parallel()
	asked := stub(func(context.Context, string) ([]promclient.Series, error) {
		assert.Fail(t, "asked")
		return nil, nil
	})
	r := collectOne(t, asked, groupOf("ns", strings.Repeat("x", 1025), "a"))
	assert.Equal(t, snapshot.Failed, r.Load.State)
	assert.Contains(t, r.Load.Message, "shorten it")
	assert.Nil(t, r.Requests)
}

func TestConcurrencyIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		slow := stub(func(context.Context, string) ([]promclient.Series, error) {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(time.Millisecond)
			now.Add(-1)
			return idle("a"), nil
		})
		var groups []Group
		for i := range 50 {
			groups = append(groups, groupOf("ns", fmt.Sprint(i), "a"))
		}
		for _, r := range New(slow, Options{Concurrency: 3}).Collect(t.Context(), present, groups) {
			assert.Equal(t, snapshot.Found, r.Load.State)
		}
		assert.Equal(t, int64(3), most.Load())
	})
}

// TestHangingPrometheus: the time of all queries is bounded, and no group is left out of the results.
func TestHangingPrometheus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := stub(func(ctx context.Context, _ string) ([]promclient.Series, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		var groups []Group
		for i := range 100 {
			groups = append(groups, groupOf(fmt.Sprint("ns", i), "m", "a"))
		}
		begun := time.Now()
		for _, r := range New(hangs, Options{}).Collect(t.Context(), present, groups) {
			assert.Equal(t, snapshot.Failed, r.Load.State)
			assert.NotEmpty(t, r.Load.Message)
			assert.Nil(t, r.Requests)
		}
		assert.Equal(t, 30*time.Second, time.Since(begun))
	})
}

// TestNamespacesTakeTurns: one with many groups does not delay the first groups of others.
func TestNamespacesTakeTurns(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var order []string
	records := stub(func(_ context.Context, expr string) ([]promclient.Series, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, g := range []string{"many/0", "many/1", "many/2", "few/0", "few/1", "one/0"} {
			if namespace, model, _ := strings.Cut(g, "/"); strings.Contains(expr, fmt.Sprintf(`{namespace=%q,model_name=%q}`, namespace, model)) {
				order = append(order, g)
			}
		}
		return nil, errors.New("one query for each")
	})
	groups := []Group{groupOf("many", "0"), groupOf("many", "1"), groupOf("many", "2"), groupOf("few", "0"), groupOf("few", "1"), groupOf("one", "0")}
	New(records, Options{Concurrency: 1}).Collect(t.Context(), present, groups)
	assert.Equal(t, []string{"many/0", "few/0", "one/0", "many/1", "few/1", "many/2"}, order)
}

// TestQueriesOfAModel: the number of queries does not depend on the number of variants.
func TestQueriesOfAModel(t *testing.T) {
	t.Parallel()
	var queries atomic.Int64
	count := stub(func(context.Context, string) ([]promclient.Series, error) {
		queries.Add(1)
		return idle("a"), nil
	})
	g := groupOf("ns", "m", "a")
	for i := range 50 {
		g.Variants = append(g.Variants, Variant{Name: fmt.Sprint(i)})
	}
	collectOne(t, count, g)
	assert.Equal(t, int64(2), queries.Load())
}

func TestCacheSize(t *testing.T) {
	t.Parallel()
	tests := []struct {
		tokens, blocks, size string
		want                 float64
	}{
		{"32768", "256", "128", 32768},
		{"1000", "256", "128", 1000}, // hybrid model
		{"", "256", "128", 32768},
		{"None", "256", "128", 32768},
		{"0", "256", "128", 32768},
		{"", "None", "128", 0},
		{"-5", "-256", "-128", 0},
		{"1e9", "", "", 0},
		{"9223372036854775807", "9223372036854775807", "9223372036854775807", 0},
		{"99999999999999999999999999", "1", "x", 0},
	}
	for _, tt := range tests {
		labels := map[string]string{labelFigure: cacheInfo, "pod": "a", labelTokens: tt.tokens, labelBlocks: tt.blocks, labelBlockSize: tt.size}
		assert.InDelta(t, tt.want, readFigures("ns", []promclient.Series{{Labels: labels, Value: 1}})[kvTokens]["a"], 0, "%v", tt)
	}
}

// TestPodsOfOtherNamespaces: a picker's metric names pods of its own namespace, with or without it.
func TestPodsOfOtherNamespaces(t *testing.T) {
	t.Parallel()
	element := func(pod, exported string) promclient.Series {
		return promclient.Series{Labels: map[string]string{labelFigure: picks, "pod": pod, "exported_pod": exported}, Value: 1}
	}
	f := readFigures("ns", []promclient.Series{element("epp", "ns/a"), element("ns/b", ""), element("epp", "other/c"),
		element("epp", "nsx/d"), element("epp", "e"), element("f", "")})
	assert.Equal(t, map[string]float64{"a": 1, "b": 1, "e": 1, "f": 1}, f[picks])
}

func TestCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	client := stub(func(ctx context.Context, _ string) ([]promclient.Series, error) { return nil, ctx.Err() })
	r := New(client, Options{}).Collect(ctx, present, []Group{groupOf("ns", "m", "a")})
	assert.Equal(t, snapshot.Failed, r[0].Load.State)
}

// TestWhatThePickerLearned: a picker that says what it learned is asked for nothing else.
func TestWhatThePickerLearned(t *testing.T) {
	t.Parallel()
	older := []promclient.Series{value(perToken, "", 1e-4), value(slowdown, "a", 2)}
	sends := value(picks, "a", 1)
	tests := []struct {
		name string
		give []promclient.Series
		want *snapshot.PickerSample
	}{
		{"nothing", []promclient.Series{sends}, nil},
		{"an older picker", append(older, sends), &snapshot.PickerSample{PrefillRate: 5000}},
		{"an older one that sent nothing", older, nil},
		{"a new one that learned nothing", append(older, sends, value(backlog, "a", 1)), nil},
		{"a speed", append(older, sends, value(backlog, "a", 3), value(backlog, "b", 1), value(tokenTime, "a", 1e-3), value(tokenTime, "b", 3e-3)),
			&snapshot.PickerSample{PrefillRate: 500}},
		{"one speed", []promclient.Series{value(backlog, "a", 3), value(backlog, "b", 1), value(tokenTime, "a", 1e-3)},
			&snapshot.PickerSample{PrefillRate: 1000}},
		{"a batch", append(older, value(backlog, "a", 0), value(batch, "b", 48)), &snapshot.PickerSample{BatchCapacity: 48}},
		{"an impossible speed", []promclient.Series{value(backlog, "a", 0), value(tokenTime, "a", 1e-12)}, nil},
		{"of another namespace", append(older, sends, value(backlog, "other/a", 3), value(tokenTime, "other/a", 1e-3)),
			&snapshot.PickerSample{PrefillRate: 5000}},
	}
	for _, tt := range tests {
		r := collectOne(t, always(slices.Concat(idle("a"), idle("b")[1:], tt.give)...), groupOf("ns", "m", "a", "b"))
		require.NotNil(t, r.Variants[0].Sample, tt.name)
		got := r.Variants[0].Sample.Picker
		require.Equal(t, tt.want == nil, got == nil, tt.name)
		if got != nil {
			assert.InDeltaMapValues(t, fields(tt.want), fields(got), 1e-6, tt.name)
		}
	}
}

func fields(p *snapshot.PickerSample) map[string]float64 {
	return map[string]float64{"rate": p.PrefillRate, "batch": p.BatchCapacity}
}

// TestNewPodGetsMost: an empty pod gets most requests, which no growth between two scrapes shows.
func TestNewPodGetsMost(t *testing.T) {
	t.Parallel()
	g := groupOf("ns", "m", "old", "new")
	tests := []struct {
		name  string
		ready time.Duration // ago
		new   []promclient.Series
		want  int64
	}{
		{"not scraped", 10 * time.Second, nil, 2e6},
		{"scraped once", 10 * time.Second, []promclient.Series{value(sampled, "new", 990), value(runningNow, "new", 50), value(waitingNow, "new", 10)}, 3e6},
		{
			"scraped twice", 40 * time.Second,
			[]promclient.Series{value(sampled, "new", 990), value(runningNow, "new", 60), value(finished, "new", 0), value(runningGrowth, "new", 10)}, 3e6,
		},
		{
			"not new any more", 2 * time.Minute,
			[]promclient.Series{value(sampled, "new", 990), value(runningNow, "new", 60), value(finished, "new", 0), value(runningGrowth, "new", 0)}, 2e6,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := g
			g.Variants = []Variant{{Name: "v", Pods: []snapshot.Pod{g.Variants[0].Pods[0], {Name: "new", Ready: present.Add(-tt.ready)}}}}
			answer := append(tt.new, value(clock, "", 1000), value(sampled, "old", 990), value(finished, "old", 2), value(runningGrowth, "old", 0), value(waitingNow, "old", 7))
			l := collectOne(t, always(answer...), g).Load
			assert.Equal(t, tt.want, l.Rate)
			assert.GreaterOrEqual(t, l.Waiting, 7.)
		})
	}
}

// TestCachedTokens: a prefix cache that answers for more tokens than were asked for has all of them.
func TestCachedTokens(t *testing.T) {
	t.Parallel()
	for hits, want := range map[float64]float64{0: 0, 3: 0.75, 9: 1} {
		answer := append(idle("p1"), value(cacheLookups, "p1", 4), value(cacheHits, "p1", hits), value(inputTokens, "p1", 100), value(inputs, "p1", 1))
		l := collectOne(t, always(answer...), groupOf("ns", "m", "p1")).Load
		assert.InDelta(t, want, l.Cached, 1e-9)
		assert.InDelta(t, 100*(1-want), l.UncachedInput(), 1e-9)
	}
}
