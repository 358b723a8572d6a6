package connlimit

import "net/netip"

// A group is a set of connections of limited size.
type group struct {
	limit     int // 0 for no limit
	members   map[*conn]struct{}
	ofAddress map[netip.Addr]int // numbers of members
}

func newGroup(limit int) group {
	return group{limit: limit, members: map[*conn]struct{}{}, ofAddress: map[netip.Addr]int{}}
}

// addMember adds a connection. It returns the member to remove, if the group is too large now. That is never the new one, because it is
// the last arrival.
func (g *group) addMember(c *conn) (excess *conn) {
	c.group = g
	g.members[c] = struct{}{}
	g.ofAddress[c.address]++
	if g.limit == 0 || len(g.members) <= g.limit {
		return nil
	}
	for m := range g.members {
		if excess == nil || g.leavesBefore(m, excess) {
			excess = m
		}
	}
	return excess
}

// leavesBefore reports whether a has to leave before b: its address has more members, or as many and it arrived earlier.
func (g *group) leavesBefore(a, b *conn) bool {
	if ofA, ofB := g.ofAddress[a.address], g.ofAddress[b.address]; ofA != ofB {
		return ofA > ofB
	}
	return a.arrival < b.arrival
}

func (g *group) removeMember(c *conn) {
	c.group = nil
	delete(g.members, c)
	if g.ofAddress[c.address]--; g.ofAddress[c.address] == 0 {
		delete(g.ofAddress, c.address)
	}
}
