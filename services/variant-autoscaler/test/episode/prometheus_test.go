package episode

import (
	"context"
	"strconv"
	"strings"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/promclient"
	"fairlead.dev/services/variant-autoscaler/test/modelserver"
)

// prometheus answers the query for a group's load as Prometheus would from the scrapes of vLLM servers. Its functions over time follow
// Prometheus: a rate needs two samples in the window, and is extrapolated to the ends of the window, but at most by half an interval
// where the series begins or ends in it.
type prometheus struct{ world *world }

const (
	rateWindow = 60.0
	lookback   = 300.0
)

// counters are the figures of collect that are rates.
var counters = map[string]func(p *modelserver.Page) float64{
	"finished":      func(p *modelserver.Page) float64 { return p.Finished },
	"input_tokens":  func(p *modelserver.Page) float64 { return p.Input },
	"inputs":        func(p *modelserver.Page) float64 { return p.Finished },
	"output_tokens": func(p *modelserver.Page) float64 { return p.Output },
	"outputs":       func(p *modelserver.Page) float64 { return p.Finished },
	"ttft_sum":      func(p *modelserver.Page) float64 { return p.TTFTSum },
	"ttft_count":    func(p *modelserver.Page) float64 { return p.TTFTCount },
	"itl_sum":       func(p *modelserver.Page) float64 { return p.ITLSum },
	"itl_count":     func(p *modelserver.Page) float64 { return p.ITLCount },
	"prefill_sum":   func(p *modelserver.Page) float64 { return p.Prefill },
	"prefill_count": func(p *modelserver.Page) float64 { return p.Finished },
	"cache_hits":    func(p *modelserver.Page) float64 { return p.Cached },
	"cache_lookups": func(p *modelserver.Page) float64 { return p.Input },
}

func (q *prometheus) Query(_ context.Context, expr string) ([]promclient.Series, error) {
	now := q.world.now
	if strings.Contains(expr, "increase(") {
		return q.retainedSeries(expr)
	}
	answer := append(q.pickerSeries(), promclient.Series{Labels: map[string]string{"figure": "clock"}, Value: now})
	for _, d := range q.world.deployments {
		for _, p := range d.pods {
			if p.gone <= now || len(p.scrapes) == 0 || p.scrapes[len(p.scrapes)-1].at <= now-lookback {
				continue
			}
			add := func(figure string, value float64) {
				answer = append(answer, promclient.Series{Labels: map[string]string{"figure": figure, "pod": p.name}, Value: value})
			}
			last := p.scrapes[len(p.scrapes)-1]
			add("sampled", last.at)
			add("running_now", last.page.Running)
			add("waiting_now", last.page.Waiting)
			answer = append(answer, promclient.Series{Labels: map[string]string{
				"figure": "cache_info", "pod": p.name, "num_gpu_blocks": strconv.Itoa(int(d.KV) / 16), "block_size": "16",
			}, Value: 1})
			window := scrapesAfter(p.scrapes, now-rateWindow)
			if len(window) == 0 {
				continue
			}
			add("running", meanGauge(window, func(p *modelserver.Page) float64 { return p.Running }))
			add("waiting", meanGauge(window, func(p *modelserver.Page) float64 { return p.Waiting }))
			add("kv_usage", meanGauge(window, func(p *modelserver.Page) float64 { return p.Usage }))
			if len(window) < 2 { // a rate needs two samples
				continue
			}
			add("running_growth", extrapolatedGrowth(window, now, func(p *modelserver.Page) float64 { return p.Running }, gauge))
			add("waiting_growth", extrapolatedGrowth(window, now, func(p *modelserver.Page) float64 { return p.Waiting }, gauge))
			for figure, value := range counters {
				if d.Role == "decode" && figure == "cache_hits" {
					continue // vLLM counts tokens of fetched KV caches elsewhere
				}
				add(figure, extrapolatedGrowth(window, now, value, counter)/rateWindow)
			}
		}
	}
	return answer, nil
}

// pickerSeries returns what a picker that holds requests shows, if there is one.
func (q *prometheus) pickerSeries() []promclient.Series {
	if q.world.Hold == 0 {
		return nil
	}
	const waited = 120
	most := 0
	for _, scraped := range q.world.queues {
		if scraped.at > q.world.now-waited {
			most = max(most, scraped.requests)
		}
	}
	series := func(figure string, value int) promclient.Series {
		return promclient.Series{Labels: map[string]string{"figure": figure}, Value: float64(value)}
	}
	last := q.world.queues[len(q.world.queues)-1].requests
	return []promclient.Series{series("picker", 1), series("queued", last), series("waited", most)}
}

// retainedSeries returns the requests of the retention period, of which the picker knows.
func (q *prometheus) retainedSeries(expr string) ([]promclient.Series, error) {
	_, after, _ := strings.Cut(expr, "increase(")
	_, after, _ = strings.Cut(after, "[")
	text, _, _ := strings.Cut(after, "]")
	period, err := time.ParseDuration(text)
	sent := 0
	for _, at := range q.world.picks {
		if at > q.world.now-period.Seconds() && at <= q.world.now {
			sent++
		}
	}
	return []promclient.Series{
		{Labels: map[string]string{"figure": "picker"}, Value: 1},
		{Labels: map[string]string{"figure": "picks", "pod": "any"}, Value: float64(sent)},
	}, err
}

// meanGauge returns the mean of a gauge.
func meanGauge(window []scrape, value func(p *modelserver.Page) float64) float64 {
	sum := 0.0
	for i := range window {
		sum += value(&window[i].page) / float64(len(window))
	}
	return sum
}

// scrapesAfter returns the scrapes after a time.
func scrapesAfter(scrapes []scrape, after float64) []scrape {
	i := 0
	for i < len(scrapes) && scrapes[i].at <= after {
		i++
	}
	return scrapes[i:]
}

// seriesKind says whether a series began at zero.
type seriesKind int

const (
	gauge seriesKind = iota
	counter
)

// extrapolatedGrowth returns the growth of a series in the window that ends now.
func extrapolatedGrowth(window []scrape, now float64, value func(p *modelserver.Page) float64, kind seriesKind) float64 {
	first, last := &window[0], &window[len(window)-1]
	growth, sampled := value(&last.page)-value(&first.page), last.at-first.at
	interval := sampled / float64(len(window)-1)
	start, end := first.at-(now-rateWindow), now-last.at
	const slack = 1.1
	if start >= interval*slack {
		start = interval / 2 // as Prometheus does
	}
	if begin := value(&first.page); kind == counter && growth > 0 && begin >= 0 {
		start = min(start, sampled*begin/growth)
	}
	if end >= interval*slack {
		end = interval / 2 // as Prometheus does
	}
	return growth * (sampled + start + end) / sampled
}
