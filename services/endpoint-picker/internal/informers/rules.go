package informers

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/endpoint-picker/internal/rules"
)

// The kinds that have rules, in the group that they moved to and in the one that they came from.
const (
	rulesGroup       = "llm-d.ai"
	legacyRulesGroup = "inference.networking.x-k8s.io"
	rulesVersion     = "v1alpha2"

	objectivesResource = "inferenceobjectives"
	rewritesResource   = "inferencemodelrewrites"
)

// rulesSpacing is the least time between two readings of all objects.
const rulesSpacing = 100 * time.Millisecond

// listInterval is the time between two looks whether a list is complete.
const listInterval = time.Second

// ErrRulesNotRead is why requests should not come yet.
var ErrRulesNotRead = errors.New("objectives and rewrites have not been read yet")

// rulesObserver learns how many objects of a kind hold, and how many cannot be read.
type rulesObserver interface {
	ObserveRules(resource string, read, malformed int)
}

// RulesParams is what NewRules needs.
type RulesParams struct {
	Log       *zap.Logger
	Discovery kube.ResourceDiscovery
	Dynamic   dynamic.Interface
	Pool      cache.ObjectName // whose rules are wanted
	Rules     *rules.Rules     // where they go
	Observer  rulesObserver
	Models    func(names ...string) // told of the models that rewrites speak of; may be nil
	// Patience is for how long, from Run, the picker is unready because the objects have not been read: a request
	// that comes too early meets no rule. After that it goes without them, as it must where it may not read them.
	Patience time.Duration
	// PollInterval is the time between two looks for the kinds.
	PollInterval time.Duration
}

// Rules watches the InferenceObjectives and InferenceModelRewrites of one pool. Their kinds may be absent and may
// appear; where a kind is served in both its groups the old one is ignored. An object that cannot be read is said so
// once for each of its versions, and takes nothing from the others.
type Rules struct {
	log        *zap.Logger
	rules      *rules.Rules
	models     func(names ...string)
	patience   time.Duration
	interval   time.Duration
	objectives *ruleKind[rules.Objective]
	rewrites   *ruleKind[rules.RewriteObject]
	dirty      chan struct{}
	ready      chan struct{}
	readyOnce  sync.Once
}

// NewRules returns informers that do nothing until Run.
func NewRules(p RulesParams) *Rules {
	r := &Rules{
		log:      p.Log,
		rules:    p.Rules,
		models:   p.Models,
		patience: p.Patience,
		interval: p.PollInterval,
		dirty:    make(chan struct{}, 1),
		ready:    make(chan struct{}),
	}
	r.objectives = newRuleKind(p, r.changed, objectivesResource, func(o rules.Object) (*rules.Objective, string, error) {
		objective, err := rules.ReadObjective(p.Pool.Name, o)
		return objective, "", err
	})
	r.rewrites = newRuleKind(p, r.changed, rewritesResource, func(o rules.Object) (*rules.RewriteObject, string, error) {
		return rules.ReadRewrite(p.Pool.Name, o)
	})
	return r
}

// Ready returns ErrRulesNotRead until the objects have been read, or the patience is over.
func (r *Rules) Ready() error {
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
	var synced []cache.InformerSynced
	for _, o := range append(r.objectives.informers(), r.rewrites.informers()...) {
		running.Go(func() { o.Run(ctx) })
		synced = append(synced, o.HasSynced)
	}
	impatient := time.AfterFunc(r.patience, func() {
		r.readyOnce.Do(func() {
			r.log.Warn("Could not read objectives and rewrites in time, continued without them")
			close(r.ready)
		})
	})
	defer impatient.Stop()
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return
	}
	r.follow(ctx)
}

// follow reads all objects, and again whenever some have changed. That a kind without objects came or went is no event,
// so it looks from time to time as well.
func (r *Rules) follow(ctx context.Context) {
	for {
		again := r.interval
		if !r.read() {
			again = min(again, listInterval)
		}
		r.readyOnce.Do(func() { close(r.ready) })
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

func (r *Rules) changed() {
	select {
	case r.dirty <- struct{}{}:
	default: // a reading is due already and will see this change too
	}
}

// read compiles what there is, and reports whether it is all.
func (r *Rules) read() bool {
	objectives, rewrites := r.objectives.read(), r.rewrites.read()
	compiled := rules.Compile(r.objectives.last, r.rewrites.last)
	r.rules.Set(compiled)
	if r.models != nil {
		r.models(compiled.Models()...)
	}
	return objectives && rewrites
}
