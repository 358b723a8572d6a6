package gateways

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb"
)

// TestEvents has problems of a class, Gateways, listeners and routes: each new one has one Event, and its end has one, too.
func TestEvents(t *testing.T) {
	t.Parallel()
	inWorld(t, nil, func(w *world) {
		w.service("models", "chat", "1")
		w.gateway("web", `drainMaximumSeconds: "1"`, webListener)
		w.route("models", "chat", toChat)
		w.settle()
		assert.Empty(t, w.notes.take(), "an object without a problem needs no Event")
		assert.Equal(t, map[string]int{"Synced": 1}, w.notes.counts[balancerID])

		w.route("others", "thief", toChat)
		w.settle()
		w.settle()
		events := w.notes.take()
		require.Len(t, events, 1, "a problem that stays has one Event")
		assert.Contains(t, events[0], "HTTPRoute others/thief: Warning HostConflict: ")
		assert.Equal(t, map[string]int{"Synced": 1, "HostConflict": 1}, w.notes.counts[balancerID])
		w.service("others", "chat", "2")
		w.route("others", "thief", "hostnames: [own.example.com], "+toChat)
		w.settle()
		events = w.notes.take()
		require.Len(t, events, 1)
		assert.Contains(t, events[0], "HTTPRoute others/thief: Normal Synced: ")

		w.gateway("web", `drainMaximumSeconds: "1"`, webListener, strings.Replace(webListener, "name: http", "name: same", 1))
		w.settle()
		events = w.notes.take()
		require.Len(t, events, 1)
		assert.Contains(t, events[0], "Gateway infra/web: Warning HostnameConflict: listener same: ")
		w.gateway("typo", `drainMaximum: "1"`, webListener)
		w.settle()
		events = w.notes.take()
		require.Len(t, events, 1)
		assert.Contains(t, events[0], "Gateway infra/typo: Warning InvalidParameters: ")

		w.remove("HTTPRoute", "models", "chat")
		w.remove("HTTPRoute", "others", "thief")
		w.remove("Gateway", "infra", "web")
		w.settle()
		w.notes.mu.Lock()
		defer w.notes.mu.Unlock()
		assert.NotContains(t, w.notes.counts, balancerID, "a load balancer without Gateways is not counted")
	})
}

// TestEventsOfFailures has work requests that fail: the Gateway and the route have an Event, and another one when all is well.
func TestEventsOfFailures(t *testing.T) {
	t.Parallel()
	inWorld(t, nil, func(w *world) {
		w.calm = 12 * time.Minute
		w.SetFaults(ocilb.Fault{Kind: ocilb.FaultStatus, Status: 400, Code: "InvalidParameter", Operations: []string{"CreateListener"}})
		w.service("models", "chat", "1")
		w.gateway("web", `drainMaximumSeconds: "1"`, webListener)
		w.route("models", "chat", toChat)
		time.Sleep(30 * time.Minute)
		failed := strings.Join(w.notes.take(), "\n")
		assert.Contains(t, failed, "Gateway infra/web: Warning RequestRefused: ")
		assert.Contains(t, failed, "InvalidParameter")
		w.SetFaults()
		time.Sleep(30 * time.Minute)
		w.settle()
		recovered := strings.Join(w.notes.take(), "\n")
		assert.Contains(t, recovered, "Gateway infra/web: Normal Programmed: ")
	})
}
