package layout

import (
	"slices"
	"strings"

	"fairlead.dev/services/backendset-syncer/internal/record"
)

// Behind returns the wanted objects that the load balancer does not have, or has otherwise.
func Behind(live *Live, wanted *Wanted) map[Ref]bool {
	b := &lag{live: live, behind: map[Ref]bool{}}
	b.plain(wanted)
	for _, r := range wanted.RuleSets {
		have, found := live.RuleSets[r.Name]
		b.note(record.RuleSet, r.Name, found && have.Redirect != nil && *have.Redirect == *r.Redirect)
	}
	for i := range wanted.Policies {
		p := &wanted.Policies[i]
		have, found := live.Policies[p.Name]
		b.note(record.RoutingPolicy, p.Name, !found && len(p.Rules) == 0 || found && slices.Equal(p.over(&have).Rules, have.Rules))
	}
	for i := range wanted.Listeners {
		l := &wanted.Listeners[i]
		have, found := live.Listeners[l.Name]
		b.note(record.Listener, l.Name, found && l.over(&have, wanted.RuleSetNames).equal(&have))
	}
	return b.behind
}

// lag collects objects that are behind.
type lag struct {
	live   *Live
	behind map[Ref]bool
}

// plain notes objects that refer to nothing.
func (b *lag) plain(wanted *Wanted) {
	for _, h := range wanted.Hostnames {
		have, found := b.live.Hostnames[h.Name]
		b.note(record.Hostname, h.Name, found && strings.EqualFold(have.Hostname, h.Hostname))
	}
	for _, c := range wanted.Certificates {
		b.note(record.Certificate, c.Name, b.live.Certificates[c.Name])
	}
	for _, s := range wanted.Sets {
		_, found := b.live.Sets[s.Name]
		b.note(record.BackendSet, s.Name, found)
	}
}

func (b *lag) note(kind record.Kind, name string, current bool) { //nolint:revive // the flag is what is noted
	if !current {
		b.behind[Ref{kind, name}] = true
	}
}
