// Package snapshot holds all that a pass decides on, as one value: the variants of all models, their loads, and the settings in force. It
// is JSON, so that a decision can be explained and replayed without a cluster. Package decision turns a snapshot into replicas, and
// reads nothing else.
//
// Rates are whole micro-requests per second, costs whole micro-units per replica and hour, times of targets milliseconds.
package snapshot

import (
	"cmp"
	"slices"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/queueing"
)

// Snapshot is the input of one pass.
type Snapshot struct {
	Time     time.Time `json:"time"`
	Settings Settings  `json:"settings"`
	Limits   []Limit   `json:"limits,omitempty"`
	// Nodes are the sets of nodes that pods of variants can use. None: the limiter is off.
	Nodes []NodeSet `json:"nodes,omitempty"`
	// Quotas are the quotas of Kueue for the pods of variants. The quota of a Cohort comes before the quotas of its members.
	Quotas []Quota `json:"quotas,omitempty"`
	Groups []Group `json:"groups"`
}

// ModelGroups returns the groups of the model of a group: from first to before end. A model without roles has one.
func (s *Snapshot) ModelGroups(group int) (first, end int) {
	g := &s.Groups[group]
	for first = group; first > 0 && s.Groups[first-1].ModelKey() == g.ModelKey(); first-- {
	}
	for end = group + 1; end < len(s.Groups) && s.Groups[end].ModelKey() == g.ModelKey(); end++ {
	}
	return first, end
}

// Settings apply to all groups.
type Settings struct {
	// Split is how the picker divides the load of a group: capacity, equal or observed.
	Split           string `json:"split"`
	HeadroomPercent int64  `json:"headroomPercent"`
	// SavingPercent is the least saving for which a plan replaces the present replicas.
	SavingPercent int64 `json:"savingPercent"`
	// Percentile of TTFT that the targets are for. Zero: the mean.
	Percentile float64 `json:"percentile"`
	// Trials permits a first replica of a cheaper variant, to see what it serves.
	Trials bool `json:"trials,omitempty"`
}

// Unit is what a limit counts.
type Unit string

// Units of limits.
const (
	Cards    Unit = "cards"
	Replicas Unit = "replicas"
	Cost     Unit = "cost" // micro-units per hour
)

