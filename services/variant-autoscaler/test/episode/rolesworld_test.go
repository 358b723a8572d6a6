package episode

import (
	"cmp"
	"slices"

	"fairlead.dev/services/variant-autoscaler/test/modelserver"
)

// hasRoles reports whether requests of a model need two servers: one that prefills, and one that decodes.
func (w *world) hasRoles(model string) bool {
	return slices.ContainsFunc(w.Variants, func(v Variant) bool { return v.Model == model && v.Role != "" })
}

// prefillRequest sends a request to a prefill server. What the client sees is a request of its own.
func (w *world) prefillRequest(model string, client *modelserver.Request, at float64) *Variant {
	leg := &modelserver.Request{Input: client.Input, Output: 1, Arrived: at, Keep: true}
	p, variant := w.submitTo(model, "prefill", leg, at)
	if p != nil {
		w.legs = append(w.legs, &legs{model: model, client: client, prefill: leg, server: p.server})
	}
	return variant
}

// legs are the two requests to servers that one of a client needs.
type legs struct {
	model                   string
	client, prefill, decode *modelserver.Request
	server                  modelserver.Server // of the prefill
	fetched                 bool               // it needs the KV cache no more
}

// handOver sends requests whose prefill ended in this second to decode servers. These fetch the KV cache of the prompt when they begin with
// a request, and prefill servers keep it until then.
func (w *world) handOver() {
	if len(w.legs) == 0 {
		return
	}
	end := w.now + 1
	w.advanceRole("prefill", end)
	var due []*legs
	for _, l := range w.legs {
		if l.decode == nil && l.prefill.End > 0 && l.prefill.End+w.Transfer < end {
			due = append(due, l)
		}
	}
	slices.SortStableFunc(due, func(a, b *legs) int { return cmp.Compare(a.prefill.End, b.prefill.End) })
	for _, l := range due {
		l.decode = &modelserver.Request{
			Input: l.client.Input, Cached: l.client.Input - 1, Output: l.client.Output, Arrived: l.prefill.End + w.Transfer,
		}
		if p, _ := w.submitTo(l.model, "decode", l.decode, l.decode.Arrived); p == nil {
			w.cut[l.decode] = true
		}
	}
	w.advanceRole("decode", end)
	for _, l := range w.legs {
		if !l.fetched && l.decode != nil && l.decode.First > 0 {
			l.fetched = true
			l.server.(releaser).Release(end, l.prefill)
		}
	}
}

// advanceRole lets the servers of a role compute until a time.
func (w *world) advanceRole(role string, to float64) {
	for _, d := range w.deployments {
		for _, p := range d.pods {
			if d.Role == role {
				p.server.Advance(to)
			}
		}
	}
}

// releaser is a server that keeps KV caches.
type releaser interface {
	Release(now float64, r *modelserver.Request)
}

// finishRoles lets all requests with two legs end, and gives the clients what they see: the tokens come from the decode server.
func (w *world) finishRoles() {
	for ; w.now < w.End+finishTime; w.now++ {
		if !slices.ContainsFunc(w.legs, func(l *legs) bool { return l.decode == nil && !w.cut[l.prefill] }) {
			break
		}
		w.handOver()
	}
	for _, d := range w.deployments {
		for _, p := range d.pods {
			p.server.Advance(w.End + finishTime)
		}
	}
	for _, l := range w.legs {
		if l.decode == nil || w.cut[l.prefill] || w.cut[l.decode] {
			w.cut[l.client] = true
			continue
		}
		l.client.First, l.client.End = l.decode.First, l.decode.End
	}
}
