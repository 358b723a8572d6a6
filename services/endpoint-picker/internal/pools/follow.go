package pools

import (
	"context"
	"fmt"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/ownership"
)

// The reasons of Events for pools that the picker does not serve.
const (
	reasonUnaddressed = "InvalidEndpointPickerRef"
	reasonShadowed    = "EndpointPickerRefConflict"
	reasonExcess      = "TooManyPools"
)

const kindService = "Service"

// followPools starts and stops the pools of InferencePools that come and go, until ctx ends.
func (r *Registry) followPools(ctx context.Context, running *sync.WaitGroup) {
	var synced []cache.InformerSynced
	for _, n := range r.namespaces {
		synced = append(synced, n.PoolsSynced) // a pool waits for its own pods
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return
	}
	r.updatePools(ctx, running)
	for _, p := range r.sortedPools() {
		r.starting.addPool(p.title, p.CheckReady)
	}
	close(r.read)
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
			r.updatePools(ctx, running)
		}
	}
}

// updatePools stops the pools that are not served anymore, runs those that are served now, and publishes their addresses.
func (r *Registry) updatePools(ctx context.Context, running *sync.WaitGroup) {
	served, refused := choosePools(r.selectedPools(), r.params.Config.Pool.MaxPools())
	wanted := map[string]bool{}
	for _, c := range served {
		wanted[c.Name.String()] = true
	}
	current := map[string]*Pool{}
	for _, p := range r.sortedPools() {
		if wanted[p.title] {
			current[p.title] = p
		} else {
			r.stopPool(p)
		}
	}
	members, appeared := make([]member, 0, len(served)), []func(){}
	unread := map[*poolNamespace]bool{} // with rules of pools that have appeared
	for _, c := range served {
		p := current[c.Name.String()]
		if p == nil {
			var run func()
			p, run = r.startPool(ctx, c.Name)
			appeared = append(appeared, run)
			unread[r.namespaces[c.Name.Namespace]] = true
		}
		members = append(members, member{title: p.title, address: c.address, pool: p})
	}
	for n := range unread {
		n.rules.Refresh()
	}
	r.replaceMembers(members)
	r.reportPools(len(served), refused)
	for _, run := range appeared {
		running.Go(run)
	}
}

// selectedPools returns the InferencePools that exist and that the flags select.
func (r *Registry) selectedPools() []candidate {
	from := &r.params.Config.Pool
	wanted := map[types.NamespacedName]bool{}
	for i := range from.Names {
		wanted[from.Names[i].AsNamespacedName()] = true
	}
	var found []candidate
	for _, n := range r.namespaces {
		for _, object := range n.AllPools() {
			c := candidate{Age: ownership.AgeOf(object), address: addressOf(object)}
			namesService := from.Service.Name != "" && c.address.service == from.Service.Name &&
				c.address.namespace == from.Service.Namespace
			if namesService || wanted[c.Name] {
				found = append(found, c)
			}
		}
	}
	return found
}

// startPool adds the pool of an InferencePool. It returns the function that runs it.
func (r *Registry) startPool(ctx context.Context, name types.NamespacedName) (added *Pool, run func()) {
	added, release := r.addInferencePool(name)
	ctx, cancel := context.WithCancel(ctx)
	added.stop = func() {
		cancel()
		release()
	}
	r.params.Log.Info("Started pool", zap.String(logging.KeyPool, added.title))
	return added, func() { added.Run(ctx) }
}

// stopPool ends a pool. Open streams end with their endpoints.
func (r *Registry) stopPool(p *Pool) {
	p.stop()
	r.starting.removePool(p.title)
	r.removePool(p.title)
	r.params.Log.Info("Stopped pool", zap.String(logging.KeyPool, p.title))
}

// reportPools reports the numbers of pools, and each pool that is not served for a new reason.
func (r *Registry) reportPools(served int, refused map[types.NamespacedName]string) {
	numbers := map[string]int{}
	for name, reason := range refused {
		numbers[reason]++
		if r.refused[name] != reason {
			r.reportRefused(name, reason)
		}
	}
	r.refused = refused
	r.observer.ObservePools(served, numbers)
}

func (r *Registry) reportRefused(name types.NamespacedName, reason string) {
	var event, message string
	switch reason {
	case unaddressed:
		event, message = reasonUnaddressed,
			"The endpoint picker cannot serve the InferencePool, because its endpointPickerRef is not the port of a Service: "+
				"name a Service of the picker and a port"
	case shadowed:
		event, message = reasonShadowed,
			"An older InferencePool has the same endpointPickerRef and gets its requests: give each pool its own Service or port"
	case excess:
		event, message = reasonExcess,
			fmt.Sprintf("The endpoint picker serves the %d oldest InferencePools that refer to it, and not this one: "+
				"raise its --max-pools, or run another picker", r.params.Config.Pool.Max)
	}
	r.params.Log.Warn("Pool gets no requests", zap.String(logging.KeyPool, name.String()), zap.String("reason", event),
		zap.String("message", message))
	reference := r.namespaces[name.Namespace].PoolReference(name.Name)
	r.params.Events.reportAbout(&reference, corev1.EventTypeWarning, event, message)
}

// addressOf returns the address of the picker in a pool's endpointPickerRef, zero if it is not a Service.
func addressOf(p *inferencev1.InferencePool) address {
	ref := p.Spec.EndpointPickerRef
	if ref == nil || ref.Kind != "" && ref.Kind != kindService || ref.Group != nil && *ref.Group != "" || ref.Port == nil {
		return address{}
	}
	return address{namespace: p.Namespace, service: string(ref.Name), port: int(ref.Port.Number)}
}
