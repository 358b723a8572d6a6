package chatload

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// maxExamples is the maximum number of failed requests in a report.
const maxExamples = 5

// Report summarizes a run.
type Report struct {
	Total    ServerReport
	Servers  []ServerReport // by name; the empty name is for requests without an answer
	Failures map[Class]int
	Examples []Result // the first few failures
	Canceled int      // requests that the caller canceled; the other numbers do not include them
	Elapsed  time.Duration
}

// ServerReport summarizes the requests that one server answered.
type ServerReport struct {
	Server       string
	Requests     int     // including failed requests
	Share        float64 // of all requests
	Failures     int
	Tokens       int
	PromptTokens int
	CachedTokens int
	TTFT         Quantiles // of requests that succeeded
	Latency      Quantiles // of requests that succeeded
}

// Quantiles are quantiles of durations: the smallest of the values that at least 50 % or 95 % of all values do not exceed.
type Quantiles struct {
	P50, P95 time.Duration
}

// Failed returns the number of failed requests.
func (r *Report) Failed() int { return r.Total.Failures }

// Server returns the report about one server. If the server answered no request, only the name is set.
func (r *Report) Server(name string) ServerReport {
	i := slices.IndexFunc(r.Servers, func(s ServerReport) bool { return s.Server == name })
	if i < 0 {
		return ServerReport{Server: name}
	}
	return r.Servers[i]
}

// A collector collects results.
type collector struct {
	servers  map[string]*samples
	failures map[Class]int
	examples []Result
	canceled int
}

type samples struct {
	report        ServerReport
	ttft, latency []time.Duration
}

func (c *collector) add(r Result) {
	if c.servers == nil {
		c.servers, c.failures = make(map[string]*samples), make(map[Class]int)
	}
	if r.Class == ClassCanceled {
		c.canceled++
		return
	}
	s := c.servers[r.ServedBy]
	if s == nil {
		s = &samples{report: ServerReport{Server: r.ServedBy}}
		c.servers[r.ServedBy] = s
	}
	s.report.Requests++
	s.report.Tokens += r.Tokens
	s.report.PromptTokens += r.PromptTokens
	s.report.CachedTokens += r.CachedTokens
	if r.Class == ClassNone {
		s.ttft, s.latency = append(s.ttft, r.TTFT), append(s.latency, r.Duration)
		return
	}
	s.report.Failures++
	c.failures[r.Class]++
	if len(c.examples) < maxExamples {
		c.examples = append(c.examples, r)
	}
}

func (c *collector) report(elapsed time.Duration) *Report {
	r := &Report{Failures: c.failures, Examples: c.examples, Canceled: c.canceled, Elapsed: elapsed}
	var total samples
	for _, name := range slices.Sorted(maps.Keys(c.servers)) {
		s := c.servers[name]
		total.merge(s)
		r.Servers = append(r.Servers, s.sum())
	}
	r.Total = total.sum()
	for i := range r.Servers {
		r.Servers[i].Share = float64(r.Servers[i].Requests) / float64(r.Total.Requests)
	}
	if r.Total.Requests > 0 {
		r.Total.Share = 1
	}
	return r
}

func (s *samples) merge(other *samples) {
	s.report.Requests += other.report.Requests
	s.report.Failures += other.report.Failures
	s.report.Tokens += other.report.Tokens
	s.report.PromptTokens += other.report.PromptTokens
	s.report.CachedTokens += other.report.CachedTokens
	s.ttft = append(s.ttft, other.ttft...)
	s.latency = append(s.latency, other.latency...)
}

func (s *samples) sum() ServerReport {
	s.report.TTFT, s.report.Latency = quantiles(s.ttft), quantiles(s.latency)
	return s.report
}

func quantiles(values []time.Duration) Quantiles {
	if len(values) == 0 {
		return Quantiles{}
	}
	slices.SortFunc(values, cmp.Compare[time.Duration])
	rank := func(q float64) time.Duration { return values[int(math.Ceil(q*float64(len(values))))-1] }
	return Quantiles{P50: rank(0.5), P95: rank(0.95)}
}
