package collect

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// labelFigure tells the figures of an answer apart: one query reads all of them, at one time.
const labelFigure = "figure"

// Figures of a query beside those of engines.
const (
	clock         = "clock" // of Prometheus
	sampled       = "sampled"
	lazy          = "lazy" // pods whose missing counters are zero
	runningNow    = "running_now"
	waitingNow    = "waiting_now"
	runningGrowth = "running_growth"
	waitingGrowth = "waiting_growth"
	cacheInfo     = "cache_info"

	pickerReady = "picker"
	picks       = "picks"
	attempts    = "attempts"
	oldAttempts = "old_attempts"
	refused     = "refused"
	queued      = "queued"
	waited      = "waited"
	perToken    = "per_token"
	slowdown    = "slowdown"
	owed        = "owed"
	tokenTime   = "token_time" // seconds
	backlog     = "backlog"
	batch       = "batch"

	first = "first_" // prefix: the first value of counters that are younger than the period
)

// stalePeriod is how far back metrics are looked for when they are missing, to tell a scrape that ended from one that never was. With
// half of it, one that ended half an hour ago is taken for the latter.
const stalePeriod = time.Hour

// selection has the selectors of a group.
type selection struct {
	namespace, pool, model string
	window                 time.Duration
	waited                 time.Duration // zero: not asked for
	// shared reports whether another group has the same namespace and model: only metrics that name the pool are its own then.
	shared bool
	// roles reports whether servers of the group prefill or decode for others.
	roles bool
}

// query collects expressions, each under the name of its figure.
type query []string

// add adds the first expression that has a result. Expressions for elements of the same pod are alternatives for each pod.
func (q *query) add(figure string, alternatives ...string) {
	*q = append(*q, fmt.Sprintf(`label_replace(%s, "%s", "%s", "", "")`, strings.Join(alternatives, " or "), labelFigure, figure))
}

func (q query) String() string { return strings.Join(q, "\nor ") }

// load returns the query for the load, the samples and the weights of a group. All results are of the window.
func (s *selection) load() string {
	var q query
	q.add(clock, "vector(time())")
	q.add(sampled, s.engines(running, `max by (pod) (timestamp(%s))`)...)
	q.add(runningNow, s.engines(running, s.sum("%s"))...)
	q.add(waitingNow, s.waits(s.sum("%s"))...)
	q.add(running, s.engines(running, s.sum(s.over("avg_over_time")))...)
	q.add(waiting, s.waits(s.sum(s.over("avg_over_time")))...)
	q.add(runningGrowth, s.engines(running, s.sum(s.over("delta")))...)
	q.add(waitingGrowth, s.engines(waiting, s.sum(s.over("delta")))...)
	q.add(kvUsage, s.engines(kvUsage, "avg by (pod) ("+s.over("avg_over_time")+")")...)
	q.add(kvTokens, s.engines(kvTokens, s.sum("%s"))...)
	for _, figure := range counted {
		q.add(figure, s.engines(figure, s.sum(s.over("rate")))...)
	}
	for i := range engines {
		if e := &engines[i]; e.lazy {
			q.add(lazy, "count by (pod) ("+s.of(e.metrics[running][0])+")")
		}
		if e := &engines[i]; e.info != "" {
			q.add(cacheInfo, fmt.Sprintf("max by (pod, engine, %s, %s, %s) (%s{namespace=%s} and on (pod) %s)", labelTokens, labelBlocks, labelBlockSize,
				e.info, strconv.Quote(s.namespace), s.of(e.metrics[running][0])))
		}
	}
	s.picker(&q)
	return q.String()
}

func (s *selection) picker(q *query) {
	q.add(pickerReady, s.pickers("")...)
	rate := s.over("rate")
	q.add(picks, fmt.Sprintf("sum by (pod, exported_pod) (max without (%s) (%s))", samePicker, fmt.Sprintf(rate, s.ofPool("fairlead_picker_endpoint_picks_total"))))
	q.add(attempts, fmt.Sprintf("sum by (endpoint_name) (max without (%s) (%s))", samePicker, fmt.Sprintf(rate, s.attempts(newAttempts))))
	q.add(oldAttempts, fmt.Sprintf("sum by (pod_name) (max without (%s) (%s))", samePicker, fmt.Sprintf(rate, s.attempts(legacyAttempts))))
	q.add(refused, s.refusals(rate)...)
	q.add(queued, s.queues("%s")...)
	if s.waited > 0 {
		q.add(waited, s.queues("max_over_time(%s["+promDuration(s.waited)+"])")...)
	}
	q.add(perToken, fmt.Sprintf("avg(%s)", s.ofPool("fairlead_picker_speed_per_token_seconds")))
	// Each picker learns on its own. Where a scrape honors labels, pod is the server's; else it is the picker's.
	q.add(slowdown,
		fmt.Sprintf("avg by (exported_pod) (%s)", s.ofPool("fairlead_picker_endpoint_wait_factor", `exported_pod!=""`)),
		fmt.Sprintf("avg by (pod) (%s)", s.ofPool("fairlead_picker_endpoint_wait_factor", `exported_pod=""`)))
	q.add(owed, fmt.Sprintf("sum by (pod, exported_pod) (max without (%s) (%s))", samePicker,
		fmt.Sprintf(s.over("avg_over_time"), s.ofPool("fairlead_picker_endpoint_prompt_tokens_owed"))))
	s.learned(q)
}