// Limit is an amount that the matching variants may take together. Empty fields match all.
type Limit struct {
	Name        string `json:"name"` // for people
	Unit        Unit   `json:"unit"`
	Accelerator string `json:"accelerator,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Priority    int    `json:"priority,omitempty"`
	Amount      int64  `json:"amount"`
}

// ScopeKey returns what the limit limits: the limit without its name and amount.
func (l Limit) ScopeKey() Limit {
	l.Name, l.Amount = "", 0
	return l
}

// CountsVariant reports whether the limit counts a variant of a group with a priority.
func (l *Limit) CountsVariant(v *Variant, priority int) bool {
	return (l.Accelerator == "" || l.Accelerator == v.Accelerator) && (l.Namespace == "" || l.Namespace == v.Namespace) &&
		(l.Priority == 0 || l.Priority == priority)
}

// Group is the variants that share one load: those of a model behind one InferencePool that have one role. The groups of the roles of a
// model are next to each other in a snapshot.
type Group struct {
	Namespace string `json:"namespace"`
	Pool      string `json:"pool"`
	Model     string `json:"model"`
	Role      Role   `json:"role,omitempty"`
	// PrefillRatio bounds the prefill replicas for each decode replica of the model.
	PrefillRatio Ratio `json:"prefillRatio,omitzero"`

	Class    string  `json:"class,omitempty"` // service class; empty: none has the model
	Priority int     `json:"priority"`        // 1 is the most important
	Targets  Targets `json:"targets"`
	// Note is what the owners of the variants should know of the class, or why there is none.
	Note string `json:"note,omitempty"`
	Load Load   `json:"load"`
	// Saturation has the thresholds of the administrator. It is nil without a ConfigMap of them.
	Saturation *Thresholds `json:"saturation,omitempty"`
	Zero       Zero        `json:"zero"`
	// Forecast is a rate that the group is expected to get before a new replica would serve. It can only raise the demand.
	Forecast int64     `json:"forecast,omitempty"`
	Variants []Variant `json:"variants"`
}

// IsActive reports whether a variant of the group takes part in the choice. The load of other groups is of no use.
func (g *Group) IsActive() bool {
	return slices.ContainsFunc(g.Variants, func(v Variant) bool { return v.Problem == nil })
}

// Role is the part of requests that servers compute.
type Role string

// Roles.
const (
	Aggregated Role = ""        // all of a request
	Prefill    Role = "prefill" // the prompt and its token, for a decode server
	Decode     Role = "decode"  // the other tokens, after a prefill server
)

// MostPrefillOutput is the mean of the tokens that servers with the role prefill may generate for a request. A prefill generates one.
const MostPrefillOutput = 8

// Ratio has bounds of a ratio. Zero: no bound.
type Ratio struct {
	Min float64 `json:"min,omitempty"`
	Max float64 `json:"max,omitempty"`
}

// Targets of a group, in milliseconds. Zero: no target.
type Targets struct {
	// TTFT is the target for a prompt of the mean length of the load.
	TTFT float64 `json:"ttftMs,omitempty"`
	ITL  float64 `json:"itlMs,omitempty"`
	// TTFTPerToken is the part of TTFT for each prompt token that no prefix cache has.
	TTFTPerToken float64 `json:"ttftMsPerToken,omitempty"`
}

// IsSet reports whether there is a target.
func (t Targets) IsSet() bool { return t.TTFT > 0 || t.ITL > 0 }

// ForLoad returns the targets for the prompts of a load. TTFT of t is without the part for tokens.
func (t Targets) ForLoad(l *Load) Targets {
	t.TTFT += t.TTFTPerToken * l.UncachedInput()
	return t
}

// prefillPart is the part of a target for TTFT in which the prompt must be computed. The rest is for the transfer of the KV cache and the
// first step of the decode server. With 0.5, a group whose prompts take half of the target needs twice the prefill servers. With 1, each
// first token would miss the target by the transfer.
const prefillPart = 0.75

// ForRole returns the targets of the servers with a role.
func (t Targets) ForRole(r Role) Targets {
	if r == Prefill {
		t.TTFT *= prefillPart
		t.TTFTPerToken *= prefillPart
		t.ITL = 0
	}
	return t
}

// Thresholds say when servers without a profile count as saturated, and how many must be left that are not.
type Thresholds struct {
	KVCache     float64 `json:"kvCacheThreshold"`     // part of the KV cache in use from which a server is saturated
	QueueLength float64 `json:"queueLengthThreshold"` // waiting requests from which it is
	// KVSpare and QueueSpare are what the servers that are not saturated must have left of these on average.
	KVSpare    float64 `json:"kvSpareTrigger"`
	QueueSpare float64 `json:"queueSpareTrigger"`
}

// LoadState tells whether the load of a group is known.
type LoadState string

// States of a load. They are reasons of the condition MetricsAvailable.
const (
	Found   LoadState = "MetricsFound"
	Missing LoadState = "MetricsMissing" // no series
	Stale   LoadState = "MetricsStale"   // the newest sample is too old
	Failed  LoadState = "PrometheusError"
)

// Load is the traffic of a group.
type Load struct {
	State   LoadState `json:"state"`
	Message string    `json:"message,omitempty"` // why the load is not known, and what to do

	Rate int64 `json:"rate"` // of arrivals, whether they are served or not: the mean of the last ones that differ by no more than chance
	// Recent is the rate of the last window alone. Zero: Rate is.
	Recent int64   `json:"recent,omitempty"`
	Input  float64 `json:"inputTokens"`
	Output float64 `json:"outputTokens"`
	// Cached is the part of the input tokens that a prefix cache had. Zero: none, or not known.
	Cached float64 `json:"cached,omitempty"`
	// Queued requests wait in the picker, for a model without replicas for example.
	Queued float64 `json:"queued,omitempty"`
	// Waiting requests wait in the servers for a place in the batch.
	Waiting float64 `json:"waiting,omitempty"`
	// TTFT and ITL are what requests got on average, in milliseconds. Zero: not known.
	TTFT float64 `json:"ttftMs,omitempty"`
	ITL  float64 `json:"itlMs,omitempty"`
}

// UncachedInput returns the prompt tokens of a request that no prefix cache has.
func (l *Load) UncachedInput() float64 { return l.Input * (1 - l.Cached) }

// Zero is what decides whether a group may have no replicas.
type Zero struct {
	Enabled   bool          `json:"enabled"`
	Retention time.Duration `json:"retention"`
	// Requests of the last retention period. Nil: not known, which is never none; RequestsMessage says why.
	Requests        *float64 `json:"requests,omitempty"`
	RequestsMessage string   `json:"requestsMessage,omitempty"`
	// Changed is when the replicas of the group last changed.
	Changed time.Time `json:"changed"`
	// ServesSince is since when a replica has been ready, of those that are. Zero: none is.
	ServesSince time.Time `json:"servesSince,omitzero"`
	// StartsSince is since when there have been replicas, or some were decided, of which none is ready, or further ones were decided. Zero:
	// there are none, or one is.
	StartsSince time.Time `json:"startsSince,omitzero"`
	// Watched reports whether something sees requests that wait while no replica is ready.
	Watched bool `json:"watched,omitempty"`
	// Waiting is the most requests that waited at a time since the pass before the last one: one that came and went counts, too.
	Waiting float64 `json:"waiting,omitempty"`
	// Standby is the variant that starts first by the last decision.
	Standby string `json:"standby,omitempty"`
	// WaitingCost is what an hour costs in which requests wait for the model to wake. Zero: it is not compared with the price of a replica.
	WaitingCost int64 `json:"waitingCost,omitempty"`
	// WakeUps is how many times per hour a request came after a retention period without any. Zero: too little was seen to say.
	WakeUps float64 `json:"wakeUpsPerHour,omitempty"`
}

// Variant is one way to serve the model of its group: a workload that can be scaled.
type Variant struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"` // unique in the namespace
	// ObjectName is the name of the object that declares the variant, if it has another one.
	ObjectName string `json:"object,omitempty"`
	Source     Source `json:"source"`
	Target     Target `json:"target"`

	Accelerator string `json:"accelerator"`
	Cards       int64  `json:"cards"` // of a replica
	// Pods are the pods of the variant that request cards. Nil: nodes do not limit the variant.
	Pods       *Pods  `json:"pods,omitempty"`
	Cost       int64  `json:"cost"` // of a replica
	CostSource string `json:"costSource"`

	Min      int        `json:"min"`
	Max      int        `json:"max"` // 0: no maximum
	Schedule []Schedule `json:"schedule,omitempty"`

	Now      int `json:"now"`   // replicas that the target's spec asks for
	Ready    int `json:"ready"` // replicas that serve
	Previous int `json:"previous"`
	// Decided reports whether Previous is a decision.
	Decided bool `json:"decided"`
	// Held is how many replicas stabilization keeps: see package memory.
	Held   int           `json:"held"`
	Weight int64         `json:"weight,omitempty"` // load that a ready replica was seen to get; 0: not seen
	Start  time.Duration `json:"start,omitempty"`  // from the creation of a pod to its first token; 0: not known

	Profile  *Profile  `json:"profile,omitempty"`
	Measured *Measured `json:"measured,omitempty"`
	// Stable is what Measured would be without targets. It is set where Measured serves nothing within them.
	Stable *Measured `json:"stable,omitempty"`
	// Spare is set where the group has thresholds and the variant no profile, and servers were seen.
	Spare *Spare `json:"spare,omitempty"`
	// Tried is when a trial of the variant began. Zero: there was none. Trying reports whether it goes on.
	Tried  time.Time `json:"tried,omitzero"`
	Trying bool      `json:"trying,omitempty"`
	// Problem excludes the variant from the choice: it keeps its previous replicas.
	Problem *Problem `json:"problem,omitempty"`
}

