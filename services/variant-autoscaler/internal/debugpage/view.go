package debugpage

import (
	"cmp"
	"crypto/sha256"
	"math"
	"slices"
	"strings"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Bounds of a view. Its largest size, with what the allocator rounds up, is
//
//	200 models × 360 points × 40 bytes                       = 3.3 MB
//	200 models × 20 variants × (5 texts × 288 bytes + 192)   = 6.5 MB
//	200 models × (5 texts × 288 bytes + 296)                 = 0.3 MB
//
// TestMemoryIsBounded measures it. A pass makes the next view beside the last one, and a page that is being written holds the one that it
// began with.
const (
	maxModels   = 200
	maxVariants = 20 // of a model
	maxPoints   = 360
	maxText     = 256 // bytes of what others wrote
	maxNames    = 20  // of limits

	history = 6 * time.Hour
	// slot is the time that a point stands for: of several passes in one, the last counts.
	slot = history / maxPoints
)

const (
	micro   = 1e6
	million = 1e6 // shares
)

// view is a decision as it is shown. It does not change any more.
type view struct {
	Time    time.Time `json:"time"`  // of the pass
	Since   time.Time `json:"since"` // of the first pass of the term
	Cost    float64   `json:"costPerHour"`
	Planned float64   `json:"plannedCostPerHour"`
	// Gap is how much less the least possible cost may be than the planned one.
	Gap      float64  `json:"costGapPerHour"`
	Limiting []string `json:"limiting,omitempty"`
	// Percentile is the one of TTFT that targets are for. Zero: the mean.
	Percentile float64 `json:"ttftPercentile"`

	Groups   int     `json:"modelsOfAll"` // shown or not
	Left     int     `json:"modelsLeftOut,omitempty"`
	Variants int     `json:"variantsOfAll"`
	Problems int     `json:"variantsWithProblems"`
	Models   []model `json:"models"`
}

// model is a group of variants.
type model struct {
	Namespace string `json:"namespace"`
	Pool      string `json:"pool,omitempty"`
	Model     string `json:"model"`
	Role      string `json:"role,omitempty"`

	Class    string  `json:"class,omitempty"`
	Priority int     `json:"priority,omitempty"`
	TTFT     float64 `json:"ttftTargetMs,omitempty"`
	ITL      float64 `json:"itlTargetMs,omitempty"`

	State        snapshot.LoadState `json:"loadState"`
	Message      string             `json:"loadMessage,omitempty"`
	Rate         float64            `json:"requestsPerSecond"` // 0 if the load is not known, as is Demand
	Demand       float64            `json:"demandPerSecond"`
	Input        float64            `json:"inputTokens"`
	Output       float64            `json:"outputTokens"`
	Queued       float64            `json:"queued,omitempty"`
	MeasuredTTFT float64            `json:"meanTtftMs,omitempty"`
	MeasuredITL  float64            `json:"meanItlMs,omitempty"`

	Served  float64 `json:"served"` // share of the demand that is served, 0 to 1
	Plan    float64 `json:"plannedServed"`
	Cost    float64 `json:"costPerHour"`
	Planned float64 `json:"plannedCostPerHour"`

	Left     int       `json:"variantsLeftOut,omitempty"`
	Variants []variant `json:"variants"`
	History  points    `json:"history"`

	key [sha256.Size]byte // names can be long, and cut ones alike
}

type variant struct {
	Name        string  `json:"name"`
	Source      string  `json:"source"`
	Accelerator string  `json:"accelerator,omitempty"`
	Cost        float64 `json:"costPerReplica"`
	Now         int     `json:"now"`
	Ready       int     `json:"ready"`
	Planned     int     `json:"planned"`
	Desired     int     `json:"desired"`
	Min         int     `json:"min"`
	Max         int     `json:"max,omitempty"`
	Capacity    float64 `json:"capacityPerSecond"`
	From        string  `json:"capacitySource,omitempty"`
	Confidence  float64 `json:"confidence"`
	Problem     string  `json:"problem,omitempty"` // its reason
	Reason      string  `json:"reason"`
	Message     string  `json:"message"`
	Troubled    bool    `json:"-"`
}

// isTroubled reports whether someone has to do something for a variant.
func isTroubled(v *snapshot.Variant, d *decision.Variant) bool {
	troubles := []decision.Reason{decision.Excluded, decision.NoMetrics, decision.NoCapacity, decision.OutOfReach}
	return v.Problem != nil || slices.Contains(troubles, d.Reason)
}

// Known reports whether the load is known.
func (m *model) Known() bool { return m.State == snapshot.Found }

// nextView returns the view of a decision. The models that are in the last one, too, keep their history.
func nextView(last *view, s *snapshot.Snapshot, d *decision.Decision) *view {
	v := &view{
		Time: s.Time, Since: s.Time, Cost: float64(d.Acted) / micro, Planned: float64(d.Cost) / micro, Gap: float64(d.Cost-d.Bound) / micro,
		Groups:     len(d.Groups),
		Percentile: finiteOrZero(s.Settings.Percentile),
	}
	for _, name := range d.Limiting[:min(len(d.Limiting), maxNames)] {
		v.Limiting = append(v.Limiting, cutText(name))
	}
	histories := map[[sha256.Size]byte]points{}
	if last != nil {
		v.Since = last.Since
		for i := range last.Models {
			histories[last.Models[i].key] = last.Models[i].History
		}
	}
	for g := range d.Groups {
		v.Variants += len(d.Groups[g].Variants)
		for i := range d.Groups[g].Variants {
			if isTroubled(&s.Groups[g].Variants[i], &d.Groups[g].Variants[i]) {
				v.Problems++
			}
		}
	}
	order := groupsByDemand(s, d)
	v.Left = len(order) - min(len(order), maxModels)
	v.Models = make([]model, 0, len(order)-v.Left)
	for _, g := range order[:len(order)-v.Left] {
		m := modelOf(&s.Groups[g], &d.Groups[g])
		m.History = histories[m.key].withPoint(s.Time, pointOf(&m, &s.Groups[g], &d.Groups[g]))
		v.Models = append(v.Models, m)
	}
	return v
}

// groupsByDemand returns the numbers of the groups, those with the largest demand first.
func groupsByDemand(s *snapshot.Snapshot, d *decision.Decision) []int {
	return snapshot.SortedPositions(len(d.Groups), func(a, b int) int {
		x, y := &s.Groups[a], &s.Groups[b]
		return cmp.Or(cmp.Compare(d.Groups[b].Demand, d.Groups[a].Demand), cmp.Compare(x.Namespace, y.Namespace),
			cmp.Compare(x.Model, y.Model), cmp.Compare(x.Pool, y.Pool), cmp.Compare(x.Role, y.Role))
	})
}

func modelOf(g *snapshot.Group, d *decision.Group) model {
	m := model{
		Namespace: cutText(g.Namespace), Pool: cutText(g.Pool), Model: cutText(g.Model), Role: cutText(string(g.Role)),
		Class: cutText(g.Class), Priority: g.Priority, TTFT: finiteOrZero(g.Targets.TTFT), ITL: finiteOrZero(g.Targets.ITL),
		State: g.Load.State, Message: cutText(g.Load.Message), Served: float64(d.Acted) / million, Plan: float64(d.Share) / million,
		key: sha256.Sum256([]byte(g.Namespace + "\x00" + g.Pool + "\x00" + g.Model + "\x00" + string(g.Role))),
	}
	if m.Known() {
		m.Rate, m.Demand, m.Queued = float64(g.Load.Rate)/micro, float64(d.Demand)/micro, finiteOrZero(g.Load.Queued)
		m.Input, m.Output = finiteOrZero(g.Load.Input), finiteOrZero(g.Load.Output)
		m.MeasuredTTFT, m.MeasuredITL = finiteOrZero(g.Load.TTFT), finiteOrZero(g.Load.ITL)
	}
	for i := range d.Variants {
		if g.Variants[i].Problem != nil { // no part of the plan
			continue
		}
		cost := float64(g.Variants[i].Cost) / micro
		m.Cost += cost * float64(d.Variants[i].Desired)
		m.Planned += cost * float64(d.Variants[i].Planned)
	}
	trouble := func(i int) int {
		if isTroubled(&g.Variants[i], &d.Variants[i]) {
			return 0
		}
		return 1
	}
	order := snapshot.SortedPositions(len(d.Variants), func(a, b int) int {
		return cmp.Or(cmp.Compare(trouble(a), trouble(b)), cmp.Compare(d.Variants[b].Desired, d.Variants[a].Desired),
			cmp.Compare(g.Variants[a].Name, g.Variants[b].Name))
	})
	m.Left = len(order) - min(len(order), maxVariants)
	m.Variants = make([]variant, 0, len(order)-m.Left)
	for _, i := range order[:len(order)-m.Left] {
		m.Variants = append(m.Variants, variantOf(&g.Variants[i], &d.Variants[i]))
	}
	return m
}

func variantOf(v *snapshot.Variant, d *decision.Variant) variant {
	shown := variant{
		Name: cutText(v.Name), Source: cutText(string(v.Source)), Accelerator: cutText(v.Accelerator), Cost: float64(v.Cost) / micro,
		Now: v.Now, Ready: v.Ready, Planned: d.Planned, Desired: d.Desired, Min: d.Min, Max: d.Max, Capacity: float64(d.Capacity) / micro,
		From: string(d.CapacitySource), Confidence: min(max(finiteOrZero(d.Confidence), 0), 1), Reason: string(d.Reason),
		Message: cutText(d.Message), Troubled: isTroubled(v, d),
	}
	if v.Problem != nil {
		shown.Problem = cutText(v.Problem.Reason)
	}
	return shown
}

// cutText returns a copy of a text that is part of nothing larger, with at most maxText bytes and a mark of what is left out.
func cutText(text string) string {
	if text = strings.ToValidUTF8(text, "?"); len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return strings.Clone(text)
}

// finiteOrZero returns a number, or 0 for one that JSON does not have.
func finiteOrZero(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}
