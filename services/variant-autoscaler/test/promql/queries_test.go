//go:build system

package promql

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

func float64FromBits(bits uint64) float64 { return math.Float64frombits(bits) }

// rate asserts a rate in requests per second.
func rate(t *testing.T, want float64, got int64) {
	t.Helper()
	assert.InDelta(t, want, float64(got)/1e6, 0.01*want+1e-6)
}

// change returns pages of which the first one counts until the last half minute.
func change(before, after string) func(ago time.Duration) string {
	return func(ago time.Duration) string {
		if ago > 30*time.Second {
			return before
		}
		return after
	}
}

// counted is how much of a step in a counter rate finds: it extrapolates the second since the last of four scrapes, but nothing before
// the first one, as the counter would have been below zero.
const counted = 46.0 / 45

func TestCapturedVLLM(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scrape(pod("ns", "a", change(captured(t, "vllm-0.32-fresh.txt"), captured(t, "vllm-0.32-under-load.txt"))))
	r := w.collect(group("tiny", []string{"a"}))[0]
	require.Equal(t, snapshot.Found, r.Load.State, r.Load.Message)
	rate(t, counted*27/60, r.Load.Rate)
	assert.InDelta(t, 445.0/27, r.Load.Input, 1e-6)
	assert.InDelta(t, 1715.0/27, r.Load.Output, 1e-6)
	assert.InDelta(t, 1209.4483375549316/27, r.Load.TTFT, 1e-6)
	assert.InDelta(t, 13399.02468299988/1688, r.Load.ITL, 1e-6)
	s := r.Variants[0].Sample
	require.NotNil(t, s)
	assert.Equal(t, 1, s.Replicas)
	assert.InDelta(t, counted*27/60, s.Rate, 1e-6)
	assert.InDelta(t, 811.2675480015241/27, s.Prefill, 1e-6)
	assert.InDelta(t, 32768, s.KVTokens, 0)
	assert.Zero(t, s.Cached)
	assert.Zero(t, s.Running)
	assert.Nil(t, s.Picker)
}

// TestOldNames has a page of the emulator, without the names of newer versions of vLLM.
func TestOldNames(t *testing.T) {
	t.Parallel()
	page := captured(t, "vllm-old-names.txt")
	before := strings.NewReplacer(" 17.0\n", " 0.0\n", " 288.0\n", " 0.0\n", " 61.0\n", " 0.0\n", " 44.0\n", " 0.0\n", " 0.2727599999999998\n", " 0.0\n").Replace(page)
	after := strings.ReplaceAll(strings.ReplaceAll(page, "gpu_cache_usage_perc{engine=\"0\",model_name=\"tiny\"} 0.0", "gpu_cache_usage_perc{engine=\"0\",model_name=\"tiny\"} 0.5"),
		"gpu_prefix_cache_hits_total{engine=\"0\",model_name=\"tiny\"} 0.0", "gpu_prefix_cache_hits_total{engine=\"0\",model_name=\"tiny\"} 144.0")
	w := newWorld(t)
	w.scrape(pod("ns", "a", change(before, after)))
	r := w.collect(group("tiny", []string{"a"}))[0]
	require.Equal(t, snapshot.Found, r.Load.State, r.Load.Message)
	rate(t, counted*17/60, r.Load.Rate)
	assert.InDelta(t, 272.7599999999998/44, r.Load.ITL, 1e-6)
	s := r.Variants[0].Sample
	require.NotNil(t, s)
	assert.InDelta(t, 0.5, s.Cached, 1e-6)
	assert.InDelta(t, 0.25, s.KVUsage, 1e-6, "two scrapes of four")
	assert.Len(t, r.Variants[0].Usages, 1)
	assert.InDelta(t, 0.25, r.Variants[0].Usages[0].KV, 1e-6)
	assert.InDelta(t, s.Waiting, r.Variants[0].Usages[0].Waiting, 1e-6)
	assert.InDelta(t, 256*128, s.KVTokens, 0, "blocks times their size")
}

