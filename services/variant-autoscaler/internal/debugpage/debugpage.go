// Package debugpage shows what the leader decided, as JSON and as a page: for each model the load, the share served, the cost and the
// replicas of its variants, now and over the last hours. It keeps a copy of what it shows, of bounded size.
package debugpage

import (
	_ "embed"
	"encoding/json"
	"html/template"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// The paths of the page.
const (
	pathBoth = "/debug/models"
	pathHTML = "/debug/models.html"
	pathJSON = "/debug/models.json"
)

// staleAge is the age of a decision from which the page asks for the reason. Passes are a minute apart, unless the administrator says
// otherwise.
const staleAge = 5 * time.Minute

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(formatFuncs()).Parse(pageText))

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

// Handlers returns the handlers by pattern of http.ServeMux.
func (p *Page) Handlers() map[string]http.Handler {
	return map[string]http.Handler{
		"GET " + pathBoth: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Vary", "Accept")
			if strings.Contains(r.Header.Get("Accept"), "text/html") { // only browsers send this
				p.writeHTML(w)
				return
			}
			p.writeJSON(w)
		}),
		"GET " + pathHTML: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { p.writeHTML(w) }),
		"GET " + pathJSON: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { p.writeJSON(w) }),
	}
}

// writeJSON writes the state without indentation: it has as many numbers as the charts have points.
func (p *Page) writeJSON(w http.ResponseWriter) {
	setHeaders(w, "application/json")
	p.logWriteError(json.NewEncoder(w).Encode(p.currentState()))
}

func (p *Page) writeHTML(w http.ResponseWriter) {
	setHeaders(w, "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	p.logWriteError(pageTemplate.Execute(w, p.currentState()))
}

// logWriteError logs an error of writing an answer. The client has received the beginning, so it cannot get an error.
func (p *Page) logWriteError(err error) {
	if err != nil {
		p.p.Log.Debug("Could not write debug page", zap.Error(err))
	}
}

func setHeaders(w http.ResponseWriter, contentType string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
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
