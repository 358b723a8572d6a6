package probe

import (
	"net/netip"
	"slices"
)

// assign gives each dead pod an address if there is no doubt. A pod keeps an address that still counts for it.
func (p *Prober) assign(dead []*pod, candidates []candidate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	missing, candidates := p.keep(dead, candidates)
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
			if i := slices.Index(free, p.found[d.uid].address); i >= 0 {
				p.found[d.uid] = guess{free[i], p.found[d.uid].rounds + 1}
				free = slices.Delete(free, i, i+1)
			} else {
				delete(p.found, d.uid)
			}
		}
		for _, d := range pods {
			if _, has := p.found[d.uid]; !has && len(free) > 0 {
				p.found[d.uid], free = guess{address: free[0]}, free[1:]
			}
		}
	}
}

// keep returns the pods without a settled guess, by identity, and the addresses that no such guess has.
func (p *Prober) keep(dead []*pod, candidates []candidate) (missing map[string][]*pod, free []candidate) {
	missing, free = map[string][]*pod{}, slices.Clone(candidates)
	for _, d := range dead {
		g := p.found[d.uid]
		i := slices.IndexFunc(free, func(c candidate) bool { return c.address == g.address && c.fits(d) })
		if g.rounds >= settled && i >= 0 {
			free = slices.Delete(free, i, i+1)
			continue
		}
		missing[d.identity()] = append(missing[d.identity()], d)
	}
	return missing, free
}

// fits reports whether all ports of a pod answer.
func (c *candidate) fits(d *pod) bool {
	return !slices.ContainsFunc(d.ports, func(port int) bool { return !slices.Contains(c.open, port) })
}

// onlyIdentity returns the identity of all dead pods that could have an address.
func onlyIdentity(dead []*pod, c candidate) (identity string, ok bool) {
	for _, d := range dead {
		if !c.fits(d) {
			continue
		}
		if ok && identity != d.identity() {
			return "", false
		}
		identity, ok = d.identity(), true
	}
	return identity, ok
}
