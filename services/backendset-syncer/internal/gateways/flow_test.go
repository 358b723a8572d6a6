package gateways

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const webListener = "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"

func oneOf(all ...string) func(string) bool {
	return func(got string) bool {
		for _, a := range all {
			if got == a {
				return true
			}
		}
		return false
	}
}

// TestRouteChanges changes a route in every way under load: no request fails, and streams run to their end.
func TestRouteChanges(t *testing.T) {
	t.Parallel()
	inWorld(t, nil, func(w *world) {
		w.service("models", "chat", "1 2")
		w.service("models", "embed", "3")
		w.gateway("web", `drainMaximumSeconds: "60"`, webListener)
		w.route("models", "chat", "hostnames: [chat.example.com], rules: [{backendRefs: [{name: chat, port: 80}]}]")
		w.settle()
		assert.Equal(t, "True/Accepted", w.routeCondition("models", "chat", "Accepted"))
		assert.Equal(t, "True/Synced", w.routeCondition("models", "chat", gatewaySynced))
		client := w.client(80, nil)
		stop := w.load(func() string { return get(client, "http://chat.example.com/v1") }, oneOf("200 chat", "200 embed"))
		slow := w.load(func() string { return get(client, "http://chat.example.com/slow") }, oneOf("200 "+strings.Repeat(".", 20)))
		for i, rules := range []string{
			"[{matches: [{path: {value: /v1}}, {path: {value: /slow}}], backendRefs: [{name: chat, port: 80}]}, {backendRefs: [{name: " +
				"embed, port: 80}]}]",
			"[{backendRefs: [{name: embed, port: 80}]}]",
			"[{backendRefs: [{name: chat, port: 80, weight: 9}, {name: embed, port: 80, weight: 1}]}]",
			"[{backendRefs: [{name: chat, port: 80, weight: 1}, {name: embed, port: 80, weight: 9}]}]",
			"[{backendRefs: [{name: chat, port: 80}]}]",
			"[{backendRefs: [{name: embed, port: 80}]}]",
			"[{backendRefs: [{name: chat, port: 80}]}]",
		} {
			w.route("models", "chat", "hostnames: [chat.example.com], rules: "+rules)
			time.Sleep(time.Duration(7*i+1) * time.Second)
		}
		w.service("models", "chat", "2:finishing 4")
		w.settle()
		stop()
		slow()
		assert.Equal(t, "True/Accepted", w.routeCondition("models", "chat", "Accepted"))
		w.ForgetCalls()
		w.service("models", "chat", "4 5")
		w.settle()
		assert.Empty(t, w.layoutWrites(), "an event of endpoints changes no listener and no policy")
		assert.Len(t, w.names()["sets"], 2, "sets that no route needs are deleted after they have drained")
		w.remove("HTTPRoute", "models", "chat")
		w.remove("Gateway", "infra", "web")
		w.settle()
		for kind, names := range w.names() {
			assert.Empty(t, names, kind)
		}
		require.Empty(t, w.errs)
	})
}

const gatewaySynced = "fairlead.dev/BackendsSynced"

// TestHostnameListeners has several hostnames on one port, and renames a listener: nothing is written for it.
func TestHostnameListeners(t *testing.T) {
	t.Parallel()
	inWorld(t, nil, func(w *world) {
		w.service("models", "a", "1")
		w.service("models", "b", "2")
		listener := "{name: %s, port: 80, protocol: HTTP, hostname: '%s', allowedRoutes: {namespaces: {from: All}}}"
		w.gateway("web", `drainMaximumSeconds: "1"`, fmt.Sprintf(listener, "a", "a.example.com"),
			fmt.Sprintf(listener, "any", "*.example.com"))
		w.route("models", "a", "hostnames: [a.example.com], rules: [{backendRefs: [{name: a, port: 80}]}]")
		w.route("models", "b", "rules: [{backendRefs: [{name: b, port: 80}]}]")
		w.settle()
		client := w.client(80, nil)
		assert.Equal(t, "200 a", get(client, "http://a.example.com/"))
		assert.Equal(t, "200 b", get(client, "http://other.example.com/"))
		stop := w.load(func() string { return get(client, "http://a.example.com/") }, oneOf("200 a"))
		w.gateway("web", `drainMaximumSeconds: "1"`, fmt.Sprintf(listener, "renamed", "a.example.com"),
			fmt.Sprintf(listener, "any", "*.example.com"))
		w.settle()
		stop()
		assert.Equal(t, "True/Programmed", w.gatewayCondition("web", "Programmed"))
	})
}