// learned adds what newer pickers say themselves about each server. A time is the mean of what the pickers learned. All of them see the
// same batches; the ranks of a pod add up, and those that have not shown a full batch yet count as the others.
func (s *selection) learned(q *query) {
	q.add(tokenTime, fmt.Sprintf("avg by (%s) (1 / %s)", ofPod, s.ofEndpoints("fairlead_picker_endpoint_prefill_tokens_per_second")))
	q.add(backlog, fmt.Sprintf("sum by (pod, exported_pod) (max without (%s) (%s))", samePicker,
		fmt.Sprintf(s.over("avg_over_time"), s.ofPool("fairlead_picker_endpoint_backlog_seconds"))))
	q.add(batch, fmt.Sprintf("avg by (%[1]s) (max by (%[1]s, %[2]s) (%[3]s)) * on (%[1]s) count by (%[1]s) (max by (%[1]s, %[2]s) (%[4]s))", ofPod, ofEndpoint,
		s.ofEndpoints("fairlead_picker_endpoint_batch_capacity"), s.ofEndpoints("fairlead_picker_endpoint_backlog_seconds")))
}

// Labels of ofEndpoints.
const (
	ofPod      = "fairlead_pod"
	ofEndpoint = "fairlead_endpoint"
)

// ofEndpoints selects a metric that the picker has of each endpoint, with its pod and address in labels of their own: a scrape that does
// not honor labels renames the picker's.
func (s *selection) ofEndpoints(metric string) string {
	selected := s.ofPool(metric)
	for _, label := range [][2]string{{ofPod, "pod"}, {ofPod, "exported_pod"}, {ofEndpoint, "endpoint"}, {ofEndpoint, "exported_endpoint"}} {
		selected = fmt.Sprintf(`label_replace(%s, "%s", "$1", "%s", "(.+)")`, selected, label[0], label[1])
	}
	return selected
}

// retained returns the query for the requests of a period. A counter that is younger than the period began with a value that increase
// does not count: it is added.
func (s *selection) retained(period time.Duration) string {
	var q query
	within := promDuration(period)
	increase := "increase(%s[" + within + "])"
	younger := "(min_over_time(%[1]s[" + within + "]) unless %[1]s offset " + within + ")"
	q.add(sampled, s.observed("count by (pod) (count_over_time(%s["+within+"]))")...)
	for _, part := range [][2]string{{"", increase}, {first, younger}} {
		prefix, count := part[0], part[1]
		q.add(prefix+finished, s.engines(finished, s.sum(count))...)
		q.add(prefix+picks, fmt.Sprintf("sum by (pod, exported_pod) (max without (%s) (%s))", samePicker,
			fmt.Sprintf(count, s.ofPool("fairlead_picker_endpoint_picks_total"))))
		q.add(prefix+attempts, fmt.Sprintf("sum by (endpoint_name) (max without (%s) (%s))", samePicker, fmt.Sprintf(count, s.attempts(newAttempts))))
		q.add(prefix+oldAttempts, fmt.Sprintf("sum by (pod_name) (max without (%s) (%s))", samePicker, fmt.Sprintf(count, s.attempts(legacyAttempts))))
		q.add(prefix+refused, s.refusals(count)...)
	}
	now, before := strings.Join(s.pickers(""), " or "), strings.Join(s.pickers(" offset "+within), " or ")
	q.add(pickerReady, fmt.Sprintf("((%s) and (%s))", now, before))
	return q.String()
}

// newest returns the query for the times of the newest metrics, when there are none now.
func (s *selection) newest() string {
	var q query
	q.add(clock, "vector(time())")
	q.add(sampled, s.engines(running, "max by (pod) (max_over_time(timestamp(%s)["+promDuration(stalePeriod)+":1m]))")...)
	return q.String()
}

// engines returns an expression for each name of a figure.
func (s *selection) engines(figure, format string) []string {
	var all []string
	for i := range engines {
		for _, name := range engines[i].metrics[figure] {
			all = append(all, fmt.Sprintf(format, s.of(name)))
		}
	}
	return all
}

