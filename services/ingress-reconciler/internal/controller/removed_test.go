package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// In OME 1.2 no runtime adds a component, so a removed one never counts again, however slow OME is. In OME 1.3 it may belong to the
// runtime.
func TestRemovedComponents(t *testing.T) {
	t.Parallel()
	both, alone := []isvc.Role{isvc.Router, isvc.Engine}, []isvc.Role{isvc.Engine}
	router := map[isvc.Role]bool{isvc.Router: true}
	steps := []struct {
		name     string
		at       time.Duration
		named    []isvc.Role
		want12   map[isvc.Role]bool
		want13   map[isvc.Role]bool
		wantNext time.Duration // in OME 1.3
	}{
		{name: "a router of the runtime never leaves", named: alone},
		{name: "a named component stays", at: time.Second, named: both},
		{name: "until it is not", at: 2 * time.Second, named: alone, want12: router, want13: router, wantNext: runtimeGracePeriod},
		{
			name: "OME is 9 s behind", at: 11 * time.Second, named: alone, want12: router, want13: router,
			wantNext: runtimeGracePeriod - 9*time.Second,
		},
		{name: "then it is the runtime's", at: 2*time.Second + runtimeGracePeriod, named: alone, want12: router},
		{name: "and goes on to be", at: time.Hour, named: alone, want12: router},
		{name: "named again", at: 2 * time.Hour, named: both},
		{name: "leaving again", at: 2*time.Hour + 1, named: alone, want12: router, want13: router, wantNext: runtimeGracePeriod},
		{name: "named before the time is over", at: 2*time.Hour + 2, named: both},
	}
	old, current := removedComponents{}, removedComponents{}
	old.clearAll()
	current.clearAll()
	for _, tt := range steps {
		s := &isvc.Service{Namespace: "models", Name: "chat", Components: map[isvc.Role]*isvc.Component{}}
		for _, r := range tt.named {
			s.Components[r] = &isvc.Component{}
		}
		got, next := old.updateService(s, nil, start.Add(tt.at))
		assert.Equal(t, tt.want12, got, tt.name)
		assert.Zero(t, next, tt.name)
		s.RuntimeComponents = true
		got, next = current.updateService(s, nil, start.Add(tt.at))
		assert.Equal(t, tt.want13, got, tt.name)
		assert.Equal(t, tt.wantNext, next, tt.name)
	}
	old.forgetService(cache.ObjectName{Namespace: "models", Name: "chat"})
	assert.Empty(t, old.byName)
}

func TestRemovedBeforeThisTerm(t *testing.T) {
	t.Parallel()
	s := &isvc.Service{
		Namespace: "models", Name: "chat", Components: map[isvc.Role]*isvc.Component{isvc.Engine: {}}, RuntimeComponents: true,
	}
	router, removedRouter := []isvc.Role{isvc.Router}, map[isvc.Role]bool{isvc.Router: true}
	for at, want := range map[time.Duration]map[isvc.Role]bool{
		0: removedRouter, runtimeGracePeriod - 1: removedRouter, runtimeGracePeriod: nil,
	} {
		var fresh removedComponents
		fresh.clearAll()
		fresh.updateService(s, router, start)
		got, next := fresh.updateService(s, router, start.Add(at))
		assert.Equal(t, want, got, at)
		assert.Equal(t, max(runtimeGracePeriod-at, 0), next, at)
	}
	var l removedComponents
	l.clearAll()
	named := &isvc.Service{Namespace: "models", Name: "named", Components: map[isvc.Role]*isvc.Component{isvc.Router: {}}}
	got, next := l.updateService(named, router, start)
	assert.Empty(t, got, "the specification names the router")
	assert.Zero(t, next)
}
