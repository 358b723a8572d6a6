//go:build system

package promql

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/collect"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// picker returns the target of a picker of pool ns/p.
func picker(name string, page func(ago time.Duration) string) target {
	return target{
		labels: map[string]string{"namespace": "ns", "pod": name, "job": "picker", "endpoint": "metrics", "instance": name + ":9090"},
		page:   page, from: 10 * time.Minute,
	}
}

// roles are the roles of pods. Older pickers export none.
var roles = map[string]string{"b": "decode"}

// sends returns pages of a picker that sends requests at rates to pods of its pool, and refuses some of model m.
func sends(refuses float64, rates map[string]float64) func(ago time.Duration) string {
	return func(ago time.Duration) string {
		elapsed := (time.Hour - ago).Seconds()
		text := "fairlead_picker_endpoints_ready{pool=\"ns/p\"} 2\nllm_d_epp_ready_endpoints{name=\"p\"} 2\nfairlead_picker_speed_per_token_seconds{pool=\"ns/p\"} 0.0001\n"
		for name, rate := range rates {
			labels := fmt.Sprintf("{endpoint=\"10.0.0.1:8000\",pod=\"%s\",pool=\"ns/p\",role=%q} ", name, roles[name])
			text += fmt.Sprintf("fairlead_picker_endpoint_picks_total%s%g\nfairlead_picker_endpoint_wait_factor%s2\nfairlead_picker_endpoint_prompt_tokens_owed%s3000\n",
				labels, rate*elapsed, labels, labels)
			text += fmt.Sprintf("llm_d_epp_scheduler_attempts_total{endpoint_name=%q,namespace=\"ns\",port=\"8000\",status=\"success\",target_model_name=\"m\"} %g\n", name, rate*elapsed)
		}
		if refuses > 0 {
			text += fmt.Sprintf("llm_d_epp_scheduler_attempts_total{endpoint_name=\"\",namespace=\"\",port=\"\",status=\"failure\",target_model_name=\"m\"} %g\n", refuses*elapsed)
		}
		return text
	}
}

func TestPicker(t *testing.T) {
	t.Parallel()
	for _, honors := range []bool{false, true} {
		t.Run(fmt.Sprintf("honors labels %t", honors), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			one, two := picker("epp-0", sends(1, map[string]float64{"a": 3, "b": 1, "deleted": 50})), picker("epp-1", sends(0, map[string]float64{"a": 2}))
			one.honors, two.honors = honors, honors
			// What others claim in their namespace does not count.
			false1 := picker("epp-0", sends(1000, map[string]float64{"a": 1000}))
			false1.labels["namespace"] = "evil"
			w.scrape(pod("ns", "a", steady("m", 4, 0, 0)), pod("ns", "b", steady("m", 1, 0, 0)), one, two, false1)
			g := group("m", []string{"a"}, []string{"b"})
			r := w.collect(g)[0]
			require.Equal(t, snapshot.Found, r.Load.State, r.Load.Message)
			rate(t, 3+1+2+1, r.Load.Rate) // sent and refused
			rate(t, 5, r.Variants[0].Weight)
			rate(t, 1, r.Variants[1].Weight)
			s := r.Variants[0].Sample
			assert.InDelta(t, 4, s.Rate, 0.05)
			require.NotNil(t, s.Picker)
			assert.InDelta(t, 1/0.0002, s.Picker.PrefillRate, 1)
			assert.Zero(t, s.Picker.BatchCapacity)
		})
	}
}