// TestMixedVersions has servers of both versions, and one that has both names.
func TestMixedVersions(t *testing.T) {
	t.Parallel()
	old := func(page string) string {
		return strings.ReplaceAll(page, "inter_token_latency", "time_per_output_token")
	}
	w := newWorld(t)
	now := steady("m", 1, 0, 0)
	w.scrape(pod("ns", "new", now),
		pod("ns", "old", func(ago time.Duration) string { return old(now(ago)) }),
		pod("ns", "both", func(ago time.Duration) string {
			return now(ago) + "vllm:time_per_output_token_seconds_sum{engine=\"0\",model_name=\"m\"} " + fmt.Sprint(1e6-ago.Seconds()) + "\n"
		}))
	r := w.collect(group("m", []string{"new"}, []string{"old"}, []string{"both"}))[0]
	for i, v := range r.Variants {
		require.NotNil(t, v.Sample, i)
		assert.InDelta(t, 10, v.Sample.ITL, 0.01, i)
	}
	assert.InDelta(t, 10, r.Load.ITL, 0.01)
}

// sglang returns a page of a server with two tensor parallel ranks, both of which report. Counters appear with their first event.
func sglang(finished, running float64) string {
	const common = `engine_type="unified",model_name="m",pp_rank="0",`
	text := ""
	for rank := range 2 {
		text += fmt.Sprintf("sglang:num_running_reqs{%[1]stp_rank=\"%[2]d\"} %[3]g\nsglang:num_queue_reqs{%[1]stp_rank=\"%[2]d\"} 3\n"+
			"sglang:token_usage{%[1]stp_rank=\"%[2]d\"} 0.25\nsglang:max_total_num_tokens{%[1]stp_rank=\"%[2]d\"} 5000\n", common, rank, running)
	}
	if finished == 0 {
		return text
	}
	for _, c := range []struct {
		name string
		each float64
	}{
		{"prompt_tokens_total", 100}, {"generation_tokens_total", 50}, {"cached_tokens_total", 40}, {"num_requests_total", 1},
		{"time_to_first_token_seconds_sum", 0.2}, {"time_to_first_token_seconds_count", 1},
		{"inter_token_latency_seconds_sum", 0.49}, {"inter_token_latency_seconds_count", 49},
	} {
		// Streamed and other requests are apart.
		text += fmt.Sprintf("sglang:%[1]s{%[2]sis_streaming=\"true\"} %[3]g\nsglang:%[1]s{%[2]sis_streaming=\"false\"} %[4]g\n", c.name, common, finished*c.each/4, finished*c.each*3/4)
	}
	return text
}

func TestSGLang(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scrape(pod("ns", "a", func(ago time.Duration) string { return sglang(2*(time.Hour-ago).Seconds(), 7) }))
	r := w.collect(group("m", []string{"a"}))[0]
	require.Equal(t, snapshot.Found, r.Load.State, r.Load.Message)
	rate(t, 2, r.Load.Rate)
	assert.InDelta(t, 100, r.Load.Input, 0.01)
	assert.InDelta(t, 50, r.Load.Output, 0.01)
	assert.InDelta(t, 200, r.Load.TTFT, 0.01)
	assert.InDelta(t, 10, r.Load.ITL, 0.01)
	s := r.Variants[0].Sample
	require.NotNil(t, s)
	assert.InDelta(t, 7, s.Running, 1e-6, "ranks report the same requests")
	assert.InDelta(t, 3, s.Waiting, 1e-6)
	assert.InDelta(t, 0.4, s.Cached, 1e-4)
	assert.InDelta(t, 0.25, s.KVUsage, 1e-6)
	assert.InDelta(t, 5000, s.KVTokens, 0)
}

// TestReceivedRequests: newer versions of SGLang count requests when they arrive.
func TestReceivedRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scrape(pod("ns", "a", func(ago time.Duration) string {
		elapsed := (time.Hour - ago).Seconds()
		return sglang(2*elapsed, 7) + fmt.Sprintf("sglang:num_requests_received_total{model_name=\"m\"} %g\n", 6*elapsed)
	}))
	r := w.collect(group("m", []string{"a"}))[0]
	rate(t, 6, r.Load.Rate)
	rate(t, 6, r.Variants[0].Weight)
	assert.InDelta(t, 2, r.Variants[0].Sample.Rate, 0.02)
}

// TestLazyCounters: a server of SGLang without requests has no counters, and that is zero. One of vLLM without counters is broken.
func TestLazyCounters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scrape(pod("ns", "a", func(time.Duration) string { return sglang(0, 0) }),
		pod("ns", "b", func(time.Duration) string { return "vllm:num_requests_running{model_name=\"m\"} 0\n" }))
	lazy, broken := group("m", []string{"a"}), group("m", []string{"b"})
	lazy.Retention, broken.Retention = 5*time.Minute, 5*time.Minute
	broken.Pool = "other"
	r := w.collect(lazy, broken)
	assert.Equal(t, snapshot.Found, r[0].Load.State, r[0].Load.Message)
	assert.Zero(t, r[0].Load.Rate)
	require.NotNil(t, r[0].Requests)
	assert.InDelta(t, 3, *r[0].Requests, 0, "those in the queue of its page")
	assert.Equal(t, snapshot.Missing, r[1].Load.State)
	assert.Nil(t, r[1].Requests)
	assert.Contains(t, r[1].RequestsMessage, "neither of all ready pods nor of the picker")
}

func TestSameModelElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scrape(pod("ns", "a", steady("m", 1, 2, 0)), pod("ns", "b", steady("m", 3, 4, 0)), pod("other", "a", steady("m", 8, 9, 0)),
		pod("ns", "deleted", steady("m", 16, 0, 0)), pod("ns", "c", steady("another", 32, 0, 0)))
	second := group("m", []string{"b"})
	second.Pool = "q"
	third := group("m", []string{"a"})
	third.Namespace = "other"
	for i, want := range []float64{1, 3, 8} {
		r := w.collect(group("m", []string{"a", "c"}[:1]), second, third)[i]
		require.Equal(t, snapshot.Found, r.Load.State, r.Load.Message)
		rate(t, want, r.Load.Rate)
		require.NotNil(t, r.Variants[0].Sample)
		assert.Equal(t, 1, r.Variants[0].Sample.Replicas)
	}
}

// TestSaturation: finished requests stay at what servers can do, while their queues grow.
func TestSaturation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	grows := func(ago time.Duration) string {
		elapsed := (time.Hour - ago).Seconds()
		return vllm("m", numbers{finished: 2 * elapsed, running: 8, waiting: 3 * elapsed})
	}
	shrinks := func(ago time.Duration) string {
		return vllm("m", numbers{finished: 2 * (time.Hour - ago).Seconds(), running: 8, waiting: ago.Seconds()})
	}
	w.scrape(pod("ns", "a", grows), pod("ns", "b", shrinks))
	r := w.collect(group("m", []string{"a"}), group("m", []string{"b"}), group("m", []string{"a", "b"}))
	rate(t, 5, r[0].Load.Rate)
	rate(t, 2, r[1].Load.Rate) // never less than what finished
	rate(t, 6, r[2].Load.Rate) // 2 + 3 and 2 - 1: what shrinks in one place and grows in another did not arrive
	assert.InDelta(t, 2, r[0].Variants[0].Sample.Rate, 0.01)
}

func TestScrapedTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	again := pod("ns", "a", steady("m", 2, 4, 0))
	again.labels["job"], again.labels["endpoint"] = "services", "metrics"
	w.scrape(pod("ns", "a", steady("m", 2, 4, 0)), again)
	r := w.collect(group("m", []string{"a"}))[0]
	rate(t, 2, r.Load.Rate)
	assert.InDelta(t, 4, r.Variants[0].Sample.Running, 1e-6)
	assert.InDelta(t, 16000, r.Variants[0].Sample.KVTokens, 0)
}

