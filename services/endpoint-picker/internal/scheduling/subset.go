package scheduling

import (
	"net/netip"
	"slices"
	"strings"
)

// A Subset contains the endpoints that the gateway allows: "ip:port", or an address for all of its ports. Other entries
// allow nothing.
type Subset struct {
	endpoints []netip.AddrPort
	addresses []netip.Addr
}

// ParseSubset parses a list of entries, each of which may be a comma-separated list.
func ParseSubset(entries []string) *Subset {
	s := &Subset{}
	for _, entry := range entries {
		for part := range strings.SplitSeq(entry, ",") {
			s.addEntry(strings.TrimSpace(part))
		}
	}
	return s
}

// Contains reports whether the endpoint is allowed. A nil Subset allows every endpoint.
func (s *Subset) Contains(endpoint netip.AddrPort) bool {
	return s == nil || slices.Contains(s.endpoints, endpoint) || slices.Contains(s.addresses, endpoint.Addr())
}

func (s *Subset) addEntry(entry string) {
	if e, err := netip.ParseAddrPort(entry); err == nil {
		s.endpoints = append(s.endpoints, netip.AddrPortFrom(e.Addr().Unmap(), e.Port()))
		return
	}
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(entry, "["), "]")); err == nil {
		s.addresses = append(s.addresses, a.Unmap())
	}
}
