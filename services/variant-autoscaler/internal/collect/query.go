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
	tokenTime   = "token_time" // seconds
	backlog     = "backlog"    // newer pickers have it
	batch       = "batch"

	first = "first_" // prefix: the first value of counters that are younger than the period
)

// stalePeriod is how far back metrics are looked for when they are missing, to tell a scrape that ended from one that never was.
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

// addFigure adds the first expression that has a result. Expressions for elements of the same pod are alternatives for each pod.
func (q *query) addFigure(figure string, alternatives ...string) {
	*q = append(*q, fmt.Sprintf(`label_replace(%s, "%s", "%s", "", "")`, strings.Join(alternatives, " or "), labelFigure, figure))
}

func (q query) String() string { return strings.Join(q, "\nor ") }

// loadQuery returns the query for the load, the samples and the weights of a group. All results are of the window.
func (s *selection) loadQuery() string {
	var q query
	q.addFigure(clock, "vector(time())")
	q.addFigure(sampled, s.engineExprs(running, `max by (pod) (timestamp(%s))`)...)
	q.addFigure(runningNow, s.engineExprs(running, s.sumByPod("%s"))...)
	q.addFigure(waitingNow, s.waitingExprs(s.sumByPod("%s"))...)
	q.addFigure(running, s.engineExprs(running, s.sumByPod(s.overWindow("avg_over_time")))...)
	q.addFigure(waiting, s.waitingExprs(s.sumByPod(s.overWindow("avg_over_time")))...)
	q.addFigure(runningGrowth, s.engineExprs(running, s.sumByPod(s.overWindow("delta")))...)
	q.addFigure(waitingGrowth, s.engineExprs(waiting, s.sumByPod(s.overWindow("delta")))...)
	q.addFigure(kvUsage, s.engineExprs(kvUsage, "avg by (pod) ("+s.overWindow("avg_over_time")+")")...)
	q.addFigure(kvTokens, s.engineExprs(kvTokens, s.sumByPod("%s"))...)
	for _, figure := range counted {
		q.addFigure(figure, s.engineExprs(figure, s.sumByPod(s.overWindow("rate")))...)
	}
	for i := range engines {
		if e := &engines[i]; e.lazy {
			q.addFigure(lazy, "count by (pod) ("+s.selectServers(e.metrics[running][0])+")")
		}
		if e := &engines[i]; e.info != "" {
			q.addFigure(cacheInfo, fmt.Sprintf("max by (pod, engine, %s, %s, %s) (%s{namespace=%s} and on (pod) %s)", labelTokens, labelBlocks,
				labelBlockSize,
				e.info, strconv.Quote(s.namespace), s.selectServers(e.metrics[running][0])))
		}
	}
	s.addPicker(&q)
	return q.String()
}

func (s *selection) addPicker(q *query) {
	q.addFigure(pickerReady, s.pickerExprs("")...)
	s.addRequests(q, "", s.overWindow("rate"))
	q.addFigure(queued, s.queueExprs("%s")...)
	if s.waited > 0 {
		q.addFigure(waited, s.queueExprs("max_over_time(%s["+promDuration(s.waited)+"])")...)
	}
	q.addFigure(perToken, fmt.Sprintf("avg(%s)", s.selectPool("fairlead_picker_speed_per_token_seconds")))
	// Each picker learns on its own. Where a scrape honors labels, pod is the server's; else it is the picker's.
	q.addFigure(slowdown,
		fmt.Sprintf("avg by (exported_pod) (%s)", s.selectPool("fairlead_picker_endpoint_wait_factor", `exported_pod!=""`)),
		fmt.Sprintf("avg by (pod) (%s)", s.selectPool("fairlead_picker_endpoint_wait_factor", `exported_pod=""`)))
	s.addLearned(q)
}

// byServer are the labels of the pod of a server: where a scrape does not honor labels, it renames the picker's.
const byServer = "pod, exported_pod"

// addRequests adds the requests that pickers sent to each pod, or refused, counted by a function.
func (s *selection) addRequests(q *query, prefix, count string) {
	q.addFigure(prefix+picks, sumPickers(byServer, count, s.selectPool("fairlead_picker_endpoint_picks_total")))
	q.addFigure(prefix+attempts, sumPickers("endpoint_name", count, s.selectAttempts(newAttempts)))
	q.addFigure(prefix+oldAttempts, sumPickers("pod_name", count, s.selectAttempts(legacyAttempts)))
	q.addFigure(prefix+refused, s.refusalExprs(count)...)
}

// sumPickers returns an expression that applies a function to a metric of pickers, and adds up their values by some labels.
func sumPickers(by, format, metric string) string {
	return fmt.Sprintf("sum by (%s) (max without (%s) (%s))", by, samePicker, fmt.Sprintf(format, metric))
}

