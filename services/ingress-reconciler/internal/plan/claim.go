package plan

import (
	"cmp"
	"slices"

	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// WantedClaim is a claim of the service. Its component need not be ready.
type WantedClaim struct {
	ownership.Claim

	Role isvc.Role
}

// Claim returns the claim of an exposure.
func (e *Exposure) Claim() ownership.Claim {
	return ownership.Claim{Host: e.Host, Path: e.Path, Header: e.Model.Header, Value: e.Model.Name, Unordered: e.Unordered}
}

// RequestedClaims returns the claims to request from the ownership registry: the claims of the plan, ready if the plan has exposures for
// them, and the claims of existing objects.
func (p *Plan) RequestedClaims(live []ownership.Ask) []ownership.Ask {
	ready := map[ownership.Claim]bool{}
	for i := range p.Exposures {
		ready[p.Exposures[i].Claim()] = true
	}
	asks := slices.Clone(live)
	for _, w := range p.WantedClaims {
		asks = append(asks, ownership.Ask{Claim: w.Claim, Ready: ready[w.Claim]})
	}
	return asks
}

// RemoveRefused removes the exposures whose claims belong to another service, and adds the reasons.
func (p *Plan) RemoveRefused(refused map[ownership.Claim]ownership.Conflict) {
	if len(refused) == 0 {
		return
	}
	exposed := len(p.Exposures) > 0
	p.Exposures = slices.DeleteFunc(p.Exposures, func(e Exposure) bool {
		_, found := refused[e.Claim()]
		return found
	})
	if exposed && len(p.Exposures) == 0 {
		p.Strategy, p.Pool = "", nil
	}
	roles := map[ownership.Claim]isvc.Role{}
	for _, w := range p.WantedClaims {
		if _, found := roles[w.Claim]; !found {
			roles[w.Claim] = w.Role
		}
	}
	var reasons []Reason
	for claim, conflict := range refused {
		reasons = append(reasons, Reason{Role: roles[claim], Reason: ReasonHostConflict, Message: conflictMessage(claim, conflict)})
	}
	slices.SortFunc(reasons, func(a, b Reason) int { return cmp.Compare(a.Message, b.Message) })
	p.Reasons = append(p.Reasons, reasons...)
}

// conflictMessage names the InferenceService that owns a claim, or the claim that conflicts.
func conflictMessage(claim ownership.Claim, conflict ownership.Conflict) string {
	if claim.String() == conflict.Claim.String() {
		return claim.String() + " belongs to InferenceService " + conflict.Owner.String()
	}
	return claim.String() + " overlaps " + conflict.Claim.String() + ", which belongs to InferenceService " + conflict.Owner.String()
}
