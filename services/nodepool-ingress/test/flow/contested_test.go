//go:build system

package flow

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// mutate makes the API server change the Deployment of a pool at each write, as a policy engine does, until stop is called.
func (r *rig) mutate(pool, patch string) (stop func()) {
	r.t.Helper()
	const name = "contested"
	r.apply(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]}
  matchConditions: [{name: pool, expression: "object.metadata.name in ['ingress-%[2]s', 'probe']"}]
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[%[3]s]'}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
`, name, pool, patch))
	remove := func() {
		_, err := r.cluster.Kubectl(r.t.Context(), "delete", "--ignore-not-found", "mutatingadmissionpolicybinding/"+name,
			"mutatingadmissionpolicy/"+name)
		require.NoError(r.t, err)
		r.probe(false)
	}
	r.t.Cleanup(func() { // of a test that failed: the next one has Deployments, too
		_, err := r.cluster.Kubectl(context.Background(), "delete", "--ignore-not-found", "mutatingadmissionpolicybinding/"+name,
			"mutatingadmissionpolicy/"+name)
		assert.NoError(r.t, err)
	})
	r.probe(true)
	return remove
}

// probe waits until the API server changes Deployments, or no longer does: it reads policies in the background.
func (r *rig) probe(changes bool) {
	r.t.Helper()
	const probe = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: probe, namespace: default}, spec: {selector: {matchLabels: ` +
		`{a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: probe}]}}}}`
	const fields = "jsonpath={.spec.template.spec.containers[*].image} {.spec.template.metadata.labels}"
	_, err := r.cluster.Kubectl(r.t.Context(), "delete", "--ignore-not-found", "--namespace=default", "deployment/probe")
	require.NoError(r.t, err)
	r.eventually(func() (string, bool) {
		r.apply(probe)
		got, err := r.cluster.Kubectl(r.t.Context(), "get", "--namespace=default", "deployment/probe", "-o="+fields)
		require.NoError(r.t, err)
		_, err = r.cluster.Kubectl(r.t.Context(), "delete", "--namespace=default", "deployment/probe")
		require.NoError(r.t, err)
		return got, (got != `probe {"a":"b"}`) == changes
	}, "the API server changes Deployments: %t", changes)
}

// delay returns the longest delay after which a reconcile was requested, since a number of lines of the log.
func (r *rig) delay(since int) time.Duration {
	longest := time.Duration(0)
	for _, e := range r.logs.All()[since:] {
		if after, ok := e.ContextMap()["after"].(time.Duration); ok {
			longest = max(longest, after)
		}
	}
	return longest
}

// TestContested has an admission policy that takes back what the program writes: the condition says so, the program does not write in a
// loop, the roll-out stops, and it goes on when the policy is gone. A policy that only adds to a map is no conflict.
func TestContested(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pools("a", "b", "c")
	r.deploy()
	p := r.proxy()
	r.start(through(p))
	spec := func(tag string) string {
		return `{"spec": {"ingress_controller_image": "` + traefik + `:` + tag +
			`", "pools": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}}`
	}
	r.create("edge", "{pools: []}")
	r.patch("edge", spec("v1"))
	for _, pool := range []string{"a", "b", "c"} {
		r.await("edge", pool, conditionR, ready)
	}
	tests := []struct{ name, patch, tag string }{
		{
			name: "a field", tag: "v2",
			patch: `JSONPatch{op: "replace", path: "/spec/template/spec/containers/0/image", value: "` + traefik + `:v1"}`,
		},
		{
			name: "an element of a list", tag: "v3",
			patch: `JSONPatch{op: "add", path: "/spec/template/spec/containers/-", value: Object.spec.template.spec.containers{name: ` +
				`"added", image: "added"}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := image(r.deployment("a"))
			stop := r.mutate("b", tt.patch)
			writes, line := p.written(), r.logs.Len()
			r.patch("edge", spec(tt.tag))
			r.await("edge", "b", v1alpha1.ConditionProgrammed, "False NotWritten")
			for _, c := range r.pool("edge", "b").Conditions {
				if c.Type == v1alpha1.ConditionProgrammed {
					assert.Contains(t, c.Message, "mutating admission webhook")
				}
			}
			r.await("edge", "c", v1alpha1.ConditionProgrammed, "False RolloutStopped")
			r.await("edge", "a", conditionR, ready)
			// Retries: the Deployment has the revision, and is ready with what the policy has made of it. Each comes later than the last
			// one.
			r.eventually(func() (string, bool) {
				d := r.delay(line)
				return d.String(), d > 3*time.Second
			}, "the delay between attempts grows")
			attempts := slices.DeleteFunc(p.since(writes), func(w string) bool { return !strings.HasSuffix(w, "/deployments/ingress-b") })
			assert.Less(t, len(attempts), 24, "three attempts of a few writes, and conflicts")
			r.await("edge", "b", v1alpha1.ConditionProgrammed, "False NotWritten")
			r.await("edge", "c", v1alpha1.ConditionProgrammed, "False RolloutStopped")
			assert.Equal(t, before, image(r.deployment("c")), "the roll-out does not go on behind the pool")
			stop()
			for _, pool := range []string{"a", "b", "c"} {
				r.await("edge", pool, v1alpha1.ConditionProgrammed, "True Programmed")
				r.await("edge", pool, conditionR, ready)
				assert.Equal(t, traefik+":"+tt.tag, image(r.deployment(pool)))
				assert.Len(t, r.deployment(pool).Spec.Template.Spec.Containers, 1)
			}
		})
	}

	t.Run("an entry of a map", func(t *testing.T) {
		stop := r.mutate("b", `JSONPatch{op: "add", path: "/spec/template/metadata/labels/added", value: "x"}`)
		defer stop()
		r.patch("edge", spec("v4"))
		r.eventually(func() (string, bool) {
			var images []string
			for _, pool := range []string{"a", "b", "c"} {
				images = append(images, image(r.deployment(pool)))
			}
			return strings.Join(images, " "), strings.Count(strings.Join(images, " "), ":v4") == 3
		}, "the roll-out reaches all pools")
		for _, pool := range []string{"a", "b", "c"} {
			r.await("edge", pool, conditionR, ready)
		}
		assert.Equal(t, "x", r.deployment("b").Spec.Template.Labels["added"])
		r.settled("edge")
	})
}

// TestIdle counts the requests of a settled program: it writes nothing, also when objects that it watches are updated without a change that
// matters. Resource versions would not show an apply without effect.
func TestIdle(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pools("hangzhou", "beijing")
	r.deploy()
	p := r.proxy()
	r.start(through(p))
	r.create("edge", `{profile: ingress-nginx, pools: [{name: hangzhou}, {name: beijing, exposure: {type: HostPort}}]}`)
	r.await("edge", "hangzhou", conditionR, ready)
	r.await("edge", "beijing", conditionR, ready)
	r.settled("edge")
	writes := p.written()
	for i := range 3 {
		r.patch("edge", fmt.Sprintf(`{"metadata": {"labels": {"example.com/a": "%d"}}}`, i))
		_, err := r.cluster.Kubectl(t.Context(), "annotate", "--overwrite", "node/node-hangzhou", fmt.Sprintf("example.com/a=%d", i))
		require.NoError(t, err)
		_, err = r.cluster.Kubectl(t.Context(), "annotate", "--overwrite", "--namespace="+namespace, "services,configmaps,serviceaccounts",
			"--all", fmt.Sprintf("example.com/a=%d", i))
		require.NoError(t, err)
	}
	time.Sleep(quiet)
	assert.Equal(t, writes, p.written(), "%v", p.since(writes))
}