// addLearned adds what newer pickers learned about each server. A time is the mean of what the pickers learned. All of them see the
// same batches; the ranks of a pod add up, and those that have not shown a full batch yet count as the others.
func (s *selection) addLearned(q *query) {
	q.addFigure(tokenTime, fmt.Sprintf("avg by (%s) (1 / %s)", ofPod, s.selectEndpoints("fairlead_picker_endpoint_prefill_tokens_per_second")))
	q.addFigure(backlog, sumPickers(byServer, s.overWindow("avg_over_time"), s.selectPool("fairlead_picker_endpoint_backlog_seconds")))
	q.addFigure(batch, fmt.Sprintf("avg by (%[1]s) (max by (%[1]s, %[2]s) (%[3]s)) * on (%[1]s) count by (%[1]s) (max by (%[1]s, %[2]s) (%[4]s))", ofPod, ofEndpoint,
		s.selectEndpoints("fairlead_picker_endpoint_batch_capacity"), s.selectEndpoints("fairlead_picker_endpoint_backlog_seconds")))
}

// Labels that selectEndpoints adds.
const (
	ofPod      = "fairlead_pod"
	ofEndpoint = "fairlead_endpoint"
)

// selectEndpoints selects a metric that the picker has of each endpoint, with its pod and address in labels of their own: a scrape that
// does not honor labels renames the picker's.
func (s *selection) selectEndpoints(metric string) string {
	selected := s.selectPool(metric)
	for _, label := range [][2]string{
		{ofPod, "pod"}, {ofPod, "exported_pod"}, {ofEndpoint, "endpoint"}, {ofEndpoint, "exported_endpoint"},
	} {
		selected = fmt.Sprintf(`label_replace(%s, "%s", "$1", "%s", "(.+)")`, selected, label[0], label[1])
	}
	return selected
}

// retentionQuery returns the query for the requests of a period. A counter that is younger than the period began with a value that increase
// does not count: it is added.
func (s *selection) retentionQuery(period time.Duration) string {
	var q query
	within := promDuration(period)
	increase := "increase(%s[" + within + "])"
	younger := "(min_over_time(%[1]s[" + within + "]) unless %[1]s offset " + within + ")"
	q.addFigure(sampled, s.observedExprs("count by (pod) (count_over_time(%s["+within+"]))")...)
	for _, part := range [][2]string{{"", increase}, {first, younger}} {
		prefix, count := part[0], part[1]
		q.addFigure(prefix+finished, s.engineExprs(finished, s.sumByPod(count))...)
		s.addRequests(&q, prefix, count)
	}
	now, before := strings.Join(s.pickerExprs(""), " or "), strings.Join(s.pickerExprs(" offset "+within), " or ")
	q.addFigure(pickerReady, fmt.Sprintf("((%s) and (%s))", now, before))
	return q.String()
}

// newestQuery returns the query for the times of the newest metrics, when there are none now.
func (s *selection) newestQuery() string {
	var q query
	q.addFigure(clock, "vector(time())")
	q.addFigure(sampled, s.engineExprs(running, "max by (pod) (max_over_time(timestamp(%s)["+promDuration(stalePeriod)+":1m]))")...)
	return q.String()
}

// engineExprs returns an expression for each name of a figure.
func (s *selection) engineExprs(figure, format string) []string {
	var exprs []string
	for i := range engines {
		for _, name := range engines[i].metrics[figure] {
			exprs = append(exprs, fmt.Sprintf(format, s.selectServers(name)))
		}
	}
	return exprs
}

// waitingExprs returns expressions for the requests that wait for a place in the batch. Where servers have roles, others wait for a KV
// cache: vLLM counts them as waiting, too, and SGLang does not count those for which a decode server has no room yet.
func (s *selection) waitingExprs(format string) []string {
	exprs := s.engineExprs(waiting, format)
	if !s.roles {
		return exprs
	}
	waitingExpr := func(metric string, more ...string) string {
		return fmt.Sprintf(format, s.selectServers(metric, more...))
	}
	return append([]string{
		waitingExpr(vllmWaitingByReason, `reason="capacity"`),
		fmt.Sprintf("(%s - %s)", waitingExpr(vllmWaiting), waitingExpr(vllmFetching, `stage=~"waiting_to_start|in_progress"`)),
		fmt.Sprintf("(%s + %s)", waitingExpr(sglangWaiting), waitingExpr(sglangPreallocating)),
	}, exprs...)
}

