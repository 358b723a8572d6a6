// Package debugpage shows what the leader decided, as JSON and as a page: for each model the load, the share served, the cost and the
// replicas of its variants, now and over the last hours. It keeps a copy of what it shows, of bounded size.
package debugpage

import (
	_ "embed"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/debugpage"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// staleAge is the age of a decision from which the page asks for the reason. Passes are a minute apart, unless the administrator says
// otherwise.
const staleAge = 5 * time.Minute

//go:embed page.html
var pageText string

var pageTemplate = debugpage.ParseTemplate(pageText)

// Page shows the decisions of a term. It is safe for concurrent use.
type Page struct {
	p Params

	mu    sync.Mutex // serializes writers
	shown atomic.Pointer[view]
}

// Params are the parameters of New.
type Params struct {
	Log     *zap.Logger
	Version string
	Lease   string // namespace/name of the Lease that names the leader
	Clock   clock.PassiveClock
}

// New returns a Page without a decision.
func New(p Params) *Page { return &Page{p: p} }

// ObserveDecision shows a decision from now on. The page keeps nothing of it but copies.
func (p *Page) ObserveDecision(s *snapshot.Snapshot, d *decision.Decision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown.Store(nextView(p.shown.Load(), s, d))
}

// EndTerm forgets all decisions: this replica does not lead any more.
func (p *Page) EndTerm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown.Store(nil)
}

// Handlers returns the handlers by pattern of http.ServeMux. The JSON has no indentation: it has as many numbers as the charts have points.
func (p *Page) Handlers() map[string]http.Handler {
	page := debugpage.Page{Log: p.p.Log, Path: "/debug/models", Template: pageTemplate, State: func() any { return p.currentState() }}
	return page.Handlers()
}

// pageState is the content of the page.
type pageState struct {
	Now     time.Time `json:"now"`
	Version string    `json:"version"`
	Lease   string    `json:"lease,omitempty"`
	Problem string    `json:"problem,omitempty"` // why there is no decision, or why it is old, and what to do
	Age     float64   `json:"ageSeconds,omitempty"`
	View    *view     `json:"decision,omitempty"` // nil: this replica has none
}

func (p *Page) currentState() pageState {
	s := pageState{Now: p.p.Clock.Now(), Version: p.p.Version, Lease: p.p.Lease, View: p.shown.Load()}
	if s.View == nil {
		s.Problem = "This replica has no decision: it does not lead, or its first pass has not ended. Open this page on the pod that " +
			"spec.holderIdentity of the Lease " + p.p.Lease + " names. If that is this pod, /readyz and its log say what it waits for."
		return s
	}
	age := s.Now.Sub(s.View.Time)
	if s.Age = age.Seconds(); age > staleAge {
		s.Problem = "The last pass that decided is " + age.Round(time.Second).String() + " old. If GLOBAL_OPT_INTERVAL is not that long, " +
			"passes fail: the log and fairlead_autoscaler_passes_total say why. Autoscalers follow the last decision meanwhile."
	}
	return s
}
