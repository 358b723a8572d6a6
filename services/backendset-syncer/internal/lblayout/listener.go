package lblayout

import (
	"cmp"
	"maps"
	"slices"

	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

// applyListener creates or changes a listener, if everything that it refers to exists and its port is free.
func (d *stepBuilder) applyListener(s Step) {
	if !d.isComplete(s.Listener) {
		return
	}
	if s.Action == Create {
		d.createListener(s)
		return
	}
	have := d.live.Listeners[s.Name]
	if s.Listener = s.Listener.mergeLive(&have, d.wanted.RuleSetNames); d.vacatePort(s.Listener) {
		d.steps = append(d.steps, s)
	}
}

// createListener creates a listener, if its port is free. At the limit, a listener that is not wanted goes first.
func (d *stepBuilder) createListener(s Step) {
	created := *s.Listener
	if created.TLS != nil && created.TLS.KeepCertificate {
		return // there is no certificate to keep
	}
	if !d.vacatePort(&created) {
		return
	}
	if len(d.live.Listeners) >= d.wanted.MaxListeners {
		for _, r := range d.wanted.Delete {
			if r.Kind == lbrecord.Listener && d.live.HasObject(r) {
				d.deleteObject(r.Kind, r.Name)
				return
			}
		}
	}
	created.IdleTimeout = cmp.Or(created.IdleTimeout, DefaultIdleTimeout)
	s.Listener = &created
	d.steps = append(d.steps, s)
}

// isComplete reports whether everything that a listener refers to exists.
func (d *stepBuilder) isComplete(l *Listener) bool {
	if _, found := d.live.Sets[l.DefaultSet]; !found {
		return false
	}
	if _, found := d.live.Policies[l.Policy]; l.Policy != "" && !found {
		return false
	}
	for _, name := range l.Hostnames {
		if _, found := d.live.Hostnames[name]; !found {
			return false
		}
	}
	for _, name := range l.RuleSets {
		if _, found := d.live.RuleSets[name]; !found {
			return false
		}
	}
	return l.TLS == nil || l.TLS.Certificate == "" || d.live.Certificates[l.TLS.Certificate]
}

// vacatePort deletes listeners of the program that cannot share the port of a listener, because it begins or ends to use TLS, or changes
// its protocols. It reports whether the port is free.
func (d *stepBuilder) vacatePort(l *Listener) bool {
	own := map[string]bool{}
	for i := range d.wanted.Listeners {
		own[d.wanted.Listeners[i].Name] = true
	}
	for _, r := range d.wanted.Delete {
		own[r.Name] = own[r.Name] || r.Kind == lbrecord.Listener
	}
	free := true
	for _, name := range slices.Sorted(maps.Keys(d.live.Listeners)) {
		other := d.live.Listeners[name]
		if name == l.Name || other.Port != l.Port || other.mayShare(l) {
			continue
		}
		free = false
		if own[name] && !d.isPlanned(lbrecord.Listener, name) {
			d.deleteObject(lbrecord.Listener, name)
		}
	}
	return free
}

func (d *stepBuilder) isPlanned(kind lbrecord.Kind, name string) bool {
	return slices.ContainsFunc(d.steps, func(s Step) bool { return s.Kind == kind && s.Name == name })
}

// mayShare reports whether two listeners can have the same port: both have hostnames, or one of them, and they do the same with
// connections.
func (l *Listener) mayShare(other *Listener) bool {
	if l.Protocol != other.Protocol || (l.TLS == nil) != (other.TLS == nil) {
		return false
	}
	if len(l.Hostnames) == 0 && len(other.Hostnames) == 0 ||
		slices.ContainsFunc(l.Hostnames, func(h string) bool { return slices.Contains(other.Hostnames, h) }) {
		return false
	}
	if l.TLS == nil || len(l.TLS.Protocols) == 0 || len(other.TLS.Protocols) == 0 {
		return true
	}
	return SameNames(l.TLS.Protocols, other.TLS.Protocols)
}

// mergeLive returns the wanted listener with what the live one has and the layout does not decide.
func (l *Listener) mergeLive(have *Listener, ownRuleSets map[string]bool) *Listener {
	next := *l
	next.IdleTimeout, next.RuleSets = cmp.Or(l.IdleTimeout, have.IdleTimeout), nil
	for _, name := range have.RuleSets {
		if !ownRuleSets[name] || slices.Contains(l.RuleSets, name) {
			next.RuleSets = append(next.RuleSets, name)
		}
	}
	for _, name := range l.RuleSets {
		if !slices.Contains(next.RuleSets, name) {
			next.RuleSets = append(next.RuleSets, name)
		}
	}
	if l.TLS == nil {
		return &next
	}
	own := *l.TLS
	next.TLS = &own
	if have.TLS == nil {
		return &next
	}
	if own.KeepCertificate {
		own.Certificate, own.CertificateIDs = have.TLS.Certificate, have.TLS.CertificateIDs
	}
	if len(own.Protocols) == 0 {
		own.Protocols = have.TLS.Protocols
	}
	own.CipherSuite, own.KeepCertificate = cmp.Or(own.CipherSuite, have.TLS.CipherSuite), false
	return &next
}

func (l *Listener) isEqual(other *Listener) bool {
	plain := l.DefaultSet == other.DefaultSet && l.Port == other.Port && l.Protocol == other.Protocol && l.Policy == other.Policy &&
		l.IdleTimeout == other.IdleTimeout
	return plain && SameNames(l.Hostnames, other.Hostnames) && slices.Equal(l.RuleSets, other.RuleSets) && l.TLS.isEqual(other.TLS)
}

func (t *TLS) isEqual(other *TLS) bool {
	if t == nil || other == nil {
		return t == other
	}
	return t.Certificate == other.Certificate && SameNames(t.CertificateIDs, other.CertificateIDs) &&
		SameNames(t.Protocols, other.Protocols) && t.CipherSuite == other.CipherSuite
}

// SameNames compares lists whose order does not matter.
func SameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
