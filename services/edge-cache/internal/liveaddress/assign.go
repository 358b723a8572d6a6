package liveaddress

import (
	"net/netip"
	"slices"
)

// assignAddresses gives each dead pod an address if there is no doubt. A pod keeps an address that still counts for it.
func (p *Prober) assignAddresses(dead []*pod, candidates []candidate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	missing, candidates := p.keepSettled(dead, candidates)
	fitting := map[string][]netip.Addr{}
	for _, c := range candidates {
		if identity, ok := onlyIdentity(dead, c); ok {
			fitting[identity] = append(fitting[identity], c.address)
		}
	}
	for identity, pods := range missing {
		free := fitting[identity]
		if len(free) > len(pods) {
			free = nil
		}
		for _, d := range pods {
			if i := slices.Index(free, p.guesses[d.uid].address); i >= 0 {
				p.guesses[d.uid] = guess{free[i], p.guesses[d.uid].rounds + 1}
				free = slices.Delete(free, i, i+1)
			} else {
				delete(p.guesses, d.uid)
			}
		}
		for _, d := range pods {
			if _, has := p.guesses[d.uid]; !has && len(free) > 0 {
				p.guesses[d.uid], free = guess{address: free[0]}, free[1:]
			}
		}
	}
}

// keepSettled returns the pods without a settled guess, by identity, and the addresses that no such guess has.
func (p *Prober) keepSettled(dead []*pod, candidates []candidate) (missing map[string][]*pod, free []candidate) {
	missing, free = map[string][]*pod{}, slices.Clone(candidates)
	for _, d := range dead {
		g := p.guesses[d.uid]
		i := slices.IndexFunc(free, func(c candidate) bool { return c.address == g.address && c.hasAllPorts(d) })
		if g.rounds >= settledRounds && i >= 0 {
			free = slices.Delete(free, i, i+1)
			continue
		}
		missing[d.serviceIdentity()] = append(missing[d.serviceIdentity()], d)
	}
	return missing, free
}

// hasAllPorts reports whether all ports of a pod answer.
func (c *candidate) hasAllPorts(d *pod) bool {
	return !slices.ContainsFunc(d.ports, func(port int) bool { return !slices.Contains(c.open, port) })
}

// onlyIdentity returns the identity of all dead pods that could have an address.
func onlyIdentity(dead []*pod, c candidate) (identity string, ok bool) {
	for _, d := range dead {
		if !c.hasAllPorts(d) {
			continue
		}
		if ok && identity != d.serviceIdentity() {
			return "", false
		}
		identity, ok = d.serviceIdentity(), true
	}
	return identity, ok
}