// TestLLMDRouter has the names of the llm-d router and of its predecessor, without the pool.
func TestLLMDRouter(t *testing.T) {
	t.Parallel()
	for _, names := range []*strings.Replacer{
		strings.NewReplacer("fairlead_picker", "another"),
		strings.NewReplacer("fairlead_picker", "another", "llm_d_epp_scheduler_attempts", "inference_extension_scheduler_attempts", "endpoint_name", "pod_name",
			"llm_d_epp_ready_endpoints", "inference_pool_ready_pods"),
	} {
		w := newWorld(t)
		page := sends(1, map[string]float64{"a": 3, "b": 1, "x": 50})
		w.scrape(pod("ns", "a", steady("m", 4, 0, 0)), pod("ns", "b", steady("m", 0, 0, 0)),
			picker("epp", func(ago time.Duration) string {
				other := strings.ReplaceAll(strings.ReplaceAll(page(ago), "\"ns\"", "\"other\""), "8000", "9000") // pods of the same names elsewhere
				return names.Replace(page(ago) + other)
			}))
		r := w.collect(group("m", []string{"a"}, []string{"b"}))[0]
		rate(t, 3+1+1, r.Load.Rate)
		rate(t, 3, r.Variants[0].Weight)
		rate(t, 1, r.Variants[1].Weight)
		assert.Nil(t, r.Variants[0].Sample.Picker)
	}
}

// TestWeightOfNewPods: a weight is for the time in which a pod was ready.
func TestWeightOfNewPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	recent := pod("ns", "b", steady("m", 2, 0, 0))
	recent.from = 30 * time.Second
	w.scrape(pod("ns", "a", steady("m", 2, 0, 0)), recent, picker("epp", func(ago time.Duration) string {
		late := max(30*time.Second-ago, 0).Seconds()
		return sends(0, map[string]float64{"a": 2})(ago) + fmt.Sprintf("fairlead_picker_endpoint_picks_total{endpoint=\"10.0.0.2:8000\",pod=\"b\",pool=\"ns/p\"} %g\n", 2*late)
	}))
	g := group("m", []string{"a", "new"}, []string{"b"}, []string{"newer"})
	g.Variants[0].Pods[1].Ready = present.Add(-30 * time.Second)
	g.Variants[1].Pods[0].Ready = present.Add(-30 * time.Second)
	g.Variants[2].Pods[0].Ready = present.Add(-5 * time.Second)
	r := w.collect(g)[0]
	rate(t, 2, r.Variants[0].Weight) // what the new pod got is not counted yet, so its time is not either
	assert.InDelta(t, 2, float64(r.Variants[1].Weight)/1e6, 0.1, "60 requests in half a minute")
	assert.Zero(t, r.Variants[2].Weight, "not counted yet")
}

// TestWeightWithoutPicker: what arrives in pods is what a gateway sends to them.
func TestWeightWithoutPicker(t *testing.T) {
	t.Parallel()
	for name, others := range map[string][]target{
		"none":           nil,
		"another's pods": {picker("epp", sends(0, map[string]float64{"x": 5}))},
		"unused":         {picker("epp", sends(0, map[string]float64{"a": 0, "b": 0}))},
		"passed by":      {picker("epp", sends(0, map[string]float64{"b": 0.5}))},
	} {
		w := newWorld(t)
		w.scrape(append(others, pod("ns", "a", steady("m", 3, 0, 0)), pod("ns", "b", steady("m", 1, 0, 0)))...)
		r := w.collect(group("m", []string{"a"}, []string{"b"}))[0]
		assert.InDelta(t, 3, float64(r.Variants[0].Weight)/1e6, 0.05, name)
		assert.InDelta(t, 1, float64(r.Variants[1].Weight)/1e6, 0.05, name)
		assert.Equal(t, name == "passed by", r.Variants[0].Sample.Picker != nil || r.Variants[1].Sample.Picker != nil, "it learned only from what it sent")
	}
}

