//go:build system

package flow

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
)

const oneLine = "an annotation of a controller of HAProxy must have one line"

// annotationPolicy installs the policy of the chart, and waits until the API server has compiled it.
func (r *rig) annotationPolicy() {
	r.t.Helper()
	r.chartObjects("templates/annotations.yaml")
	tries := 0
	require.Eventually(r.t, func() bool {
		tries++ // an object that exists already may stay as it is
		err := r.cluster.Apply(r.t.Context(), ingressManifest("tenant", fmt.Sprint("probe-", tries), `haproxy.org/path-rewrite: "x\ny"`))
		return strings.Contains(fmt.Sprint(err), oneLine)
	}, kubetest.Patience, tick)
}

// TestAnnotationPolicy lets an API server evaluate the policy of the chart. haproxytech 3.2.9 reads annotations without a prefix, too, and
// writes each line of a password into its configuration. Changes of objects from before the policy stay possible, such as the removal of a
// finalizer.
func TestAnnotationPolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.apply("{apiVersion: v1, kind: Namespace, metadata: {name: tenant}}")
	lines := strconv.Quote("x\nhttp-request deny")
	old := func(more string) string {
		return strings.Replace(ingressManifest("tenant", "old", "load-balance: "+lines+more), "path: /", `path: "/\nx"`, 1)
	}
	r.eventually(func() (string, bool) { // the API server may still enforce the deleted policy of another test
		err := r.cluster.Apply(t.Context(), old(""))
		return fmt.Sprint(err), err == nil
	}, "an object from before the policy")
	r.annotationPolicy()
	message := func(manifest string) string {
		err := r.cluster.Apply(t.Context(), manifest)
		if err == nil {
			return ""
		}
		_, text, _ := strings.Cut(fmt.Sprint(err), "denied request: ")
		return strings.TrimSpace(text)
	}
	const secret = "auth-secret is not permitted, because the controller haproxytech takes the lines of the Secret for directives"
	for annotations, want := range map[string]string{
		"load-balance: " + lines:                           oneLine,
		"haproxy.com/set-host: " + lines:                   oneLine,
		"ingress.kubernetes.io/set-host: " + lines:         oneLine,
		"other.example/load-balance: " + lines:             "",
		"haproxy.org/request-set-header: " + lines:         "",
		"load-balance: " + strconv.Quote("roundrobin\n"):   "",
		"auth-secret: users":                               secret,
		"haproxy.org/auth-secret: users":                   secret,
		"haproxy-ingress.github.io/auth-secret: users":     "",
		"nginx.ingress.kubernetes.io/auth-secret: a/users": "",
	} {
		assert.Equal(t, want, message(ingressManifest("tenant", "new", annotations)), annotations)
		assert.Equal(t, want, message(serviceManifest("tenant", "new", annotations)), annotations)
	}

	assert.Empty(t, message(old(", other.example/a: b")))
	assert.Equal(t, oneLine, message(old(", haproxy.org/set-host: "+lines)))
	assert.Equal(t, "a path must have one line", message(strings.Replace(old(""), "number: 80", "number: 81", 1)))
}
