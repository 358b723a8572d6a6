package wake

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/variant-autoscaler/internal/actuation"
	"fairlead.dev/services/variant-autoscaler/internal/apply"
	"fairlead.dev/services/variant-autoscaler/internal/scale"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// maxStarts is the number of targets that wait for their first replica. The next pass asks again for those that are left out.
	maxStarts = 256
	// startTime is how long one write may take.
	startTime = 5 * time.Second
	// startAgain is the time after which a target gets a first replica again that has none in spite of it: somebody took it away.
	startAgain = 10 * time.Minute
)

// targets are the targets that this program may scale.
type targets interface {
	MayStart(namespace string, t snapshot.Target) (may bool, idle string)
	Start(ctx context.Context, o scale.Object) (written bool, err error)
}

// StarterParams are the parts of a Starter.
type StarterParams struct {
	Log     *zap.Logger
	Targets targets
	Now     func() time.Time
}

// Starter writes the first replica of targets that nothing else would start: from none to one, once. It is safe for concurrent use.
type Starter struct {
	p     StarterParams
	queue chan actuation.Variant

	mu      sync.Mutex
	started map[scale.Object]time.Time
	told    map[scale.Object]bool
}

func objectOf(v *actuation.Variant) scale.Object {
	return scale.Object{Namespace: v.Namespace, Target: v.Target}
}

// NewStarter returns a Starter. Run writes.
func NewStarter(p StarterParams) *Starter {
	return &Starter{p: p, queue: make(chan actuation.Variant, maxStarts), started: map[scale.Object]time.Time{}, told: map[scale.Object]bool{}}
}

// Publish starts the variants of a decision for which requests wait, and that still have no replicas.
func (s *Starter) Publish(variants []actuation.Variant) {
	s.forget(variants)
	for i := range variants {
		if v := &variants[i]; v.Waits && v.Desired > 0 && v.Current == 0 && v.Resolution != actuation.Suppressed {
			s.Start(v)
		}
	}
}

// EndTerm ends the term.
func (s *Starter) EndTerm() { s.forget(nil) }

// forget forgets targets that have replicas, or are gone.
func (s *Starter) forget(variants []actuation.Variant) {
	empty := map[scale.Object]bool{}
	for i := range variants {
		empty[objectOf(&variants[i])] = variants[i].Current == 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.started {
		if !empty[key] {
			delete(s.started, key)
		}
	}
	for key := range s.told {
		if !empty[key] {
			delete(s.told, key)
		}
	}
}

// Start asks for the first replica of a variant, if nothing else starts it.
func (s *Starter) Start(v *actuation.Variant) {
	switch may, idle := s.p.Targets.MayStart(v.Namespace, v.Target); {
	case may:
		if !s.claim(v) {
			return
		}
		select {
		case s.queue <- *v:
		default: // the next pass asks again
			s.release(v)
		}
	case idle != "":
		s.tell(v, idle)
	}
}

// claim reports whether a target is to be started: it was not, or long ago.
func (s *Starter) claim(v *actuation.Variant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, found := s.started[objectOf(v)]; found && s.p.Now().Sub(at) < startAgain {
		return false
	}
	s.started[objectOf(v)] = s.p.Now()
	return true
}

func (s *Starter) release(v *actuation.Variant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.started, objectOf(v))
}

// tell logs once that a model stays without replicas.
func (s *Starter) tell(v *actuation.Variant, idle string) {
	s.mu.Lock()
	told := s.told[objectOf(v)]
	s.told[objectOf(v)] = true
	s.mu.Unlock()
	if !told {
		s.log(v).Warn("Requests wait for a target without replicas, which its HorizontalPodAutoscaler does not start: it starts only what it has itself scaled to "+
			"zero, with minReplicas 0 (Kubernetes 1.37). Scale the target to 1, use KEDA, or set --wake-hpa-targets", zap.String("autoscaler", idle))
	}
}

func (s *Starter) log(v *actuation.Variant) *zap.Logger {
	return s.p.Log.With(zap.String(logging.KeyNamespace, v.Namespace), zap.String(logging.KeyKind, v.Target.Kind), zap.String(logging.KeyName, v.Target.Name))
}

// Run writes until ctx ends.
func (s *Starter) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case v := <-s.queue:
			s.write(ctx, &v)
		}
	}
}

// write writes a replica.
func (s *Starter) write(ctx context.Context, v *actuation.Variant) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	written, err := s.p.Targets.Start(ctx, objectOf(v))
	switch {
	case written:
		s.log(v).Info("Started a target without replicas")
	case errors.Is(err, scale.ErrChanged), errors.Is(err, apply.ErrOwned):
		s.log(v).Debug("Left a target alone that something else started", zap.Error(err))
	case err != nil:
		s.release(v)
		s.log(v).Warn("Could not start a target without replicas, for which requests wait. The next pass tries again", zap.Error(err))
	}
}
