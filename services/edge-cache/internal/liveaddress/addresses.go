package liveaddress

import (
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ReplaceAddresses replaces confirmed addresses of a slice in place, and notes the slice for those to confirm. It returns whether it
// replaced any.
func (r *Replacer) ReplaceAddresses(key string, s *discoveryv1.EndpointSlice) bool {
	if r.source == nil || s.AddressType == discoveryv1.AddressTypeFQDN {
		return false
	}
	if r.prober != nil {
		r.prober.ObserveSlice(key, s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := false
	var now map[stale]struct{}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		id, wrong := r.staleAddress(s.Namespace, e)
		if !wrong {
			continue
		}
		if now == nil {
			now = map[stale]struct{}{}
		}
		now[id] = struct{}{}
		if live, ok := r.liveByStale[id]; ok {
			e.Addresses = []string{live.String()}
			changed = true
		}
	}
	r.removeSlice(key, now)
	r.noteSlice(key, now)
	return changed
}

// staleAddress returns whether the runtime, as far as is known now, gives the endpoint's pod another address.
// The namespace must be that of the pod: a tenant that writes a slice can name any UID.
func (r *Replacer) staleAddress(namespace string, e *discoveryv1.Endpoint) (stale, bool) {
	if e.TargetRef == nil || e.TargetRef.Kind != "Pod" || e.TargetRef.UID == "" || len(e.Addresses) == 0 {
		return stale{}, false
	}
	uid, pod, ok := r.podOf(namespace, e)
	if !ok || pod.Namespace != namespace {
		return stale{}, false
	}
	_, wrong := liveAddress(e.Addresses[0], pod.Addresses)
	return stale{uid: uid, address: e.Addresses[0]}, wrong
}

// podOf returns the pod of this node that an endpoint names.
func (r *Replacer) podOf(namespace string, e *discoveryv1.Endpoint) (string, Pod, bool) {
	uid := string(e.TargetRef.UID)
	if pod, ok := r.pods[uid]; ok {
		return uid, pod, true
	}
	if e.NodeName == nil || *e.NodeName != r.node {
		return "", Pod{}, false
	}
	uid, ok := r.static[types.NamespacedName{Namespace: namespace, Name: e.TargetRef.Name}]
	return uid, r.pods[uid], ok
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

func (r *Replacer) noteSlice(key string, now map[stale]struct{}) {
	for id := range now {
		if r.slicesByStale[id] == nil {
			if len(r.slicesByStale) == maxMismatches {
				continue
			}
			r.slicesByStale[id] = map[string]struct{}{}
			r.pollNow.Send()
		}
		r.slicesByStale[id][key] = struct{}{}
		if r.staleBySlice[key] == nil {
			r.staleBySlice[key] = map[stale]struct{}{}
		}
		r.staleBySlice[key][id] = struct{}{}
	}
}

// removeSlice removes a slice from the stale addresses that it has no more.
func (r *Replacer) removeSlice(key string, now map[stale]struct{}) {
	for id := range r.staleBySlice[key] {
		if _, still := now[id]; still {
			continue
		}
		delete(r.staleBySlice[key], id)
		if delete(r.slicesByStale[id], key); len(r.slicesByStale[id]) == 0 {
			delete(r.slicesByStale, id)
			delete(r.liveByStale, id)
		}
	}
	if len(r.staleBySlice[key]) == 0 {
		delete(r.staleBySlice, key)
	}
}
