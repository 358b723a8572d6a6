// Package decision turns a snapshot into replicas: it is pure, so that the same snapshot gives the same decision anywhere.
//
//	capacities    what a replica of each variant serves within the targets
//	plan          the optimum (package optimizer)
//	act           hysteresis and stabilization, replicas that start, and groups that keep what they have
package decision

import (
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Record is a decision with all that it was made from.
type Record struct {
	Snapshot *snapshot.Snapshot `json:"snapshot"`
	Decision *Decision          `json:"decision"`
}

// Decision has one element for each group of the snapshot, in its order.
type Decision struct {
	Groups []Group `json:"groups"`
	Cost   int64   `json:"cost"` // of the plan
	// Bound is what no plan that serves as much can undercut. It is Cost, unless the search was cut short.
	Bound int64 `json:"bound"`
	// Acted is the cost of what is acted on.
	Acted int64 `json:"acted"`
	// Limiting are the names of the limits that make the plan serve less or cost more, and Binding says what each of them counts.
	Limiting []string  `json:"limiting,omitempty"`
	Binding  []Binding `json:"binding,omitempty"`
}

// Binding is a limit that makes a plan serve less or cost more: one of the snapshot, the places of a node set, or a quota.
type Binding struct {
	Name  string `json:"name"`
	Limit int    `json:"limit"` // position in the snapshot; -1: the limit is that of a node set or a quota
	Set   int    `json:"set"`   // position of the node set
	// Quota is the position of the quota. Nil: the limit is not that of a quota.
	Quota *int `json:"quota,omitempty"`
	// Cards are those of the smallest pod that the limit of the node set counts, or of the smallest replica that the quota counts.
	Cards int64 `json:"cards,omitempty"`
}

// Group is the decision on a group.
type Group struct {
	Demand int64 `json:"demand"` // rate with headroom
	// Share is the part of the demand that the plan serves within the targets, in millionths.
	Share int64 `json:"share"`
	Acted int64 `json:"acted"` // the share of what is acted on
	// Stable is what is served at a stable load, if the targets cannot be met for all of the demand.
	Stable *Served `json:"stable,omitempty"`
	// Standby is the variant that starts first when a request waits, if the model has no replicas. Empty: it has some, or may not have
	// none.
	Standby string `json:"standby,omitempty"`
	// Warm says whether a replica stays because waking costs more. Nil: it is not asked for, or not known.
	Warm     *Warm     `json:"warm,omitempty"`
	Variants []Variant `json:"variants"`
}

// Served is the part of a demand that is served, in millionths.
type Served struct {
	Share int64 `json:"share"` // by the plan
	Acted int64 `json:"acted"` // by what is acted on
}

// Served returns what is served within the targets, or else at a stable load: what the plan is for.
func (g *Group) Served() Served {
	if g.Stable != nil {
		return *g.Stable
	}
	return Served{Share: g.Share, Acted: g.Acted}
}

// Variant is the decision on a variant.
type Variant struct {
	Planned int `json:"planned"` // the optimum
	Wanted  int `json:"wanted"`  // the optimum, or the present replicas if it saves too little
	Desired int `json:"desired"` // what is acted on
	// Min and Max are the bounds in force, after the schedule. A Max of 0 means no maximum.
	Min int `json:"min"`
	Max int `json:"max"`
	// Reason is a constant that says how Desired came about; Message explains it to people.
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
	// Trial reports whether Desired has a replica only to see what it serves, for a time.
	Trial bool `json:"trial,omitempty"`

	Capacity       int64          `json:"capacity"` // of a replica
	CapacitySource CapacitySource `json:"capacitySource"`
	// Confidence is how sure the capacity is, from 0 to 1.
	Confidence float64    `json:"confidence"`
	Predicted  *Predicted `json:"predicted,omitempty"`
	// ShareWithout is the share of the group with one replica less.
	ShareWithout int64 `json:"shareWithout"`
	// Short says which nodes or quotas have no room for further replicas that the plan has, or would have. Empty: none.
	Short string `json:"short,omitempty"`
	// CostAlone is what the group would cost with this variant alone. Zero: it cannot serve the demand alone.
	CostAlone int64 `json:"costAlone,omitempty"`
}

// Predicted are the figures of a replica under its part of the load.
type Predicted struct {
	TTFT        float64 `json:"ttftMs"`
	ITL         float64 `json:"itlMs"`
	Utilization float64 `json:"utilization"`
}

// CapacitySource is where a capacity comes from.
type CapacitySource string

// Sources of capacities.
const (
	FromProfile CapacitySource = "profile" // of the variant's spec
	FromPicker  CapacitySource = "picker"  // learned by the endpoint picker
	FromEngine  CapacitySource = "engine"  // learned from the metrics of the servers
)

// Reason says how the desired replicas of a variant came about.
type Reason string

// Reasons of desired replicas.
const (
	Optimal      Reason = "Optimal"              // the plan
	Stabilized   Reason = "Stabilized"           // more were wanted in the stabilization window
	SavingSmall  Reason = "SavingTooSmall"       // the plan saves less than the least saving
	Starting     Reason = "ReplacementsStarting" // they serve until others are ready
	Bridging     Reason = "Bridging"             // they start faster than what the plan wants
	Saturated    Reason = "ServersSaturated"     // with fewer, servers would pass the thresholds of saturation
	RatioBinding Reason = "RatioBinding"         // with fewer, the ratio of prefill to decode replicas would be out of bounds
	LimitBinding Reason = "LimitBinding"         // a limit leaves no more
	NodesFull    Reason = "NoFreeAccelerators"   // no node has free cards for a further replica
	QuotaFull    Reason = "NoFreeQuota"          // Kueue would not admit a further replica
	Retained     Reason = "RetentionPeriod"      // the last request was too recent to go to zero
	Waking       Reason = "WakingFromZero"       // requests wait, no replica is ready: one variant starts, the others do not
	NoMetrics    Reason = "MetricsUnavailable"   // the load is not known: as before
	NoTargets    Reason = "NoServiceClass"       // the plan, for a stable load: no class has targets for the model
	NoCapacity   Reason = "CapacityUnknown"      // nothing says what a replica serves
	Probing      Reason = "Probing"              // a first replica, to see what it serves
	OutOfReach   Reason = "TargetsOutOfReach"    // no replica meets the targets: a stable load
	Excluded     Reason = "Excluded"             // the variant has a problem
)