// SetProblem gives the variant a problem, if it has none.
func (v *Variant) SetProblem(p *Problem) {
	v.Problem = cmp.Or(v.Problem, p)
}

// Spare is what the servers of a variant show of their saturation.
type Spare struct {
	Seen int `json:"seen"` // servers with metrics
	Free int `json:"free"` // of these, those that are not saturated
	// KV and Queue are what the free ones have in use of the KV cache, and waiting, on average.
	KV    float64 `json:"kvUsage"`
	Queue float64 `json:"waiting"`
}

// Source is the kind of object that declares a variant.
type Source string

// Sources.
const (
	VariantAutoscaling      Source = "VariantAutoscaling"
	HorizontalPodAutoscaler Source = "HorizontalPodAutoscaler"
	ScaledObject            Source = "ScaledObject"
)

// Target is the workload of a variant, in its namespace.
type Target struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

// Schedule replaces bounds for a time: from each time of a cron expression, for a duration.
type Schedule struct {
	Cron     string        `json:"cron"`
	TimeZone string        `json:"timeZone"`
	Duration time.Duration `json:"duration"`
	Min      *int          `json:"min,omitempty"`
	Max      *int          `json:"max,omitempty"`
}

// Bounds are the least and the most replicas of a variant. A maximum of 0 means none.
type Bounds struct{ Min, Max int }

// BoundsOf returns the bounds while an entry of the schedule is in force, or without one.
func (v *Variant) BoundsOf(s *Schedule) Bounds {
	s = cmp.Or(s, &Schedule{})
	return Bounds{Min: *cmp.Or(s.Min, &v.Min), Max: *cmp.Or(s.Max, &v.Max)}
}

// Profile holds the service times of a replica.
type Profile = queueing.Profile

// Measured is what the servers of a variant were seen to serve.
type Measured struct {
	// Profile is what explains the figures of the servers best. Nil: they do not suffice for one.
	Profile *Profile `json:"profile,omitempty"`
	// Proven is the largest rate that a replica was seen to serve within the targets, of requests with these tokens.
	Proven int64   `json:"proven"`
	Input  float64 `json:"inputTokens"`
	Output float64 `json:"outputTokens"`
	// Limit is the largest rate that the profile is trusted with: replicas were not seen at larger batches.
	Limit int64 `json:"limit"`
	// Tail is the ratio of the time to the first token at the percentile to its mean, near the targets, without the wait for a slot.
	// The profile has the mean. 0 is 1.
	Tail float64 `json:"tail"`
	// Error is how far the profile is from the figures that it explains, as a part of them.
	Error   float64 `json:"error"`
	Samples int     `json:"samples"`
	Source  string  `json:"source"` // picker or engine
}