func TestDataParallelEngines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scrape(pod("ns", "a", func(ago time.Duration) string {
		page := steady("m", 2, 4, 0)(ago)
		return page + strings.ReplaceAll(page, `engine="0"`, `engine="1"`)
	}))
	r := w.collect(group("m", []string{"a"}))[0]
	rate(t, 4, r.Load.Rate)
	assert.InDelta(t, 8, r.Variants[0].Sample.Running, 1e-6)
	assert.InDelta(t, 32000, r.Variants[0].Sample.KVTokens, 0)
	assert.InDelta(t, 0.5, r.Variants[0].Sample.KVUsage, 1e-6)
}

// TestRestart: a server restarts half a minute ago. Its counters begin again, and the requests that it had are gone.
func TestRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scrape(pod("ns", "a", func(ago time.Duration) string {
		if ago > 30*time.Second {
			return vllm("m", numbers{finished: 1e6 - 2*ago.Seconds(), running: 5000})
		}
		return vllm("m", numbers{finished: 2 * (30*time.Second - ago).Seconds(), running: 0})
	}), pod("ns", "b", steady("m", 2, 0, 0)))
	g := group("m", []string{"a"}, []string{"b"})
	g.Retention = 5 * time.Minute
	r := w.collect(g)[0]
	require.Equal(t, snapshot.Found, r.Load.State, r.Load.Message)
	assert.Greater(t, r.Load.Rate, int64(2_900_000))
	assert.Less(t, r.Load.Rate, int64(4_100_000))
	require.NotNil(t, r.Requests)
	assert.InDelta(t, 1200, *r.Requests, 100)

	w.scrape(pod("ns", "c", func(ago time.Duration) string {
		elapsed := (time.Hour - ago).Seconds()
		return vllm("m", numbers{finished: 2 * elapsed, waiting: 9 * elapsed})
	}))
	r = w.collect(group("m", []string{"a", "b", "c"}))[0]
	assert.Greater(t, r.Load.Rate, int64(12_000_000), "what went with a restart does not hide what arrived elsewhere")
}

func TestNoNumbers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nan := func(text string) func(ago time.Duration) string {
		return func(ago time.Duration) string {
			page := steady("m", 1, 1, 1)(ago)
			for _, name := range []string{"request_success_total", "num_requests_waiting", "request_prompt_tokens_sum", "kv_cache_usage_perc"} {
				lines := strings.Split(page, "\n")
				for i, l := range lines {
					if strings.Contains(l, name) {
						lines[i] = l[:strings.LastIndex(l, " ")+1] + text
					}
				}
				page = strings.Join(lines, "\n")
			}
			return page
		}
	}
	w.scrape(pod("ns", "a", nan("NaN")), pod("ns", "b", nan("+Inf")), pod("ns", "c", steady("m", 1, 1, 1)))
	for i, r := range w.collect(group("m", []string{"a"}), group("m", []string{"b"}), group("m", []string{"a", "c"}), group("m", []string{"c"})) {
		assert.Equal(t, i < 2, r.Load.State == snapshot.Missing, "%d: %s", i, r.Load.State)
		for _, v := range []float64{r.Load.Input, r.Load.Output, r.Load.TTFT, r.Load.ITL, r.Load.Queued} {
			assert.False(t, math.IsNaN(v) || math.IsInf(v, 0))
		}
	}
}

func TestMissingAndStale(t *testing.T) {
	t.Parallel()
	ended := func(name string, until time.Duration, gone bool) target {
		p := pod("ns", name, steady("m", 1, 0, 0))
		p.from, p.until, p.gone = 40*time.Minute, until, gone
		return p
	}
	w := newWorld(t)
	w.scrape(ended("seven", 7*time.Minute, false), ended("gone", 20*time.Minute, true), ended("four", 4*time.Minute, false), pod("ns", "other", steady("another", 1, 0, 0)))
	tests := []struct {
		pod  string
		want snapshot.LoadState
		text string
	}{
		{"seven", snapshot.Stale, "in Prometheus are 7m"},
		{"gone", snapshot.Stale, "check the scrape targets"},
		{"four", snapshot.Missing, "at least twice in 1m0s"},
		{"never", snapshot.Missing, "let a PodMonitor scrape them"},
		{"other", snapshot.Missing, "check that the model is served under this name"},
	}
	for _, tt := range tests {
		only := newWorld(t) // the state is that of the model in the namespace, so each has its own
		for _, s := range w.samples {
			if s.labels.Get("pod") == tt.pod {
				only.samples = append(only.samples, s)
			}
		}
		g := group("m", []string{tt.pod})
		g.Retention = time.Minute
		r := only.collect(g)[0]
		assert.Equal(t, tt.want, r.Load.State, tt.pod)
		assert.Contains(t, r.Load.Message, tt.text)
		assert.Zero(t, r.Load.Rate)
		assert.Nil(t, r.Requests, tt.pod)
		assert.Nil(t, r.Variants[0].Sample, tt.pod)
		assert.Zero(t, r.Variants[0].Weight, tt.pod)
	}
}

// TestPodsWithoutMetrics: some ready pods are not scraped.
func TestPodsWithoutMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scrape(pod("ns", "a", steady("m", 4, 0, 0)), pod("ns", "b", steady("m", 1, 0, 0)))
	fresh := group("m", []string{"a", "b"}, []string{"new", "newer"})
	for i := range fresh.Variants[1].Pods {
		fresh.Variants[1].Pods[i].Ready = present.Add(-time.Minute)
	}
	unready := group("m", []string{"a", "b"}, []string{"x"})
	unready.Variants[1].Pods[0].Ready = time.Time{}
	r := w.collect(group("m", []string{"a", "x"}, []string{"b"}), group("m", []string{"a", "b"}, []string{"x"}), group("m", []string{"a", "x", "y"}), fresh, unready)
	rate(t, 4+4+1, r[0].Load.Rate) // the mean of the same variant
	assert.Contains(t, r[0].Load.Message, "1 of 3 ready pods have no metrics in Prometheus, such as x")
	rate(t, 5+2.5, r[1].Load.Rate) // the mean of all
	assert.Equal(t, snapshot.Missing, r[2].Load.State, "less than half have metrics")
	rate(t, 5, r[3].Load.Rate)
	assert.Empty(t, r[3].Load.Message)
	rate(t, 5, r[4].Load.Rate)
}

func TestLabelsAreEscaped(t *testing.T) {
	t.Parallel()
	const model = "a\"} or vector(1)\n\\d+%s%[1]d{é"
	w := newWorld(t)
	w.scrape(pod("ns", "a", func(ago time.Duration) string {
		return strings.ReplaceAll(steady("placeholder", 2, 1, 0)(ago), "placeholder", strings.NewReplacer("\\", `\\`, "\"", `\"`, "\n", `\n`).Replace(model))
	}))
	g := group(model, []string{"a"})
	g.Retention = time.Minute
	r := w.collect(g)[0]
	require.Equal(t, snapshot.Found, r.Load.State, r.Load.Message)
	rate(t, 2, r.Load.Rate)
	require.NotNil(t, r.Requests, r.RequestsMessage)
	assert.InDelta(t, 121, *r.Requests, 2)
}

func TestRequestsOfThePeriod(t *testing.T) {
	t.Parallel()
	served := func(finished, running float64) func(time.Duration) string {
		return func(time.Duration) string { return vllm("m", numbers{finished: finished, running: running}) }
	}
	born := pod("ns", "born", served(4, 0)) // it was first scraped when it had served four
	born.from = 3 * time.Minute
	dead := pod("ns", "dead", func(ago time.Duration) string { return vllm("m", numbers{finished: 100 - ago.Minutes()}) })
	dead.from, dead.until, dead.gone = 12*time.Minute, 4*time.Minute, true
	longDead := pod("ns", "longdead", served(100, 0))
	longDead.from, longDead.until, longDead.gone = 30*time.Minute, 20*time.Minute, true
	idle := pod("ns", "idle", served(1000, 0))
	idle.from = 20 * time.Minute
	busy := pod("ns", "busy", served(1000, 2))
	busy.from = 20 * time.Minute
	tests := []struct {
		name    string
		targets []target
		pods    []string
		want    float64 // negative: not known
		within  float64
	}{
		{"none", []target{idle}, []string{"idle"}, 0, 0},
		{"before the first scrape", []target{idle, born}, []string{"idle", "born"}, 4, 0},
		{"of a deleted pod", []target{idle, dead}, []string{"idle"}, 6, 1},
		{"of a deleted pod, at zero replicas", []target{dead}, nil, 6, 1},
		{"deleted before the period", []target{idle, longDead}, []string{"idle"}, 0, 0},
		{"in a server", []target{busy}, []string{"busy"}, 2, 0},
		{"no metrics of the period", []target{longDead}, nil, -1, 0},
		{"nothing", nil, nil, -1, 0},
		{"a pod without metrics", []target{idle}, []string{"idle", "x"}, -1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.scrape(tt.targets...)
			g := group("m", tt.pods)
			g.Retention = 10 * time.Minute
			r := w.collect(g)[0]
			if tt.want < 0 {
				assert.Nil(t, r.Requests)
				assert.Contains(t, r.RequestsMessage, "neither of all ready pods nor of the picker")
				return
			}
			require.NotNil(t, r.Requests, r.RequestsMessage)
			assert.InDelta(t, tt.want, *r.Requests, tt.within)
		})
	}
}

// TestRequestsOfTwoPools: deleted pods may be of any pool of the namespace, present ones are not.
func TestRequestsOfTwoPools(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	idle, busy := pod("ns", "idle", steady("m", 0, 0, 0)), pod("ns", "busy", steady("m", 1, 0, 0))
	idle.from, busy.from = 20*time.Minute, 20*time.Minute
	w.scrape(idle, busy)
	first, second := group("m", []string{"idle"}), group("m", []string{"busy"})
	first.Retention, second.Retention, second.Pool = 10*time.Minute, 10*time.Minute, "q"
	r := w.collect(first, second)
	require.NotNil(t, r[0].Requests)
	assert.Zero(t, *r[0].Requests)
	require.NotNil(t, r[1].Requests)
	assert.InDelta(t, 600, *r[1].Requests, 1)
}

func TestLongRetention(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scrape(pod("ns", "a", steady("m", 1, 0, 0)))
	g := group("m", []string{"a"})
	g.Retention = 8 * 24 * time.Hour
	r := w.collect(g)[0]
	assert.Equal(t, snapshot.Found, r.Load.State)
	assert.Nil(t, r.Requests)
	assert.Contains(t, r.RequestsMessage, "shorten it")
}

func TestHostileNumbers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scrape(pod("ns", "a", steady("m", 1e12, 0, 0)),
		pod("ns", "b", func(ago time.Duration) string {
			return strings.ReplaceAll(steady("m", 1, 1e30, 0)(ago), `num_gpu_blocks="1000"`, `num_gpu_blocks="9223372036854775807"`)
		}))
	r := w.collect(group("m", []string{"a"}), group("m", []string{"b"}))
	assert.Equal(t, snapshot.Failed, r[0].Load.State)
	assert.Contains(t, r[0].Load.Message, "1e+12 requests per second, which cannot be")
	assert.LessOrEqual(t, r[0].Variants[0].Weight, int64(1e15))
	assert.Equal(t, snapshot.Found, r[1].Load.State)
	assert.Zero(t, r[1].Variants[0].Sample.Running)
	assert.Zero(t, r[1].Variants[0].Sample.KVTokens)
}
