//go:build system

// Package promql tests the collector's queries with Prometheus' own storage and engine, on pages of model servers and pickers. It is a
// module of its own, so that the service does not depend on Prometheus.
package promql

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/teststorage"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"fairlead.dev/services/variant-autoscaler/internal/collect"
	"fairlead.dev/services/variant-autoscaler/internal/promclient"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// interval is the time between two scrapes.
const interval = 15 * time.Second

// present is when queries are evaluated, a moment after a scrape.
var present = time.Date(2026, 11, 23, 12, 0, 1, 0, time.UTC)

// world is what a Prometheus scraped.
type world struct {
	t       *testing.T
	samples []scraped
}

type scraped struct {
	labels labels.Labels
	at     time.Time
	value  float64
}

// target is a page that is scraped, with the labels that its scrape adds.
type target struct {
	labels map[string]string
	honors bool // the labels of the page win over those of the scrape
	// page returns the page of a time before the present, or none.
	page func(ago time.Duration) string
	// From and until, before the present.
	from, until time.Duration
	// gone writes what Prometheus does when a target is no longer discovered: its series end at once.
	gone bool
}

func newWorld(t *testing.T) *world { return &world{t: t} }

// pod returns the target of a pod in a namespace that is scraped for the last ten minutes.
func pod(namespace, name string, page func(ago time.Duration) string) target {
	return target{
		labels: map[string]string{"namespace": namespace, "pod": name, "job": "models", "endpoint": "http", "container": "server", "instance": name + ":8000"},
		page:   page, from: 10 * time.Minute,
	}
}

// scrape adds the pages of a target.
func (w *world) scrape(targets ...target) {
	w.t.Helper()
	for _, target := range targets {
		last := map[string]scraped{}
		ago := target.from + time.Second
		for ; ago > target.until; ago -= interval {
			for _, s := range w.parse(&target, target.page(ago)) {
				s.at = present.Add(-ago)
				w.samples = append(w.samples, s)
				last[s.labels.String()] = s
			}
		}
		if target.gone {
			for _, s := range last {
				s.at, s.value = present.Add(-ago), stale()
				w.samples = append(w.samples, s)
			}
		}
	}
}

func stale() float64 { return float64FromBits(value.StaleNaN) }

// parse returns the series of a page as a scrape would label them.
func (w *world) parse(t *target, page string) []scraped {
	w.t.Helper()
	p := textparse.NewPromParser([]byte(page), labels.NewSymbolTable(), false)
	var all []scraped
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(w.t, err)
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, v := p.Series()
		var own labels.Labels
		p.Labels(&own)
		b := labels.NewBuilder(own)
		for name, text := range t.labels {
			existing := own.Get(name)
			switch {
			case existing == "":
				b.Set(name, text)
			case !t.honors:
				b.Set(name, text).Set("exported_"+name, existing)
			}
		}
		all = append(all, scraped{labels: b.Labels(), value: v})
	}
}

// start serves the API of a Prometheus with the samples.
func (w *world) start() *promclient.Client {
	w.t.Helper()
	slices.SortStableFunc(w.samples, func(a, b scraped) int { return a.at.Compare(b.at) })
	storage := teststorage.New(w.t)
	appender := storage.Appender(w.t.Context())
	for _, s := range w.samples {
		_, err := appender.Append(0, s.labels, timestamp.FromTime(s.at), s.value)
		require.NoError(w.t, err)
	}
	require.NoError(w.t, appender.Commit())
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1e7, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{}), EnableAtModifier: true, EnableNegativeOffset: true,
	})
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		query, err := engine.NewInstantQuery(r.Context(), storage, nil, r.PostFormValue("query"), present)
		if err != nil {
			out.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(out, `{"status":"error","errorType":"bad_data","error":%q}`, err)
			return
		}
		defer query.Close()
		result := query.Exec(r.Context())
		vector, err := result.Vector()
		if err != nil {
			out.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprintf(out, `{"status":"error","errorType":"execution","error":%q}`, err)
			return
		}
		_ = json.NewEncoder(out).Encode(answer(vector))
	}))
	w.t.Cleanup(server.Close)
	client, err := promclient.New(promclient.Config{Prometheus: settings.Prometheus{BaseURL: server.URL}, Timeout: time.Minute}, zap.NewNop())
	require.NoError(w.t, err)
	w.t.Cleanup(client.Close)
	return client
}

func answer(vector promql.Vector) map[string]any {
	result := []map[string]any{}
	for _, s := range vector {
		result = append(result, map[string]any{"metric": s.Metric.Map(), "value": []any{float64(s.T) / 1000, strconv.FormatFloat(s.F, 'f', -1, 64)}})
	}
	return map[string]any{"status": "success", "data": map[string]any{"resultType": "vector", "result": result}}
}

// collect returns the results of groups.
func (w *world) collect(groups ...collect.Group) []collect.Result {
	w.t.Helper()
	return collect.New(w.start(), collect.Options{}).Collect(w.t.Context(), present, groups)
}

// group returns a group of namespace ns and pool p whose pods have been ready for ten minutes, one variant for each list of pods.
func group(model string, variants ...[]string) collect.Group {
	g := collect.Group{Namespace: "ns", Pool: "p", Model: model}
	for i, pods := range variants {
		v := collect.Variant{Name: "v" + strconv.Itoa(i)}
		for _, name := range pods {
			v.Pods = append(v.Pods, snapshot.Pod{Name: name, Ready: present.Add(-10 * time.Minute)})
		}
		g.Variants = append(g.Variants, v)
	}
	return g
}

// numbers are what a model server has done and does. Each request has 100 tokens in and 50 out, a TTFT of 0.2 s, of which 0.1 s is
// prefill, and an ITL of 10 ms.
type numbers struct {
	finished, running, waiting float64
}

// vllm returns a page of vLLM.
func vllm(model string, n numbers) string {
	text := ""
	line := func(name string, v float64, more ...string) {
		text += "vllm:" + name + `{engine="0",model_name=` + strconv.Quote(model)
		for _, l := range more {
			text += "," + l
		}
		text += "} " + strconv.FormatFloat(v, 'g', -1, 64) + "\n"
	}
	line("num_requests_running", n.running)
	line("num_requests_waiting", n.waiting)
	line("kv_cache_usage_perc", 0.5)
	line("request_success_total", n.finished/4, `finished_reason="stop"`)
	line("request_success_total", n.finished*3/4, `finished_reason="length"`)
	line("request_success_total", 0, `finished_reason="abort"`)
	for name, each := range map[string]float64{
		"request_prompt_tokens": 100, "request_generation_tokens": 50, "time_to_first_token_seconds": 0.2, "request_prefill_time_seconds": 0.1,
	} {
		line(name+"_sum", n.finished*each)
		line(name+"_count", n.finished)
	}
	line("inter_token_latency_seconds_sum", n.finished*49*0.01)
	line("inter_token_latency_seconds_count", n.finished*49)
	line("prefix_cache_queries_total", n.finished*100)
	line("prefix_cache_hits_total", n.finished*25)
	return text + `vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="1000"} 1` + "\n"
}

// steady returns pages of a server that finishes requests at a rate, and has some of them.
func steady(model string, rate, running, waiting float64) func(ago time.Duration) string {
	return func(ago time.Duration) string {
		return vllm(model, numbers{finished: rate * (time.Hour - ago).Seconds(), running: running, waiting: waiting})
	}
}

// captured returns a page of a real server.
func captured(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return string(text)
}