// TestNoReplicas: without pods, only the picker sees requests.
func TestNoReplicas(t *testing.T) {
	t.Parallel()
	queue := func(time.Duration) string {
		return "llm_d_epp_flow_control_queue_size{fairness_id=\"x\",priority=\"0\",inference_pool=\"p\",model_name=\"m\",target_model_name=\"m\"} 3\n" +
			"llm_d_epp_flow_control_queue_size{fairness_id=\"y\",priority=\"0\",inference_pool=\"p\",model_name=\"m\",target_model_name=\"\"} 4\n" +
			"llm_d_epp_flow_control_queue_size{fairness_id=\"y\",priority=\"0\",inference_pool=\"q\",model_name=\"m\",target_model_name=\"m\"} 100\n" +
			"llm_d_epp_flow_control_queue_size{fairness_id=\"y\",priority=\"0\",inference_pool=\"p\",model_name=\"m\",target_model_name=\"tuned\"} 100\n"
	}
	longer := func(p target) target {
		p.from = 30 * time.Minute
		return p
	}
	tests := []struct {
		name     string
		targets  []target
		state    snapshot.LoadState
		rate     float64
		queued   float64
		requests float64 // negative: not known
	}{
		{"no picker", nil, snapshot.Missing, 0, 0, -1},
		{"no requests", []target{longer(picker("epp", sends(0, nil)))}, snapshot.Found, 0, 0, 0},
		{"a new picker", []target{picker("epp", sends(0, nil))}, snapshot.Found, 0, 0, -1},
		{"refused requests", []target{longer(picker("epp", sends(2, nil)))}, snapshot.Found, 2, 0, 2 * 15 * 60},
		{"queued requests", []target{longer(picker("epp", func(ago time.Duration) string { return sends(0, nil)(ago) + queue(ago) }))}, snapshot.Found, 0, 7, 0},
		{"one refused request", []target{longer(picker("epp", func(ago time.Duration) string {
			if ago > time.Minute {
				return sends(0, nil)(ago)
			}
			return sends(0, nil)(ago) + "llm_d_epp_scheduler_attempts_total{status=\"failure\",target_model_name=\"m\"} 1\n"
		}))}, snapshot.Found, 0, 0, 1},
		{"deleted pods", []target{longer(picker("epp", func(ago time.Duration) string {
			if ago < 10*time.Minute {
				return sends(0, nil)(ago)
			}
			return sends(0, map[string]float64{"deleted": 1})(ago)
		}))}, snapshot.Found, 0, 0, 300},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.scrape(tt.targets...)
			g := group("m", nil)
			g.Retention = 15 * time.Minute
			r := w.collect(g)[0]
			assert.Equal(t, tt.state, r.Load.State, r.Load.Message)
			rate(t, tt.rate, r.Load.Rate)
			assert.InDelta(t, tt.queued, r.Load.Queued, 1e-6)
			if tt.requests < 0 {
				assert.Nil(t, r.Requests)
				return
			}
			require.NotNil(t, r.Requests, r.RequestsMessage)
			assert.InDelta(t, tt.requests, *r.Requests, 0.1*tt.requests)
		})
	}
}

// TestPickerWithoutEngines: a picker does not replace the metrics of pods that should have them.
func TestPickerWithoutEngines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.scrape(picker("epp", sends(0, map[string]float64{"a": 2})))
	starting := group("m", []string{"a"})
	starting.Variants[0].Pods[0].Ready = present.Add(-30 * time.Second)
	r := w.collect(group("m", []string{"a"}), starting)
	assert.Equal(t, snapshot.Missing, r[0].Load.State)
	assert.Equal(t, snapshot.Found, r[1].Load.State, "they were not scraped twice yet")
	rate(t, 2, r[1].Load.Rate)
}

// TestTwoPoolsOfOneModel: without a pool in its labels, a refusal cannot be told to belong to one of them.
func TestTwoPoolsOfOneModel(t *testing.T) {
	t.Parallel()
	named := func(ago time.Duration) string {
		return strings.ReplaceAll(sends(3, nil)(ago), "target_model_name=\"m\"", "target_model_name=\"m\",pool=\"ns/p\"")
	}
	w := newWorld(t)
	w.scrape(picker("epp-p", named), picker("epp-q", func(ago time.Duration) string { return strings.ReplaceAll(sends(50, nil)(ago), "/p\"", "/q\"") }))
	first, second := group("m", nil), group("m", nil)
	second.Pool = "q"
	r := w.collect(first, second)
	rate(t, 3, r[0].Load.Rate)
	rate(t, 0, r[1].Load.Rate)
	rate(t, 53, w.collect(first)[0].Load.Rate)
}

