package endpoint

import (
	"time"

	"fairlead.dev/services/endpoint-picker/internal/predict"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
)

// usualBlocks is what a cache is taken for until its page was read: that of a model of 8 billion parameters on one recent
// GPU.
const usualBlocks = 30_000

// Factory makes the endpoints of one pool: they learn together, and their prefixes are in one index.
type Factory struct {
	learner  *predict.Learner
	prefixes *prefix.Index
	traffic  *Traffic
}

// NewFactory returns a Factory that has made nothing.
func NewFactory(l *predict.Learner, x *prefix.Index, t *Traffic) *Factory {
	return &Factory{learner: l, prefixes: x, traffic: t}
}

// New returns an endpoint that is known since the given time.
func (f *Factory) New(d Description, since time.Time) *Endpoint {
	e := New(d, since, f.learner.NewServer())
	e.prefixes, e.cache, e.traffic = f.prefixes, f.prefixes.Add(usualBlocks), f.traffic
	return e
}

// Forget forgets the prefixes of an endpoint that has gone.
func (f *Factory) Forget(e *Endpoint) { f.prefixes.Remove(e.cache) }
