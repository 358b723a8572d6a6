package endpoint

import (
	"sync/atomic"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/predict"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
)

// usualBlocks is the assumed size of a cache before its page was read, unless SetCacheSize sets another: that of a model of 8
// billion parameters on one recent GPU.
const usualBlocks = 30_000

// Factory makes the endpoints of one pool, which share a learner and an index of prefixes.
type Factory struct {
	learner  *predict.Learner
	prefixes *prefix.Index
	traffic  *Traffic
	size     atomic.Pointer[CacheSize]
}

// NewFactory returns a Factory.
func NewFactory(l *predict.Learner, x *prefix.Index, t *Traffic) *Factory {
	f := &Factory{learner: l, prefixes: x, traffic: t}
	f.size.Store(&CacheSize{Blocks: usualBlocks, FromPage: true})
	return f
}

// New returns an endpoint discovered at the given time.
func (f *Factory) New(d Description, since time.Time) *Endpoint {
	e := New(d, since, f.learner.NewServer())
	e.size, e.blocks = &f.size, f.size.Load().blocks(0)
	e.prefixes, e.cache, e.traffic = f.prefixes, f.prefixes.Add(e.blocks), f.traffic
	return e
}

// Forget removes the prefixes of a removed endpoint.
func (f *Factory) Forget(e *Endpoint) { f.prefixes.Remove(e.cache) }
