package episode

import (
	"math"

	"go.uber.org/zap"

	external "fairlead.dev/services/variant-autoscaler/internal/externalscaler"
	"fairlead.dev/services/variant-autoscaler/internal/holds"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// What KEDA does by default, as https://keda.sh/docs/2.20/reference/scaledobject-spec/ says: it looks at triggers every 30 s, and removes
// the last replica 5 minutes after a trigger was active. A trigger that pushes is heard at once.
const (
	kedaPoll     = 30
	kedaCooldown = 300
	// pushDelay is the time from a request that waits to the creation of a pod, in seconds.
	pushDelay = 0.2
)

// keda is KEDA with the external scaler of this service, beside the picker's stream of holds.
type keda struct {
	*external.Table

	autoscaler *autoscaler
	waits      *holds.Table
	waker      *holds.Waker
	active     []float64 // when each deployment last was
}

func newKEDA(a *autoscaler) *keda {
	k := &keda{Table: external.NewTable(), autoscaler: a, waits: holds.NewTable()}
	k.waker = holds.NewWaker(holds.WakerParams{Log: zap.NewNop(), Table: k.Table, CountWakeUp: k.CountWakeUp, Enqueue: k.Enqueue})
	k.waits.OnHold(k.waker.OnHold)
	return k
}

// CountWakeUp implements the meter of a Waker.
func (*keda) CountWakeUp() {}

// Enqueue asks for a pass.
func (k *keda) Enqueue() { k.autoscaler.next = min(k.autoscaler.next, k.autoscaler.world.now+2) } // the pause of passes

// WatchModels begins a pass.
func (k *keda) WatchModels(models []snapshot.ModelKey) { k.waits.SetModels(models) }

// CountWaiting returns the requests that wait for a model.
func (k *keda) CountWaiting(key snapshot.ModelKey) (now, since int, watched bool) {
	return k.waits.CountWaiting(key)
}

func (k *keda) stepSecond(w *world) {
	k.autoscaler.stepSecond(w)
	k.observeWaits(w)
	k.setReplicas(w, w.now)
}

// onHold tells of a request that waits.
func (k *keda) onHold(w *world, _ string, at float64) {
	k.observeWaits(w)
	k.setReplicas(w, at+pushDelay)
}

func (k *keda) observeWaits(w *world) {
	waiting := map[string]int{}
	for _, h := range w.held {
		waiting[h.model]++
	}
	k.waits.Observe(snapshot.PoolKey{Namespace: "ns", Name: poolName}, "picker", waiting)
}

// setReplicas sets the replicas: to and from zero at once, and otherwise every 15 s.
func (k *keda) setReplicas(w *world, at float64) {
	if k.active == nil {
		k.active = make([]float64, len(w.deployments))
	}
	for i, d := range w.deployments {
		n, err := k.Lookup(external.Query{Namespace: "ns", Variant: d.Name})
		switch second := int(w.now); {
		case err != nil:
		case n == 0:
			if w.now-k.active[i] >= kedaCooldown {
				d.wanted = 0
			}
		case d.wanted == 0:
			k.active[i], d.wanted = at, 1
			w.createPod(d, at)
		default:
			if k.active[i] = at; second%hpaEvery == 7 { // between two scrapes
				k.autoscaler.hpas[i].syncReplicas(d, w.now, float64(n))
			}
		}
	}
}

// kedaQueue is KEDA without this service: each variant has a ScaledObject whose trigger is the number of requests in the picker's queue and
// in the servers, as Prometheus has it.
type kedaQueue struct {
	each   float64 // requests that a replica may have
	hpas   []hpa
	active float64
}

// KEDAQueue returns the law, with KEDA's defaults.
func KEDAQueue(each float64) func(*Scenario) scaler {
	return func(s *Scenario) scaler {
		k := &kedaQueue{each: each, active: math.Inf(-1)}
		for range s.Variants {
			k.hpas = append(k.hpas, hpa{tolerance: 0.1, window: 300, up: func(n int) int { return n + max(n, 4) }, upPeriod: 15})
		}
		return k
	}
}

func (k *kedaQueue) stepSecond(w *world) {
	second, requests := int(w.now), w.scrapedRequests()
	if second%kedaPoll == 0 && requests > 0 {
		k.active = w.now
	}
	for i, d := range w.deployments {
		switch {
		case w.now-k.active >= kedaCooldown:
			d.wanted = 0
		case d.wanted == 0 && k.active == w.now:
			d.wanted = 1
		case d.wanted > 0 && second%hpaEvery == 7: // between two scrapes
			k.hpas[i].syncReplicas(d, w.now, max(requests/k.each, 1))
		}
	}
}

// scrapedRequests returns the requests in the picker and in all servers at their last scrapes.
func (w *world) scrapedRequests() float64 {
	requests := float64(w.queues[len(w.queues)-1].requests)
	for _, d := range w.deployments {
		for _, p := range d.pods {
			if p.isServing(w.now) && len(p.scrapes) > 0 {
				page := &p.scrapes[len(p.scrapes)-1].page
				requests += page.Running + page.Waiting
			}
		}
	}
	return requests
}
