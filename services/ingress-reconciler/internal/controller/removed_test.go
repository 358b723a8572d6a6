package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

func TestRemovedComponents(t *testing.T) {
	t.Parallel()
	l := removed{services: map[cache.ObjectName]map[isvc.Role]time.Time{}}
	start := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	both, alone := []isvc.Role{isvc.Router, isvc.Engine}, []isvc.Role{isvc.Engine}
	steps := []struct {
		name     string
		at       time.Duration
		named    []isvc.Role
		want     map[isvc.Role]bool
		wantNext time.Duration
	}{
		{name: "a router of the runtime never leaves", named: alone},
		{name: "a named component stays", at: time.Second, named: both},
		{name: "until it is not", at: 2 * time.Second, named: alone, want: map[isvc.Role]bool{isvc.Router: true}, wantNext: removedFor},
		{name: "for a while", at: 4 * time.Second, named: alone, want: map[isvc.Role]bool{isvc.Router: true}, wantNext: removedFor - 2*time.Second},
		{name: "then it is the runtime's", at: 2*time.Second + removedFor, named: alone},
		{name: "and goes on to be", at: time.Minute, named: alone},
		{name: "named again", at: 2 * time.Minute, named: both},
		{name: "leaving again", at: 2*time.Minute + 1, named: alone, want: map[isvc.Role]bool{isvc.Router: true}, wantNext: removedFor},
		{name: "named before the time is over", at: 2*time.Minute + 2, named: both},
	}
	for _, tt := range steps {
		s := &isvc.Service{Namespace: "models", Name: "chat", Components: map[isvc.Role]*isvc.Component{}}
		for _, r := range tt.named {
			s.Components[r] = &isvc.Component{}
		}
		got, next := l.observe(s, nil, start.Add(tt.at))
		assert.Equal(t, tt.want, got, tt.name)
		assert.Equal(t, tt.wantNext, next, tt.name)
	}
	l.forget(cache.ObjectName{Namespace: "models", Name: "chat"})
	assert.Empty(t, l.services)
}

func TestRemovedBeforeThisTerm(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	s := &isvc.Service{Namespace: "models", Name: "chat", Components: map[isvc.Role]*isvc.Component{isvc.Engine: {}}}
	router, removedRouter := []isvc.Role{isvc.Router}, map[isvc.Role]bool{isvc.Router: true}
	for at, want := range map[time.Duration]map[isvc.Role]bool{0: removedRouter, removedFor - 1: removedRouter, removedFor: nil} {
		fresh := removed{services: map[cache.ObjectName]map[isvc.Role]time.Time{}}
		fresh.observe(s, router, start)
		got, next := fresh.observe(s, router, start.Add(at))
		assert.Equal(t, want, got, at)
		assert.Equal(t, max(removedFor-at, 0), next, at)
	}
	l := removed{services: map[cache.ObjectName]map[isvc.Role]time.Time{}}
	named := &isvc.Service{Namespace: "models", Name: "named", Components: map[isvc.Role]*isvc.Component{isvc.Router: {}}}
	got, next := l.observe(named, router, start)
	assert.Empty(t, got, "the specification names the router")
	assert.Zero(t, next)
}
