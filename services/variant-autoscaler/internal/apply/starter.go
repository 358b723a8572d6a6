package apply

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/scale"
)

const (
	// maxStarts is the number of targets that wait for their first replica. The next pass asks again for those that are left out.
	maxStarts = 256
	// startTime is how long one write may take.
	startTime = 5 * time.Second
	// startAgain is the time after which a target gets a first replica again that has none in spite of it: somebody took it away.
	startAgain = 10 * time.Minute
)

// StarterParams are the parts of a Starter.
type StarterParams struct {
	Log     *zap.Logger
	Targets *Targets
	Now     func() time.Time
}

// Starter writes the first replica of targets that nothing else would start: from none to one, once. It is safe for concurrent use.
type Starter struct {
	p     StarterParams
	queue chan decision.ActedVariant

	mu      sync.Mutex
	started map[scale.Object]time.Time
	warned  map[scale.Object]bool
}

// NewStarter returns a Starter. Run writes.
func NewStarter(p StarterParams) *Starter {
	return &Starter{p: p, queue: make(chan decision.ActedVariant, maxStarts), started: map[scale.Object]time.Time{},
		warned: map[scale.Object]bool{}}
}

// Publish starts the variants of a decision for which requests wait, and that still have no replicas.
func (s *Starter) Publish(variants []decision.ActedVariant) {
	s.forgetStarted(variants)
	for i := range variants {
		if v := &variants[i]; v.Waits && v.Desired > 0 && v.Now == 0 && v.Resolution != decision.Suppressed {
			s.Start(v)
		}
	}
}

// EndTerm ends the term.
func (s *Starter) EndTerm() { s.forgetStarted(nil) }

// forgetStarted forgets the targets that have replicas, and those that are gone.
func (s *Starter) forgetStarted(variants []decision.ActedVariant) {
	empty := map[scale.Object]bool{}
	for i := range variants {
		empty[objectOf(&variants[i])] = variants[i].Now == 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.started, func(key scale.Object, _ time.Time) bool { return !empty[key] })
	maps.DeleteFunc(s.warned, func(key scale.Object, _ bool) bool { return !empty[key] })
}

// Start asks for the first replica of a variant, if nothing else starts it.
func (s *Starter) Start(v *decision.ActedVariant) {
	switch may, idle := s.p.Targets.CanStart(v.Namespace, v.Target); {
	case may:
		if !s.claimStart(v) {
			return
		}
		select {
		case s.queue <- *v:
		default: // the next pass asks again
			s.releaseStart(v)
		}
	case idle != "":
		s.warnOnce(v, idle)
	}
}

// claimStart reports whether to start a target: it was not started, or long ago.
func (s *Starter) claimStart(v *decision.ActedVariant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, found := s.started[objectOf(v)]; found && s.p.Now().Sub(at) < startAgain {
		return false
	}
	s.started[objectOf(v)] = s.p.Now()
	return true
}

func (s *Starter) releaseStart(v *decision.ActedVariant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.started, objectOf(v))
}

// warnOnce logs once that a model stays without replicas.
func (s *Starter) warnOnce(v *decision.ActedVariant, idle string) {
	s.mu.Lock()
	told := s.warned[objectOf(v)]
	s.warned[objectOf(v)] = true
	s.mu.Unlock()
	if !told {
		loggerFor(s.p.Log, v).Warn("Requests wait for a target without replicas, which its HorizontalPodAutoscaler does not start: it starts only what it has itself scaled to "+
			"zero, with minReplicas 0 (Kubernetes 1.37). Scale the target to 1, use KEDA, or set --wake-hpa-targets", zap.String("autoscaler", idle))
	}
}

// Run writes until ctx ends.
func (s *Starter) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case v := <-s.queue:
			s.writeReplica(ctx, &v)
		}
	}
}

// writeReplica writes the first replica of a target.
func (s *Starter) writeReplica(ctx context.Context, v *decision.ActedVariant) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	written, err := s.p.Targets.Start(ctx, objectOf(v))
	switch {
	case written:
		loggerFor(s.p.Log, v).Info("Started a target without replicas")
	case errors.Is(err, scale.ErrChanged), errors.Is(err, ErrOwned):
		loggerFor(s.p.Log, v).Debug("Left a target alone that something else started", zap.Error(err))
	case err != nil:
		s.releaseStart(v)
		loggerFor(s.p.Log, v).Warn("Could not start a target without replicas, for which requests wait. The next pass tries again", zap.Error(err))
	}
}
