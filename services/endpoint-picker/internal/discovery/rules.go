package discovery

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/wake"
	"fairlead.dev/services/endpoint-picker/internal/pool"
)

// The kinds of rules, in their current group and in their old one.
const (
	rulesGroup       = "llm-d.ai"
	legacyRulesGroup = "inference.networking.x-k8s.io"
	rulesVersion     = "v1alpha2"

	objectivesResource = "inferenceobjectives"
	rewritesResource   = "inferencemodelrewrites"
)

// rulesSpacing is the minimum time between two readings of all objects.
const rulesSpacing = 100 * time.Millisecond

// listInterval is the interval of checks whether a list is complete.
const listInterval = time.Second

// ErrRulesNotRead means that the picker is not ready for requests yet.
var ErrRulesNotRead = errors.New("objectives and rewrites have not been read yet")

// RulesParams are the parameters of NewRules.
type RulesParams struct {
	Log       *zap.Logger
	Discovery kube.ResourceDiscovery
	Dynamic   dynamic.Interface
	Namespace string
	Observe   func(resource string, read, malformed int) // receives the numbers of valid and of unreadable objects of a kind
	// Patience is the maximum time, from Run, that the picker is unready because it has not read all kinds: no rule would apply
	// to earlier requests. After that it works without those that are not listed, as it does without permission to read them.
	Patience time.Duration
	// PollInterval is the interval of checks for the kinds.
	PollInterval time.Duration
}

// Rules watches the InferenceObjectives and InferenceModelRewrites of the pools of a namespace. Their kinds may be missing and
// may appear later. If both groups serve a kind, the old group is ignored. An unreadable object is reported once for each of
// its versions, and does not affect the others.
type Rules struct {
	params     RulesParams
	informers  *informers.Group
	objectives *ruleKind[pool.Objective]
	rewrites   *ruleKind[pool.RewriteObject]
	dirty      wake.Signal // an object has changed
	ready      chan struct{}

	mu    sync.Mutex            // protects the kinds and the pools
	pools map[string]*poolRules // by name
}

// poolRules receives the rules of one pool.
type poolRules struct {
	rules  *pool.Rules
	models func(names ...string) // receives the models that rewrites name
}

// NewRules returns informers. Run starts them.
func NewRules(p RulesParams) *Rules {
	r := &Rules{params: p, dirty: wake.NewSignal(), ready: make(chan struct{}), pools: map[string]*poolRules{}}
	r.informers = informers.NewGroup(informers.Params{Log: p.Log, Client: p.Dynamic, Discovery: p.Discovery, Interval: p.PollInterval})
	r.objectives = newRuleKind(r, objectivesResource, func(o pool.RuleObject) (*pool.Objective, string, error) {
		objective, err := pool.ReadObjective(o)
		return objective, "", err
	})
	r.rewrites = newRuleKind(r, rewritesResource, pool.ReadRewrite)
	return r
}

// AddPool follows the rules of a pool, and the models that its rewrites name, from the next reading on.
func (r *Rules) AddPool(name string, to *pool.Rules, models func(names ...string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pools[name] = &poolRules{rules: to, models: models}
}

// Refresh reads the objects, if they have been read before. When it returns, the rules of pools that were added are in force.
func (r *Rules) Refresh() {
	if r.CheckReady() == nil {
		r.readRules()
	}
}

// RemovePool ends AddPool.
func (r *Rules) RemovePool(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pools, name)
}

// CheckReady returns ErrRulesNotRead until the objects have been read: all of them, or those that are listed when the patience is over.
func (r *Rules) CheckReady() error {
	select {
	case <-r.ready:
		return nil
	default:
		return ErrRulesNotRead
	}
}

// Run watches until ctx ends, and returns when every watch has ended.
func (r *Rules) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { r.informers.Run(ctx) })
	r.waitForSync(ctx)
	r.followChanges(ctx)
}

// waitForSync returns when all kinds are listed or missing, or the patience is over.
func (r *Rules) waitForSync(ctx context.Context) {
	patient, cancel := context.WithTimeout(ctx, r.params.Patience)
	defer cancel()
	if !cache.WaitForCacheSync(patient.Done(), func() bool { return len(r.informers.Unsynced()) == 0 }) && ctx.Err() == nil {
		r.params.Log.Warn("Could not read all kinds of rules in time, continued without them", zap.Strings("kinds", r.informers.Unsynced()))
	}
}

// followChanges reads all objects at the start and after changes. It also polls, because no event reports that a kind without
// objects was installed or removed.
func (r *Rules) followChanges(ctx context.Context) {
	for {
		again := r.params.PollInterval
		if !r.readRules() {
			again = min(again, listInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(rulesSpacing):
		}
		select {
		case <-ctx.Done():
			return
		case <-r.dirty:
		case <-time.After(again):
		}
	}
}

// readRules compiles the current objects of every pool, and reports whether they are complete. It closes ready before another pool can be
// added, so that Refresh reads the objects of each pool that the first reading lacks.
func (r *Rules) readRules() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	objectives, rewrites := r.objectives.readObjects(r.pools), r.rewrites.readObjects(r.pools)
	for name, described := range r.pools {
		compiled := pool.CompileRules(r.objectives.last[name], r.rewrites.last[name])
		described.rules.SetSnapshot(compiled)
		described.models(compiled.Models()...)
	}
	if r.CheckReady() != nil {
		close(r.ready)
	}
	return objectives && rewrites
}
