package episode

import (
	"maps"
	"math"
	"slices"

	"fairlead.dev/services/variant-autoscaler/test/modelserver"
)

// Wake is the first request that waited for a pod.
type Wake struct {
	At      float64
	Variant string  // that served it
	Wait    float64 // for the first token, beyond the start of a pod of the variant
}

// holder is a scaler that the picker tells at once of the first request that waits for a model.
type holder interface {
	onHold(w *world, model string, at float64)
}

// held is a request that waits in the picker.
type held struct {
	*modelserver.Request

	model string
	first bool
}

type woken struct {
	*modelserver.Request

	variant *Variant
}

// countWakes adds the pods that were created, and the requests that waited for the first ones.
func (w *world) countWakes(r *Result) {
	r.Pods = map[string]int{}
	for _, d := range w.deployments {
		r.Pods[d.Name] = d.podNumber
	}
	for _, k := range w.wakes {
		r.Wakes = append(r.Wakes, Wake{At: k.Arrived, Variant: k.variant.Name, Wait: k.First - k.Arrived - k.variant.Start})
	}
}

type queued struct {
	at       float64
	requests int
}

// dispatchRequest sends a request to a pod, or holds it, and reports whether it is the first one that waits for its model.
func (w *world) dispatchRequest(a *Arrival) (first bool) {
	r := &modelserver.Request{Input: a.Input, Output: a.Output, Arrived: a.At}
	w.requests = append(w.requests, r)
	switch {
	case w.sendRequest(r, a.Model, a.At) != nil:
		return false
	case w.Hold > 0:
		first = !slices.ContainsFunc(w.held, func(h held) bool { return h.model == a.Model })
		w.held = append(w.held, held{r, a.Model, first})
	default:
		w.cut[r] = true
	}
	return first
}

// sendRequest sends a request to a pod, and returns its variant, nil if no pod is ready. Where servers have roles, one of each must be.
func (w *world) sendRequest(r *modelserver.Request, model string, at float64) *Variant {
	if w.hasRoles(model) {
		if w.Hold > 0 && w.readyAt(model) > at {
			return nil
		}
		return w.prefillRequest(model, r, at)
	}
	_, variant := w.submitTo(model, "", r, at)
	return variant
}

// submitTo sends a request to a pod with a role, and returns the pod and its variant, or nil if none is ready.
func (w *world) submitTo(model, role string, r *modelserver.Request, at float64) (*pod, *Variant) {
	var ready []*pod
	of := map[*pod]*Variant{}
	for _, d := range w.deployments {
		for _, p := range d.pods {
			if d.Model == model && d.Role == role && p.isServing(at) {
				ready = append(ready, p)
				of[p] = d.Variant
			}
		}
	}
	if len(ready) == 0 {
		return nil, nil
	}
	w.turn++
	best := ready[w.turn%len(ready)]
	if !w.RoundRobin {
		best = w.leastLoaded(ready, at)
	}
	best.requests = append(best.requests, r)
	best.server.Submit(at, r)
	w.picks = append(w.picks, at)
	return best, of[best]
}

// readyAt returns when each role of a model has a pod that is ready, infinity if none will be.
func (w *world) readyAt(model string) float64 {
	byRole := map[string]float64{}
	for _, d := range w.deployments {
		if d.Model != model {
			continue
		}
		at, found := byRole[d.Role]
		if !found {
			at = math.Inf(1)
		}
		for _, p := range d.pods {
			if p.ends > w.now {
				at = min(at, p.ready)
			}
		}
		byRole[d.Role] = at
	}
	return slices.Max(slices.Collect(maps.Values(byRole)))
}

// releaseHeld sends the requests that wait once a pod is ready, at the moment at which it is, and refuses those that waited for too long.
func (w *world) releaseHeld() {
	w.held = slices.DeleteFunc(w.held, func(h held) bool {
		at := min(w.now+1, max(w.readyAt(h.model), w.now))
		if min(at, w.now)-h.Arrived > w.Hold {
			w.cut[h.Request] = true
			return true
		}
		if at >= w.now+1 {
			return false
		}
		variant := w.sendRequest(h.Request, h.model, at)
		if h.first && variant != nil {
			w.wakes = append(w.wakes, woken{h.Request, variant})
		}
		return variant != nil
	})
}
