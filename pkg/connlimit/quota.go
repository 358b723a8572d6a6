package connlimit

import "net/netip"

// A quota limits the sum of what its connections hold: their number, or the bytes of their bodies.
type quota struct {
	limit     int // 0 for no limit
	total     int
	members   map[*conn]int      // what each holds
	ofAddress map[netip.Addr]int // sums
}

func newQuota(limit int) quota {
	return quota{limit: limit, members: map[*conn]int{}, ofAddress: map[netip.Addr]int{}}
}

// addAmount adds to what a connection holds.
func (q *quota) addAmount(c *conn, n int) {
	if n == 0 {
		return
	}
	q.members[c] += n
	q.total += n
	q.ofAddress[c.address] += n
}

func (q *quota) removeMember(c *conn) {
	n := q.members[c]
	q.total -= n
	if q.ofAddress[c.address] -= n; q.ofAddress[c.address] == 0 {
		delete(q.ofAddress, c.address)
	}
	delete(q.members, c)
}

// isExceeded reports whether a member has to leave.
func (q *quota) isExceeded() bool { return q.limit > 0 && q.total > q.limit }

// nextToLeave returns the member that has to leave first.
func (q *quota) nextToLeave() (first *conn) {
	for c := range q.members {
		if first == nil || q.leavesBefore(c, first) {
			first = c
		}
	}
	return first
}

// leavesBefore reports whether a has to leave before b: its address holds more, or as much and it holds more itself, or as much and it
// arrived earlier.
func (q *quota) leavesBefore(a, b *conn) bool {
	if ofA, ofB := q.ofAddress[a.address], q.ofAddress[b.address]; ofA != ofB {
		return ofA > ofB
	}
	if q.members[a] != q.members[b] {
		return q.members[a] > q.members[b]
	}
	return a.arrival < b.arrival
}