// observedExprs returns, for each engine, an expression for a series that exists even if no request ever finished.
func (s *selection) observedExprs(format string) []string {
	var exprs []string
	for i := range engines {
		always := engines[i].metrics[finished][0]
		if engines[i].lazy {
			always = engines[i].metrics[running][0]
		}
		exprs = append(exprs, fmt.Sprintf(format, s.selectServers(always)))
	}
	return exprs
}

// selectServers selects a metric of the model's servers in the namespace.
func (s *selection) selectServers(metric string, more ...string) string {
	matchers := append([]string{"namespace=" + strconv.Quote(s.namespace), "model_name=" + strconv.Quote(s.model)}, more...)
	return metric + "{" + strings.Join(matchers, ",") + "}"
}

// sumByPod returns a format for the sum of the servers of each pod.
func (s *selection) sumByPod(format string) string {
	return "sum by (pod) (max without (" + sameServer + ") (" + format + "))"
}

// overWindow returns a format for a function over the window.
func (s *selection) overWindow(function string) string {
	return function + "(%s[" + promDuration(s.window) + "])"
}

// Names of the picker's attempts. The older one calls the label with the pod pod_name.
const (
	newAttempts    = "llm_d_epp_scheduler_attempts_total"
	legacyAttempts = "inference_extension_scheduler_attempts_total"
)

// pickerExprs returns expressions for the number of pickers of the pool. A picker runs in the namespace of its pool: endpointPickerRef
// names a Service there. So the picker of another namespace can claim nothing.
func (s *selection) pickerExprs(offset string) []string {
	return []string{
		"count(" + s.selectPool("fairlead_picker_endpoints_ready") + offset + ")",
		"count(" + s.selectPoolName("llm_d_epp_ready_endpoints") + offset + ")",
		"count(" + s.selectPoolName("inference_pool_ready_pods") + offset + ")",
	}
}

// selectPool selects a metric of the endpoint picker's own, which names the pool with its namespace.
func (s *selection) selectPool(metric string, more ...string) string {
	matchers := append([]string{"namespace=" + strconv.Quote(s.namespace), "pool=" + strconv.Quote(s.namespace+"/"+s.pool)}, more...)
	return metric + "{" + strings.Join(matchers, ",") + "}"
}

func (s *selection) selectPoolName(metric string) string {
	return fmt.Sprintf("%s{namespace=%s,name=%s}", metric, strconv.Quote(s.namespace), strconv.Quote(s.pool))
}

// selectAttempts selects successful picks in the namespace. They name the pod, but neither the pool nor always the base model.
func (s *selection) selectAttempts(metric string) string {
	return fmt.Sprintf(`%s{namespace=%s,exported_namespace=~%s,status="success"}`, metric, strconv.Quote(s.namespace),
		optionalMatcher(s.namespace))
}

// refusalExprs returns expressions that apply a function to the requests that got no pod.
func (s *selection) refusalExprs(format string) []string {
	pool := s.poolMatcher("pool", s.namespace+"/"+s.pool)
	var exprs []string
	for _, metric := range []string{newAttempts, legacyAttempts} {
		selected := fmt.Sprintf(`%s{namespace=%s,target_model_name=%s,%s,status="failure"}`, metric, strconv.Quote(s.namespace),
			strconv.Quote(s.model), pool)
		exprs = append(exprs, fmt.Sprintf("sum(max without (%s) (%s))", samePicker, fmt.Sprintf(format, selected)))
	}
	return exprs
}

// queueExprs returns expressions that apply a function to the requests that wait in the picker.
func (s *selection) queueExprs(format string) []string {
	pool := s.poolMatcher("inference_pool", s.pool)
	var exprs []string
	for _, metric := range []string{NewQueue, LegacyQueue} {
		target := fmt.Sprintf(`%s{namespace=%s,%s,target_model_name=%s}`, metric, strconv.Quote(s.namespace), pool, strconv.Quote(s.model))
		model := fmt.Sprintf(`%s{namespace=%s,%s,target_model_name="",model_name=%s}`, metric, strconv.Quote(s.namespace), pool,
			strconv.Quote(s.model))
		exprs = append(exprs,
			fmt.Sprintf("sum(max without (%s) (%s or %s))", samePicker, fmt.Sprintf(format, target), fmt.Sprintf(format, model)))
	}
	return exprs
}

// poolMatcher returns a matcher of the pool. A picker of one pool does not name it.
func (s *selection) poolMatcher(label, pool string) string {
	if s.shared {
		return label + "=" + strconv.Quote(pool)
	}
	return label + "=~" + optionalMatcher(pool)
}

// optionalMatcher returns a regular expression for a label that is missing or has a value.
func optionalMatcher(value string) string { return strconv.Quote("|" + regexp.QuoteMeta(value)) }

func promDuration(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }
