package plan

import (
	"net/netip"
	"slices"
)

// WantedBackends returns the wanted backends of a set: the current ones in their order, then the new ones. A backend that stays keeps
// what the target does not decide: its limit of connections, and whether it is a backup or offline.
func (t *Target) WantedBackends(current []Backend, weight func(netip.AddrPort) int) []Backend {
	drain := make(map[netip.AddrPort]Leaving, len(t.Draining))
	for _, l := range t.Draining {
		drain[l.Address] = l
	}
	wanted := make([]Backend, 0, len(t.Active)+len(t.Draining))
	for _, b := range current {
		leaving, drains := drain[b.Address]
		if !drains && !t.isActive(b.Address) {
			continue
		}
		b.Weight = weight(b.Address)
		if !leaving.Unchanged {
			b.Drain = drains
		}
		wanted = append(wanted, b)
	}
	for _, address := range t.Active {
		if !t.current[address] {
			wanted = append(wanted, Backend{Address: address, Weight: weight(address)})
		}
	}
	return wanted
}

// Changes are the differences between the current and the wanted backends of a set. Each list is sorted by address.
type Changes struct {
	Create, Update, Delete []Backend
}

// Len returns the number of changes.
func (c *Changes) Len() int { return len(c.Create) + len(c.Update) + len(c.Delete) }

// Diff returns the changes that turn the current backends into the wanted ones.
func Diff(current, wanted []Backend) Changes {
	before := make(map[netip.AddrPort]Backend, len(current))
	for _, b := range current {
		before[b.Address] = b
	}
	var c Changes
	for _, b := range wanted {
		was, exists := before[b.Address]
		delete(before, b.Address)
		switch {
		case !exists:
			c.Create = append(c.Create, b)
		case was != b:
			c.Update = append(c.Update, b)
		}
	}
	for _, b := range before {
		c.Delete = append(c.Delete, b)
	}
	for _, list := range [][]Backend{c.Create, c.Update, c.Delete} {
		slices.SortFunc(list, func(a, b Backend) int { return a.Address.Compare(b.Address) })
	}
	return c
}
