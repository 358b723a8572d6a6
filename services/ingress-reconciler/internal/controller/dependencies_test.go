package controller

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/golden"
)

// A path that an Ingress of somebody else prevents is exposed when that Ingress is gone.
func TestARefusedPathDependsOnTheRoutesOfItsHost(t *testing.T) {
	t.Parallel()
	const nginx = `---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: nginx}
spec: {controller: k8s.io/ingress-nginx}
`
	const legacy = `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: legacy, namespace: others},
		spec: {ingressClassName: nginx, rules: [{host: llm.example.com}]}}`
	r := newRig(t, world+nginx+"---\n"+legacy, "ingressDomain: example.com\nperISVCSubdomain: false\ningressClassName: nginx")
	run := r.begun()
	require.Empty(t, run.plan.Exposures)
	require.Equal(t, "PathRewriteUnsupported", run.plan.Reasons[0].Reason)
	foreign := &unstructured.Unstructured{Object: golden.Decode[map[string]any](t, []byte(legacy))}
	assert.Equal(t, []cache.ObjectName{chat}, handlers{index: r.Dependents}.namesForHosts(foreign))
}
