package endpoint

import (
	"time"

	"fairlead.dev/services/endpoint-picker/internal/predict"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
)

// usualBlocks is the assumed size of a cache before its page was read: that of a model of 8 billion parameters on one recent
// GPU.
const usualBlocks = 30_000

// Factory makes the endpoints of one pool, which share a learner and an index of prefixes.
type Factory struct {
	learner  *predict.Learner
	prefixes *prefix.Index
	traffic  *Traffic
}

// NewFactory returns a Factory.
func NewFactory(l *predict.Learner, x *prefix.Index, t *Traffic) *Factory {
	return &Factory{learner: l, prefixes: x, traffic: t}
}

// New returns an endpoint discovered at the given time.
func (f *Factory) New(d Description, since time.Time) *Endpoint {
	e := New(d, since, f.learner.NewServer())
	e.prefixes, e.cache, e.traffic = f.prefixes, f.prefixes.Add(usualBlocks), f.traffic
	return e
}

// Forget removes the prefixes of a removed endpoint.
func (f *Factory) Forget(e *Endpoint) { f.prefixes.Remove(e.cache) }
