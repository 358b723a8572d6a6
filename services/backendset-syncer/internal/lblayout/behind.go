package lblayout

import (
	"slices"
	"strings"

	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

// FindBehind returns the wanted objects that the load balancer does not have, or has otherwise.
func FindBehind(live *Live, wanted *Wanted) map[Ref]bool {
	b := &behindFinder{live: live, behind: map[Ref]bool{}}
	b.noteIndependent(wanted)
	for _, r := range wanted.RuleSets {
		have, found := live.RuleSets[r.Name]
		b.noteBehind(lbrecord.RuleSet, r.Name, found && have.Redirect != nil && *have.Redirect == *r.Redirect)
	}
	for i := range wanted.Policies {
		p := &wanted.Policies[i]
		have, found := live.Policies[p.Name]
		b.noteBehind(lbrecord.RoutingPolicy, p.Name,
			!found && len(p.Rules) == 0 || found && slices.Equal(p.mergeForeign(&have).Rules, have.Rules))
	}
	for i := range wanted.Listeners {
		l := &wanted.Listeners[i]
		have, found := live.Listeners[l.Name]
		b.noteBehind(lbrecord.Listener, l.Name, found && l.mergeLive(&have, wanted.RuleSetNames).isEqual(&have))
	}
	return b.behind
}

// behindFinder collects objects that are behind.
type behindFinder struct {
	live   *Live
	behind map[Ref]bool
}

// noteIndependent notes objects that refer to nothing.
func (b *behindFinder) noteIndependent(wanted *Wanted) {
	for _, h := range wanted.Hostnames {
		have, found := b.live.Hostnames[h.Name]
		b.noteBehind(lbrecord.Hostname, h.Name, found && strings.EqualFold(have.Hostname, h.Hostname))
	}
	for _, c := range wanted.Certificates {
		b.noteBehind(lbrecord.Certificate, c.Name, b.live.Certificates[c.Name])
	}
	for _, s := range wanted.Sets {
		_, found := b.live.Sets[s.Name]
		b.noteBehind(lbrecord.BackendSet, s.Name, found)
	}
}

func (b *behindFinder) noteBehind(kind lbrecord.Kind, name string, current bool) { //nolint:revive // the flag is what is noted
	if !current {
		b.behind[Ref{kind, name}] = true
	}
}
