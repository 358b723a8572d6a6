package ownership

import "strings"

// Domains are the domains in which an owner may have hosts: each domain itself, and every name below it.
type Domains []string

// Contain reports whether a host lies in one of the domains.
func (d Domains) Contain(host string) bool {
	for _, domain := range d {
		if host == domain || strings.HasSuffix(host, "."+domain) {
			return true
		}
	}
	return false
}

// FirstElement returns the first element of a path, empty for the root.
func FirstElement(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, root), root)
	return first
}
