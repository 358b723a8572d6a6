package holds

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/tools/cache"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/wake"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// maxStreams is the number of pickers that are followed at a time, and maxOfNamespace the part of them in a namespace: somebody who may
	// write InferencePools and EndpointSlices can name any number. Each of them has a connection and two goroutines.
	maxStreams     = 256
	maxOfNamespace = 32
	// syncInterval is the time between two looks at the addresses of pickers.
	syncInterval = time.Second
	// firstRetry and lastRetry are the pauses before a picker is asked again. They double with each failure.
	firstRetry, lastRetry = time.Second, 30 * time.Second
)

// picker is a replica of an endpoint picker.
type picker struct {
	namespace, service string
	address            string // with its port for metrics
	tls                bool
}

func (p picker) compareTo(o picker) int {
	return cmp.Or(cmp.Compare(p.namespace, o.namespace), cmp.Compare(p.service, o.service), cmp.Compare(p.address, o.address))
}

// Params are the parts of a Follower.
type Params struct {
	Options

	Log   *zap.Logger
	Table *Table
	// ObservePickers is called with the number of pickers that are followed, and of those that cannot be.
	ObservePickers func(following, failing int)
	// Pools have the InferencePools, and Endpoints the EndpointSlices. Without Endpoints, nothing is followed.
	Pools     []kit.Reader
	Endpoints kit.Reader
}

// Follower follows the pickers of all pools with models that may have no replicas, each of their replicas: a request waits in one of them.
type Follower struct {
	p       Params
	changed wake.Signal // WatchModels has set models

	mu      sync.Mutex
	renewed map[snapshot.PoolKey]bool // pools whose streams have to begin anew

	following map[picker]*streamReader // of the goroutine in Run
	streams   sync.WaitGroup
	crowded   bool
}

// NewFollower returns a Follower. Run follows.
func NewFollower(p Params) *Follower {
	return &Follower{p: p, changed: wake.NewSignal(), renewed: map[snapshot.PoolKey]bool{}, following: map[picker]*streamReader{}}
}

// WatchModels begins a pass, with the models that may have no replicas. Without any, nothing is followed.
func (f *Follower) WatchModels(models []snapshot.ModelKey) {
	f.mu.Lock()
	for _, pool := range f.p.Table.SetModels(models) {
		f.renewed[pool] = true
	}
	f.mu.Unlock()
	f.changed.Send()
}

// CountWaiting returns how many requests wait for a model, and the most that waited at a time since the pass before the last one. watched
// reports whether a picker of its pool is followed.
func (f *Follower) CountWaiting(k snapshot.ModelKey) (now, since int, watched bool) {
	return f.p.Table.CountWaiting(k)
}

// Run follows pickers until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	defer f.streams.Wait()
	for ctx.Err() == nil {
		f.syncPickers(ctx)
		select {
		case <-ctx.Done():
		case <-f.changed:
		case <-time.After(syncInterval):
		}
	}
}

// syncPickers starts to follow new pickers, and stops following those that are gone.
func (f *Follower) syncPickers(ctx context.Context) {
	wanted := f.wantedPickers()
	f.mu.Lock() // after wantedPickers, whose new pools are then in renewed: no picker is dialed twice
	renewed := f.renewed
	f.renewed = map[snapshot.PoolKey]bool{}
	f.mu.Unlock()
	for p, s := range f.following {
		if !slices.Equal(wanted[p], s.pools) || slices.ContainsFunc(s.pools, func(pool snapshot.PoolKey) bool { return renewed[pool] }) {
			s.stop()
			delete(f.following, p)
		}
	}
	for p, pools := range wanted {
		if f.following[p] == nil {
			ctx, stop := context.WithCancel(ctx)
			r := &streamReader{follower: f, picker: p, pools: pools, stop: stop}
			f.following[p] = r
			f.streams.Go(func() { f.followPicker(ctx, r) })
		}
	}
	f.reportCounts()
}

// reportCounts sets the metric of pickers.
func (f *Follower) reportCounts() {
	heard := 0
	for _, s := range f.following {
		if s.heard.Load() {
			heard++
		}
	}
	f.p.ObservePickers(heard, len(f.following)-heard)
}

// wantedPickers returns the pickers of all known pools, with their pools.
func (f *Follower) wantedPickers() map[picker][]snapshot.PoolKey {
	wanted := map[picker][]snapshot.PoolKey{}
	for _, pool := range slices.SortedFunc(slices.Values(f.p.Table.poolsOf()), snapshot.PoolKey.Compare) {
		service := f.serviceOf(pool)
		if service.Name == "" {
			continue
		}
		for _, e := range informers.EndpointsOf(f.p.Endpoints, service) {
			for _, address := range e.Addresses {
				p := picker{namespace: pool.Namespace, service: service.Name, address: address, tls: e.TLS}
				wanted[p] = append(wanted[p], pool)
			}
		}
	}
	return f.dropExcess(wanted)
}

// dropExcess removes the pickers beyond the limits.
func (f *Follower) dropExcess(pickers map[picker][]snapshot.PoolKey) map[picker][]snapshot.PoolKey {
	counts, total := map[string]int{}, len(pickers)
	kept := 0
	for _, p := range slices.SortedFunc(maps.Keys(pickers), picker.compareTo) {
		if kept >= maxStreams || counts[p.namespace] >= maxOfNamespace {
			delete(pickers, p)
			continue
		}
		kept++
		counts[p.namespace]++
	}
	if crowded := kept < total; crowded != f.crowded {
		if f.crowded = crowded; crowded {
			f.p.Log.Warn("Left out pickers that are too many to follow: their models start when Prometheus shows that requests wait",
				zap.Int("pickers", total), zap.Int("followed", kept), zap.Int("most", maxStreams),
				zap.Int("mostOfNamespace", maxOfNamespace))
		}
	}
	return pickers
}

// serviceOf returns the Service of the picker of a pool, without a name if it has none.
func (f *Follower) serviceOf(pool snapshot.PoolKey) cache.ObjectName {
	for _, reader := range f.p.Pools {
		if p := informers.FindObject[informers.Pool](reader,
			cache.ObjectName{Namespace: pool.Namespace, Name: pool.Name}); p != nil && p.Picker != "" {
			return cache.ObjectName{Namespace: pool.Namespace, Name: p.Picker}
		}
	}
	return cache.ObjectName{}
}

// followPicker reads what a picker says until ctx ends. While it says nothing, nothing waits in it.
func (f *Follower) followPicker(ctx context.Context, r *streamReader) {
	r.log = f.p.Log.With(zap.String(logging.KeyAddress, r.picker.address), zap.String("service", r.picker.namespace+"/"+r.picker.service))
	pause, failed := firstRetry, false
	for ctx.Err() == nil {
		err := r.readUntilEnd(ctx)
		for _, pool := range r.pools {
			f.p.Table.ForgetPicker(pool, r.picker.address)
		}
		spoke := r.heard.Swap(false)
		if spoke {
			pause, failed = firstRetry, false
		}
		switch {
		case ctx.Err() != nil:
			return
		case !failed && !spoke:
			failed = true
			r.log.Warn("Could not follow the requests that wait in a picker, retrying: until then its models start when Prometheus shows that requests wait", zap.Error(err))
		default:
			r.log.Debug("The stream of a picker ended, following it again", zap.Error(err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)): // half to one and a half, so that pickers are not asked all at once
		}
		pause = min(2*pause, lastRetry)
	}
}