// waits returns expressions for the requests that wait for a place in the batch. Where servers have roles, others wait for a KV cache: vLLM
// counts them as waiting, too, and SGLang does not count those for which a decode server has no room yet.
func (s *selection) waits(format string) []string {
	all := s.engines(waiting, format)
	if !s.roles {
		return all
	}
	of := func(metric string, more ...string) string { return fmt.Sprintf(format, s.of(metric, more...)) }
	return append([]string{
		of(vllmWaitingByReason, `reason="capacity"`),
		fmt.Sprintf("(%s - %s)", of(vllmWaiting), of(vllmFetching, `stage=~"waiting_to_start|in_progress"`)),
		fmt.Sprintf("(%s + %s)", of(sglangWaiting), of(sglangPreallocating)),
	}, all...)
}

// observed returns an expression for a series of each engine that is there even if no request ever finished.
func (s *selection) observed(format string) []string {
	var all []string
	for i := range engines {
		always := engines[i].metrics[finished][0]
		if engines[i].lazy {
			always = engines[i].metrics[running][0]
		}
		all = append(all, fmt.Sprintf(format, s.of(always)))
	}
	return all
}

// of selects a metric of the model's servers in the namespace.
func (s *selection) of(metric string, more ...string) string {
	matchers := append([]string{"namespace=" + strconv.Quote(s.namespace), "model_name=" + strconv.Quote(s.model)}, more...)
	return metric + "{" + strings.Join(matchers, ",") + "}"
}

// sum returns a format for the sum of the servers of each pod.
func (s *selection) sum(format string) string {
	return "sum by (pod) (max without (" + sameServer + ") (" + format + "))"
}

// over returns a format for a function over the window.
func (s *selection) over(function string) string {
	return function + "(%s[" + promDuration(s.window) + "])"
}

// Names of the picker's attempts. The older one calls the label with the pod pod_name.
const (
	newAttempts    = "llm_d_epp_scheduler_attempts_total"
	legacyAttempts = "inference_extension_scheduler_attempts_total"
)

// pickers returns expressions for the number of pickers of the pool. A picker runs in the namespace of its pool: endpointPickerRef
// names a Service there. So the picker of another namespace can claim nothing.
func (s *selection) pickers(offset string) []string {
	return []string{
		"count(" + s.ofPool("fairlead_picker_endpoints_ready") + offset + ")",
		"count(" + s.ofName("llm_d_epp_ready_endpoints") + offset + ")",
		"count(" + s.ofName("inference_pool_ready_pods") + offset + ")",
	}
}

// ofPool selects a metric of the endpoint picker's own, which names the pool with its namespace.
func (s *selection) ofPool(metric string, more ...string) string {
	matchers := append([]string{"namespace=" + strconv.Quote(s.namespace), "pool=" + strconv.Quote(s.namespace+"/"+s.pool)}, more...)
	return metric + "{" + strings.Join(matchers, ",") + "}"
}

func (s *selection) ofName(metric string) string {
	return fmt.Sprintf("%s{namespace=%s,name=%s}", metric, strconv.Quote(s.namespace), strconv.Quote(s.pool))
}

// attempts selects successful picks in the namespace. They name the pod, but neither the pool nor always the base model.
func (s *selection) attempts(metric string) string {
	return fmt.Sprintf(`%s{namespace=%s,exported_namespace=~%s,status="success"}`, metric, strconv.Quote(s.namespace), optional(s.namespace))
}

// refusals returns expressions for what a function makes of the requests that got no pod.
func (s *selection) refusals(format string) []string {
	pool := "pool=~" + optional(s.namespace+"/"+s.pool) // a picker of one pool does not name it
	if s.shared {
		pool = "pool=" + strconv.Quote(s.namespace+"/"+s.pool)
	}
	var all []string
	for _, metric := range []string{newAttempts, legacyAttempts} {
		selected := fmt.Sprintf(`%s{namespace=%s,target_model_name=%s,%s,status="failure"}`, metric, strconv.Quote(s.namespace), strconv.Quote(s.model), pool)
		all = append(all, fmt.Sprintf("sum(max without (%s) (%s))", samePicker, fmt.Sprintf(format, selected)))
	}
	return all
}

// queues returns expressions for what a function makes of the requests that wait in the picker.
func (s *selection) queues(format string) []string {
	pool := "inference_pool=~" + optional(s.pool)
	if s.shared {
		pool = "inference_pool=" + strconv.Quote(s.pool)
	}
	var all []string
	for _, metric := range []string{NewQueue, LegacyQueue} {
		target := fmt.Sprintf(`%s{namespace=%s,%s,target_model_name=%s}`, metric, strconv.Quote(s.namespace), pool, strconv.Quote(s.model))
		model := fmt.Sprintf(`%s{namespace=%s,%s,target_model_name="",model_name=%s}`, metric, strconv.Quote(s.namespace), pool, strconv.Quote(s.model))
		all = append(all, fmt.Sprintf("sum(max without (%s) (%s or %s))", samePicker, fmt.Sprintf(format, target), fmt.Sprintf(format, model)))
	}
	return all
}

// optional returns a regular expression for a label that is missing or has a value.
func optional(value string) string { return strconv.Quote("|" + regexp.QuoteMeta(value)) }

func promDuration(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }
