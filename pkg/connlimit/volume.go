package connlimit

import "net/netip"

// A volume is the bytes of the bodies of all requests, with a limit.
type volume struct {
	limit, total int
	members      map[*conn]struct{} // those with bytes
	ofAddress    map[netip.Addr]int // sums of bytes
}

func newVolume(limit int) volume {
	return volume{limit: limit, members: map[*conn]struct{}{}, ofAddress: map[netip.Addr]int{}}
}

func (v *volume) addBytes(c *conn, n int) {
	if n == 0 {
		return
	}
	c.bytes += n
	v.total += n
	v.ofAddress[c.address] += n
	v.members[c] = struct{}{}
}

func (v *volume) removeConnection(c *conn) {
	v.total -= c.bytes
	if v.ofAddress[c.address] -= c.bytes; v.ofAddress[c.address] == 0 {
		delete(v.ofAddress, c.address)
	}
	delete(v.members, c)
	c.bytes = 0
}

// largestConnection returns the member with the most bytes, of the address with the most.
func (v *volume) largestConnection() (most *conn) {
	for c := range v.members {
		if most == nil || v.hasMoreBytes(c, most) {
			most = c
		}
	}
	return most
}

func (v *volume) hasMoreBytes(a, b *conn) bool {
	if ofA, ofB := v.ofAddress[a.address], v.ofAddress[b.address]; ofA != ofB {
		return ofA > ofB
	}
	return a.bytes > b.bytes
}