// TestManyGroups has more groups than queries at a time.
func TestManyGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var groups []collect.Group
	for i := range 20 {
		name := fmt.Sprint("pod-", i)
		w.scrape(pod("ns", name, steady(fmt.Sprint("m", i), float64(i), 0, 0)))
		groups = append(groups, group(fmt.Sprint("m", i), []string{name}))
	}
	for i, r := range w.collect(groups...) {
		rate(t, float64(i), r.Load.Rate)
	}
}

// TestCapturedPicker has the page of a picker with two servers of vLLM's emulator under load, of which both had a full batch of 48.
func TestCapturedPicker(t *testing.T) {
	t.Parallel()
	page := captured(t, "picker-under-load.txt")
	another := strings.NewReplacer("tokens_per_second{endpoint=\"127.0.0.1:35559\",pod=\"model-0\",pool=\"ns/p\"} 12294.035472349953",
		"tokens_per_second{endpoint=\"127.0.0.1:35559\",pod=\"model-0\",pool=\"ns/p\"} 6147.0177361749765").Replace(page)
	another = strings.ReplaceAll(another, `pool="ns/p"}`, `pool="ns/p",role="decode"}`) // it is newer, and exports roles
	for _, honors := range []bool{false, true} {
		t.Run(fmt.Sprintf("honors labels %t", honors), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			one, two := picker("epp-0", func(time.Duration) string { return page }), picker("epp-1", func(time.Duration) string { return another })
			one.honors, two.honors = honors, honors
			again := one // scraped twice
			again.labels = maps.Clone(one.labels)
			again.labels["job"], again.labels["endpoint"] = "services", "another"
			w.scrape(pod("ns", "model-0", steady("m", 1, 0, 0)), pod("ns", "model-1", steady("m", 1, 0, 0)), one, two)
			g := group("m", []string{"model-0"}, []string{"model-1"})
			r := w.collect(g)[0]
			first, second := r.Variants[0].Sample.Picker, r.Variants[1].Sample.Picker
			require.NotNil(t, first)
			require.NotNil(t, second)
			assert.InDelta(t, 12294*2/3.0, first.PrefillRate, 1, "the mean of the times of both")
			assert.InDelta(t, 12116.58, second.PrefillRate, 0.01)
			assert.InDelta(t, 48, first.BatchCapacity, 0)

			w.scrape(again)
			r = w.collect(g)[0]
			assert.InDelta(t, 48, r.Variants[0].Sample.Picker.BatchCapacity, 0)
			assert.InDelta(t, 12116.58, r.Variants[1].Sample.Picker.PrefillRate, 0.01)
		})
	}
}

// TestRanksOfAPod: a pod with several endpoints runs the batches of all. One that has not shown its batch yet does not count as none.
func TestRanksOfAPod(t *testing.T) {
	t.Parallel()
	page := strings.ReplaceAll(captured(t, "picker-under-load.txt"), "model-1", "model-0")
	const capacity = "fairlead_picker_endpoint_batch_capacity{endpoint=\"127.0.0.1:45667\",pod=\"model-0\",pool=\"ns/p\"} "
	for text, want := range map[string]float64{capacity + "48": 96, capacity + "24": 72, "": 96} {
		for _, honors := range []bool{false, true} {
			w := newWorld(t)
			epp := picker("epp-0", func(time.Duration) string { return strings.Replace(page, capacity+"48", text, 1) })
			epp.honors = honors
			w.scrape(pod("ns", "model-0", steady("m", 1, 0, 0)), epp)
			s := w.collect(group("m", []string{"model-0"}))[0].Variants[0].Sample
			require.NotNil(t, s.Picker)
			assert.InDelta(t, want, s.Picker.BatchCapacity, 0, "%q, honors labels %t", text, honors)
			assert.InDelta(t, 12205, s.Picker.PrefillRate, 10, "that of one of them")
		}
	}
}
