package liveaddress

import (
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/services/edge-cache/internal/cri"
)

// replaceAddresses replaces confirmed addresses, and notes the slice for those to confirm.
func (a *Adjuster) replaceAddresses(key string, s *discoveryv1.EndpointSlice) bool {
	if a.source == nil || s.AddressType == discoveryv1.AddressTypeFQDN {
		return false
	}
	if a.prober != nil {
		a.prober.ObserveSlice(key, s)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	changed := false
	var now map[stale]struct{}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		id, wrong := a.staleAddress(s.Namespace, e)
		if !wrong {
			continue
		}
		if now == nil {
			now = map[stale]struct{}{}
		}
		now[id] = struct{}{}
		if live, ok := a.liveByStale[id]; ok {
			e.Addresses = []string{live.String()}
			changed = true
		}
	}
	a.forgetSlice(key, now)
	a.noteSlice(key, now)
	return changed
}

// staleAddress returns whether the runtime, as far as is known now, gives the endpoint's pod another address.
// The namespace must be that of the pod: who writes a slice can name any UID.
func (a *Adjuster) staleAddress(namespace string, e *discoveryv1.Endpoint) (stale, bool) {
	if e.TargetRef == nil || e.TargetRef.Kind != "Pod" || e.TargetRef.UID == "" || len(e.Addresses) == 0 {
		return stale{}, false
	}
	uid, pod, ok := a.podOf(namespace, e)
	if !ok || pod.Namespace != namespace {
		return stale{}, false
	}
	_, wrong := liveAddress(e.Addresses[0], pod.Addresses)
	return stale{uid: uid, address: e.Addresses[0]}, wrong
}

// podOf returns the pod of this node that an endpoint names.
func (a *Adjuster) podOf(namespace string, e *discoveryv1.Endpoint) (string, cri.Pod, bool) {
	uid := string(e.TargetRef.UID)
	if pod, ok := a.pods[uid]; ok {
		return uid, pod, true
	}
	if e.NodeName == nil || *e.NodeName != a.node {
		return "", cri.Pod{}, false
	}
	uid, ok := a.static[types.NamespacedName{Namespace: namespace, Name: e.TargetRef.Name}]
	return uid, a.pods[uid], ok
}

// liveAddress returns the address of a pod in the family of another address, unless that other address is the pod's own.
func liveAddress(address string, live []netip.Addr) (netip.Addr, bool) {
	have, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Addr{}, false
	}
	var found netip.Addr
	for _, candidate := range live {
		if candidate == have {
			return netip.Addr{}, false
		}
		if candidate.Is4() == have.Is4() && !found.IsValid() {
			found = candidate
		}
	}
	return found, found.IsValid()
}

func (a *Adjuster) noteSlice(key string, now map[stale]struct{}) {
	for id := range now {
		if a.slicesByStale[id] == nil {
			if len(a.slicesByStale) == maxMismatches {
				continue
			}
			a.slicesByStale[id] = map[string]struct{}{}
			wakeUp(a.pollNow)
		}
		a.slicesByStale[id][key] = struct{}{}
		if a.staleBySlice[key] == nil {
			a.staleBySlice[key] = map[stale]struct{}{}
		}
		a.staleBySlice[key][id] = struct{}{}
	}
}

// forgetSlice removes a slice from the wrong addresses that it has no more.
func (a *Adjuster) forgetSlice(key string, now map[stale]struct{}) {
	for id := range a.staleBySlice[key] {
		if _, still := now[id]; still {
			continue
		}
		delete(a.staleBySlice[key], id)
		if delete(a.slicesByStale[id], key); len(a.slicesByStale[id]) == 0 {
			delete(a.slicesByStale, id)
			delete(a.liveByStale, id)
		}
	}
	if len(a.staleBySlice[key]) == 0 {
		delete(a.staleBySlice, key)
	}
}
