package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

func at(host string) ownership.Claim { return ownership.Claim{Host: host, Path: "/"} }

func TestAsks(t *testing.T) {
	t.Parallel()
	live := []ownership.Ask{{Claim: at("old.example.com"), Live: time.Unix(7, 0)}}
	in := input(t, byGateway+"componentHosts: true\n", isvc.Router, isvc.Engine)
	in.Service.Conditions = in.Service.Conditions[:1] // the engine is not ready
	p := build(t, in)
	assert.Equal(t, []ownership.Ask{
		live[0], {Claim: at("chat.models.example.com"), Ready: true}, {Claim: at("chat-engine.models.example.com")},
	}, p.RequestedClaims(live), "the plan requests the claim of a component that is not ready")
}

func TestWantsDoNotDependOnReadiness(t *testing.T) {
	t.Parallel()
	in := input(t, byGateway+"additionalIngressDomains: [example.org]\n", isvc.Engine)
	want := []WantedClaim{
		{Claim: at("chat.models.example.com"), Role: isvc.Engine}, {Claim: at("chat.models.example.org"), Role: isvc.Engine},
	}
	assert.Equal(t, want, build(t, in).WantedClaims)
	in.Service.Conditions = nil
	assert.Equal(t, want, build(t, in).WantedClaims, "not ready")
	in.Services = nil
	assert.Equal(t, want, build(t, in).WantedClaims, "without a Service")
	in.Settings.Domains, in.Settings.Restricted = ownership.Domains{"example.com"}, true
	assert.Equal(t, want[:1], build(t, in).WantedClaims, "the plan does not request a host that is not allowed")
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	owner := ownership.Owner{Namespace: "victim", Name: "chat"}
	in := input(t, byGateway+"additionalIngressDomains: [example.org]\n", isvc.Engine)
	p := build(t, in)
	p.RemoveRefused(nil)
	assert.Len(t, p.Exposures, 2)
	assert.Empty(t, p.Reasons)

	p.RemoveRefused(map[ownership.Claim]ownership.Conflict{
		at("chat.models.example.org"): {Owner: owner, Claim: at("chat.models.example.org")},
	})
	assert.Equal(t, []string{"chat.models.example.com/ -> chat-engine:8080 by gateways/public"}, lines(p))
	assert.Equal(t, []Reason{{
		Role: isvc.Engine, Reason: ReasonHostConflict, Message: "chat.models.example.org/ belongs to InferenceService victim/chat",
	}}, p.Reasons)
	assert.NotEmpty(t, p.Strategy)

	p.Reasons = nil
	p.RemoveRefused(map[ownership.Claim]ownership.Conflict{
		at("chat.models.example.com"): {Owner: owner, Claim: ownership.Claim{Host: "chat.models.example.com", Path: "/v1/"}},
		at("old.example.com"):         {Owner: owner, Claim: at("old.example.com")}, // an existing object has this claim, the plan does not
	})
	assert.Empty(t, p.Exposures)
	assert.Empty(t, p.Strategy)
	assert.Equal(t, []Reason{
		{
			Role: isvc.Engine, Reason: ReasonHostConflict,
			Message: "chat.models.example.com/ overlaps chat.models.example.com/v1/, which belongs to InferenceService victim/chat",
		},
		{Reason: ReasonHostConflict, Message: "old.example.com/ belongs to InferenceService victim/chat"},
	}, p.Reasons)
}
