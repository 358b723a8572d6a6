package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/apply"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

func TestPace(t *testing.T) {
	t.Parallel()
	condition := func(status, reason, message string) *isvc.Condition {
		return &isvc.Condition{Status: metav1.ConditionStatus(status), Reason: reason, Message: message}
	}
	programmed, moved := condition("True", "Programmed", "a"), condition("True", "Programmed", "b")
	pending, refused := condition("Unknown", "ParentStatusNotAvailable", "a"), condition("False", "GatewayNotFound", "a")
	tests := []struct {
		name         string
		before, next *isvc.Condition
		want         time.Duration
	}{
		{name: "a new service waits for OME", next: condition("False", "ServiceNotFound", ""), want: settleTime},
		{name: "a new service waits for its component", next: condition("False", "ComponentNotReady", ""), want: settleTime},
		{name: "a new service is exposed", next: programmed},
		{name: "a new service has a problem", next: refused},
		{name: "the data plane is expected to act", before: programmed, next: pending, want: settleTime},
		{name: "it has acted", before: pending, next: programmed},
		{name: "another reason", before: refused, next: condition("False", "ListenerNotFound", "a")},
		{name: "another message", before: programmed, next: moved, want: settleTime},
	}
	for _, tt := range tests {
		var p conditionPacer
		p.clearAll()
		assert.Equal(t, tt.want, p.writeDelay(chat, tt.before, *tt.next, start), tt.name)
		assert.Equal(t, max(0, tt.want-time.Second), p.writeDelay(chat, tt.before, *tt.next, start.Add(time.Second)), tt.name)
		assert.Zero(t, p.writeDelay(chat, tt.before, *tt.next, start.Add(settleTime)), tt.name)
		assert.Empty(t, p.byName)
	}

	t.Log("Messages of several services are written one after the other, and what is due at once ends the wait")
	var p conditionPacer
	p.clearAll()
	for i, name := range []string{"a", "b", "c"} {
		assert.Equal(t, settleTime+time.Duration(i)*messageInterval, p.writeDelay(cache.ObjectName{Name: name}, programmed, *moved, start),
			name)
	}
	b := cache.ObjectName{Name: "b"}
	assert.Zero(t, p.writeDelay(b, programmed, *refused, start.Add(time.Second)))
	assert.NotContains(t, p.byName, b)
	p.forgetService(cache.ObjectName{Name: "a"})
	assert.Len(t, p.byName, 1)
}

// A state that will change by itself causes no write, and another reconcile.
func TestAStateThatWaitsIsNotWrittenAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, world, "ingressDomain: example.com")
	r.pacer.clearAll()
	r.applies(render.Ingresses, apply.Created, nil)
	require.ErrorContains(t, r.Reconcile(t.Context(), chat), "requeue after 2s: the condition is written if its state lasts")
}

// The wait ends when the stored condition is right again, and with the service. Without a configuration it is the same.
func TestWaitsEnd(t *testing.T) {
	t.Parallel()
	const stored = `, {type: fairlead.dev/Exposed, status: "False", reason: InvalidConfiguration, message: %s, severity: Info, ` +
		`lastTransitionTime: "2026-01-01T00:00:00Z"}]`
	with := func(message string) string {
		return strings.Replace(world, "}]}\n---", "}"+fmt.Sprintf(stored, message)+"}\n---", 1)
	}
	r := newRig(t, with("another problem"), "")
	r.pacer.clearAll()
	require.ErrorContains(t, r.Reconcile(t.Context(), chat), "requeue after 2s: the condition is written if its state lasts")
	assert.Contains(t, r.pacer.byName, chat)

	r = newRig(t, with("nothing is configured"), "")
	require.NoError(t, r.Reconcile(t.Context(), chat))
	assert.Empty(t, r.pacer.byName, "it is right again")

	r = newRig(t, strings.ReplaceAll(world, "name: chat,", "name: other,"), "ingressDomain: example.com")
	require.NoError(t, r.Reconcile(t.Context(), chat))
	assert.Empty(t, r.pacer.byName, "it was deleted")

	r.pacer.byName[chat] = start
	r.Clear()
	assert.Empty(t, r.pacer.byName, "another replica leads")
}
