package gateways

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
	"fairlead.dev/pkg/testlane"
)

const secureListener = "{name: https, port: 443, protocol: HTTPS, hostname: a.example.com, tls: {certificateRefs: [{name: tls}]}, " +
	"allowedRoutes: {namespaces: {from: All}}}"

// secret writes a certificate for a.example.com.
func (w *world) secret(by *ocilbtest.Authority) {
	w.t.Helper()
	certificate, key := by.Issue(w.t, "a.example.com")
	w.apply(fmt.Sprintf(
		"apiVersion: v1\nkind: Secret\nmetadata: {name: tls, namespace: infra}\ntype: kubernetes.io/tls\ndata: {tls.crt: %s, "+
			"tls.key: %s}\n",
		encode(certificate), encode(key)))
}

// testLife creates a Gateway with routes and a certificate, changes everything under load, and deletes it.
func testLife(w *world) {
	first, second := ocilbtest.NewAuthority(w.t), ocilbtest.NewAuthority(w.t)
	w.secret(first)
	w.service("models", "chat", "1 2")
	w.service("models", "embed", "3")
	w.gateway("web", `drainMaximumSeconds: "60"`, webListener, secureListener)
	w.route("models", "chat", "rules: [{backendRefs: [{name: chat, port: 80}]}]")
	w.settle()
	assert.Equal(w.t, "True/Programmed", w.gatewayCondition("web", "Programmed"))
	assert.Equal(w.t, "True/Accepted", w.routeCondition("models", "chat", "Accepted"))
	assert.Equal(w.t, "True/Synced", w.routeCondition("models", "chat", gatewaySynced))
	plain, old, renewed := w.client(80, nil), w.client(443, first), w.client(443, second)
	stop := w.load(func() string { return get(plain, "http://b.example.com/") }, oneOf("200 chat", "200 embed"))
	secure := w.load(func() string {
		if got := get(old, "https://a.example.com/"); strings.HasPrefix(got, "200") {
			return got
		}
		return get(renewed, "https://a.example.com/")
	}, oneOf("200 chat", "200 embed"))
	w.secret(second)
	w.route("models", "chat", "rules: [{backendRefs: [{name: embed, port: 80}]}]")
	time.Sleep(20 * time.Second)
	w.service("models", "chat", "2 4")
	w.route("models", "chat", "rules: [{backendRefs: [{name: chat, port: 80, weight: 3}, {name: embed, port: 80}]}]")
	w.settle()
	stop()
	secure()
	assert.Contains(w.t, []string{"200 chat", "200 embed"}, get(renewed, "https://a.example.com/"))
	assert.Len(w.t, w.names()["certificates"], 1)
	assert.Equal(w.t, "True/Accepted", w.routeCondition("models", "chat", "Accepted"))
	w.remove("HTTPRoute", "models", "chat")
	w.remove("Gateway", "infra", "web")
	w.settle()
	for kind, names := range w.names() {
		assert.Empty(w.t, names, kind)
	}
	if w.t.Failed() {
		w.logRefusals()
	}
}

// TestFaults lives with answers that are lost; in the long lane also with requests that fail, and with work requests that fail.
func TestFaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		modes  func(m *ocilb.Modes)
		faults []ocilb.Fault
	}{
		{name: "answers are lost", faults: []ocilb.Fault{{Kind: ocilb.FaultLost, Rate: 0.2}}},
		{name: "work requests fail", modes: func(m *ocilb.Modes) { m.FailEvery = 3 }},
		{name: "work requests fail and have their effect", modes: func(m *ocilb.Modes) { m.FailEvery, m.Partial = 3, true }},
		{
			name:   "the service is unavailable",
			faults: []ocilb.Fault{{Kind: ocilb.FaultStatus, Status: 503, Code: "ServiceUnavailable", Rate: 0.3}},
		},
		{name: "connections are reset", faults: []ocilb.Fault{{Kind: ocilb.FaultReset, Rate: 0.3}}},
	}
	for _, tt := range tests[:testlane.Repetitions(1, len(tests))] {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			modes := ocilb.DefaultOptions().Modes
			if tt.modes != nil {
				tt.modes(&modes)
			}
			inWorld(t, &modes, func(w *world) {
				w.SetFaults(tt.faults...)
				// longer than any delay after a failure
				w.pace, w.calm = time.Duration(testlane.Repetitions(30, 2))*time.Second, 12*time.Minute
				testLife(w)
			})
		})
	}
}

// TestRestart restarts the program at steps of a new Gateway: the record and the work requests are all that it needs.
func TestRestart(t *testing.T) {
	t.Parallel()
	seconds := []time.Duration{2, 11, 0, 5, 8, 15, 20, 30}
	for _, after := range seconds[:testlane.Repetitions(2, len(seconds))] {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			inWorld(t, nil, func(w *world) {
				w.service("models", "chat", "1 2")
				w.gateway("web", `drainMaximumSeconds: "60"`, webListener)
				w.route("models", "chat", "rules: [{backendRefs: [{name: chat, port: 80}]}]")
				time.Sleep(after * time.Second)
				w.stop()
				w.start()
				w.changed()
				w.settle()
				assert.Equal(t, "200 chat", get(w.client(80, nil), "http://b.example.com/"))
				assert.Equal(t, "True/Programmed", w.gatewayCondition("web", "Programmed"))
				assert.Len(t, w.names()["sets"], 2)
				require.NotEmpty(t, w.names()["policies"])
			})
		})
	}
}
