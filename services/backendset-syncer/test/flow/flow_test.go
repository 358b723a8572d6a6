//go:build system

package flow

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/service"
	"fairlead.dev/services/backendset-syncer/internal/commands"
	"fairlead.dev/services/backendset-syncer/internal/config"
)

// TestBindings runs the program in one cluster, with a load balancer for each subtest.
func TestBindings(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	balancers := map[string]string{}
	var document strings.Builder
	document.WriteString("podRanges: [10.0.0.0/24]\nnamespaces: {others: {bindings: 1, backendsPerBinding: 2}}\nloadBalancers:\n")
	tests := []struct {
		name string
		run  func(r *rig, id string)
	}{
		{"follow", testFollow}, {"conflict", testConflict}, {"refusals", testRefusals}, {"limits", testLimits},
		{"addresses", testAddresses}, {"services", testServices}, {"taken", testTaken}, {"emptying", testEmptying},
		{"validation", testValidation}, {"problems", testProblems}, {"plan", testPlan}, {"foreign", testForeign},
	}
	for _, tt := range tests {
		balancers[tt.name] = r.balancer(tt.name, "chat", "embed", "reserved")
		fmt.Fprintf(&document, "- {id: %s, namespaces: [models, others], backendSets: [chat, \"em*\"]}\n", balancers[tt.name])
	}
	r.configure(document.String())
	stop := r.start()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			own := *r
			own.t = t
			tt.run(&own, balancers[tt.name])
			for _, ns := range []string{"models", "others"} { // other tests have Services with the same addresses
				require.NoError(t,
					r.kube.DiscoveryV1().EndpointSlices(ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
			}
		})
	}
	stop()
	for _, secret := range []string{r.private, strings.Split(r.private, "\n")[1]} {
		assert.NotContains(t, r.logs.String(), secret, "credentials are never logged")
	}
	assert.NotContains(t, r.logs.String(), "Signature version")
}

func testFollow(r *rig, id string) {
	r.service("models", "follow", "1 2")
	r.bind("models", "follow", id, "chat")
	r.backends(id, "chat", "1 2")
	c := r.reason("models", "follow", "Synced")
	assert.Equal(r.t, metav1.ConditionTrue, c.Status)
	assert.Equal(r.t, "the backend set has 2 active backends", c.Message)
	r.apply(slice("models", "follow", "1:finishing 2 3"))
	r.backends(id, "chat", "1:drain 2 3")
	r.apply(slice("models", "follow", "2 3"))
	r.backends(id, "chat", "2 3")
	b, err := r.client.FairleadV1alpha1().BackendSetBindings("models").Get(r.t.Context(), "follow", metav1.GetOptions{})
	require.NoError(r.t, err)
	assert.NotNil(r.t, b.Status.HeldSince)
	assert.Empty(r.t, b.Finalizers, "nothing delays the deletion of a binding that keeps its backends")
	require.NoError(r.t, r.client.FairleadV1alpha1().BackendSetBindings("models").Delete(r.t.Context(), "follow", metav1.DeleteOptions{}))
	r.bind("models", "follow-later", id, "reserved")
	r.reason("models", "follow-later", "NotAllowed") // so the program has seen that the binding is gone
	r.apply(slice("models", "follow", "2"))
	time.Sleep(time.Second)
	assert.Equal(r.t, "2 3", r.has(id, "chat"), "a set without a binding stays as it is")
}

func testConflict(r *rig, id string) {
	for _, name := range []string{"first", "second"} {
		r.service("models", name, map[string]string{"first": "1", "second": "2"}[name])
	}
	r.service("others", "third", "3")
	r.bind("models", "first", id, "chat")
	r.reason("models", "first", "Synced")
	r.bind("models", "second", id, "chat")
	c := r.reason("models", "second", "Conflict")
	assert.Contains(r.t, c.Message, "binding first owns backend set chat")
	r.bind("others", "third", id, "chat")
	c = r.reason("others", "third", "Conflict")
	assert.NotContains(r.t, c.Message, "first", "it does not name objects of other namespaces")
	assert.Equal(r.t, "1", r.has(id, "chat"))
	require.NoError(r.t, r.client.FairleadV1alpha1().BackendSetBindings("models").Delete(r.t.Context(), "first", metav1.DeleteOptions{}))
	r.backends(id, "chat", "1:drain 2") // 1 is the endpoint of another Service still
	r.reason("models", "second", "Pending")
	require.NoError(r.t, r.client.FairleadV1alpha1().BackendSetBindings("others").Delete(r.t.Context(), "third", metav1.DeleteOptions{}))
}

func testRefusals(r *rig, id string) {
	r.service("models", "refusals", "1")
	r.bind("models", "refusals", id, "reserved")
	c := r.reason("models", "refusals", "NotAllowed")
	assert.Contains(r.t, c.Message, "does not permit backend set reserved")
	r.bind("models", "unknown", "ocid1.loadbalancer.oc1.iad.unknown", "chat")
	c = r.reason("models", "unknown", "NotAllowed")
	assert.Contains(r.t, c.Message, "does not list this load balancer")
	r.bind("fairlead", "namespace", id, "chat")
	c = r.reason("fairlead", "namespace", "NotAllowed")
	assert.Contains(r.t, c.Message, "does not permit namespace fairlead")
	assert.Empty(r.t, r.has(id, "reserved"))
}

func testLimits(r *rig, id string) {
	r.service("others", "limits", "1 2 3")
	r.bind("others", "limits", id, "chat")
	c := r.reason("others", "limits", "CapacityExceeded")
	assert.Contains(r.t, c.Message, "1 ready endpoint has no room")
	r.backends(id, "chat", "1 2")
	r.service("others", "more", "4")
	r.bind("others", "more", id, "embed")
	c = r.reason("others", "more", "NotAllowed")
	assert.Contains(r.t, c.Message, "more than 1 bindings")
}

// testAddresses lets a tenant write an EndpointSlice with addresses that are not those of pods.
func testAddresses(r *rig, id string) {
	r.service("models", "addresses", "1")
	r.bind("models", "addresses", id, "chat")
	r.reason("models", "addresses", "Synced")
	r.apply(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: by-hand, namespace: models, labels: {kubernetes.io/service-name: addresses}}
addressType: IPv4
ports: [{name: http, port: 8000}]
endpoints:
- {addresses: [192.0.2.1]}
- {addresses: [10.0.0.1], conditions: {ready: false}}
- {addresses: [10.0.0.2]}
`)
	c := r.reason("models", "addresses", "AddressesRefused")
	assert.Contains(r.t, c.Message, "192.0.2.1")
	r.backends(id, "chat", "1 2")
}

func testServices(r *rig, id string) {
	r.bind("models", "services", id, "chat")
	c := r.reason("models", "services", "ServiceInvalid")
	assert.Contains(r.t, c.Message, "Service services does not exist")
	r.service("models", "services", "1 2:notready")
	r.reason("models", "services", "Synced")
	r.backends(id, "chat", "1")
	_, err := r.client.FairleadV1alpha1().BackendSetBindings("models").Patch(r.t.Context(), "services", "application/merge-patch+json",
		[]byte(`{"spec":{"serviceRef":{"port":81}}}`), metav1.PatchOptions{})
	require.NoError(r.t, err)
	c = r.reason("models", "services", "ServiceInvalid")
	assert.Contains(r.t, c.Message, "has no port 81; it has http/80")
	assert.Equal(r.t, "1", r.has(id, "chat"))
	_, err = r.client.FairleadV1alpha1().BackendSetBindings("models").Patch(r.t.Context(), "services", "application/merge-patch+json",
		[]byte(`{"spec":{"serviceRef":{"port":80}}}`), metav1.PatchOptions{})
	require.NoError(r.t, err)
	r.reason("models", "services", "Synced")
	require.NoError(r.t, r.kube.CoreV1().Services("models").Delete(r.t.Context(), "services", metav1.DeleteOptions{}))
	r.reason("models", "services", "ServiceInvalid")
	assert.Equal(r.t, "1", r.has(id, "chat"), "its endpoints are held")
}

// testTaken lets a Service lose all endpoints without seeing one terminate, as after a forced deletion. A pod of another tenant has one of
// the addresses at once. Others get the rest later, in a slice that changes and in a new one.
func testTaken(r *rig, id string) {
	r.service("models", "taken", "1 2 3")
	r.service("others", "taker", "9")
	r.bind("models", "taken", id, "chat")
	r.reason("models", "taken", "Synced")
	r.apply(slice("others", "taker", "9 2"))
	r.apply(slice("models", "taken", ""))
	r.backends(id, "chat", "1 3") // they are held
	c := r.reason("models", "taken", "Pending")
	assert.Equal(r.t, metav1.ConditionFalse, c.Status)
	r.apply(slice("others", "taker", "9 2 1"))
	r.backends(id, "chat", "3")
	r.service("others", "late", "3")
	r.backends(id, "chat", "")
	r.reason("models", "taken", "Synced")
}

func testEmptying(r *rig, id string) {
	r.service("models", "emptying", "1 2")
	r.bind("models", "emptying", id, "chat", func(b *v1alpha1.BackendSetBinding) { b.Spec.DeletionPolicy = v1alpha1.EmptyBackends })
	r.reason("models", "emptying", "Synced")
	r.backends(id, "chat", "1 2")
	bindings := r.client.FairleadV1alpha1().BackendSetBindings("models")
	b, err := bindings.Get(r.t.Context(), "emptying", metav1.GetOptions{})
	require.NoError(r.t, err)
	assert.Equal(r.t, []string{v1alpha1.FinalizerEmpty}, b.Finalizers)
	require.NoError(r.t, bindings.Delete(r.t.Context(), "emptying", metav1.DeleteOptions{}))
	require.Eventually(r.t, func() bool {
		_, err := bindings.Get(r.t.Context(), "emptying", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, kubetest.Patience, tick)
	assert.Empty(r.t, r.has(id, "chat"))
}

// testValidation lets the API server refuse what makes no sense.
func testValidation(r *rig, id string) {
	r.service("models", "validation", "1")
	tests := map[string]func(*v1alpha1.BackendSetBinding){
		"must be the OCID of a load balancer": func(b *v1alpha1.BackendSetBinding) {
			b.Spec.LoadBalancerID = "ocid1.networkloadbalancer.oc1.iad.a"
		},
		"spec.backendSetName":        func(b *v1alpha1.BackendSetBinding) { b.Spec.BackendSetName = "a.b" },
		"spec.weight":                func(b *v1alpha1.BackendSetBinding) { b.Spec.Weight = 101 },
		"must be the name of a port": func(b *v1alpha1.BackendSetBinding) { b.Spec.ServiceRef.Port.StrVal = "" },
		"minimum must not exceed maximum": func(b *v1alpha1.BackendSetBinding) {
			b.Spec.Drain = v1alpha1.Drain{
				Minimum: &metav1.Duration{Duration: time.Minute}, Maximum: &metav1.Duration{Duration: time.Second},
			}
		},
		"must be a duration from 0s to 24h": func(b *v1alpha1.BackendSetBinding) {
			b.Spec.Drain.Maximum = &metav1.Duration{Duration: 48 * time.Hour}
		},
		"urlPath is required for HTTP": func(b *v1alpha1.BackendSetBinding) {
			b.Spec.HealthChecker = &v1alpha1.HealthChecker{Protocol: "HTTP"}
		},
		"spec.deletionPolicy": func(b *v1alpha1.BackendSetBinding) { b.Spec.DeletionPolicy = "Delete" },
	}
	for message, change := range tests {
		b := &v1alpha1.BackendSetBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "models", Name: "validation"},
			Spec:       v1alpha1.BackendSetBindingSpec{LoadBalancerID: id, BackendSetName: "chat"},
		}
		b.Spec.ServiceRef.Name, b.Spec.ServiceRef.Port.StrVal, b.Spec.ServiceRef.Port.Type = "validation", "http", 1
		change(b)
		_, err := r.client.FairleadV1alpha1().BackendSetBindings("models").Create(r.t.Context(), b, metav1.CreateOptions{})
		require.ErrorContains(r.t, err, message)
	}
	r.bind("models", "validation", id, "chat")
	for _, patch := range []string{
		`{"spec":{"backendSetName":"embed"}}`, `{"spec":{"loadBalancerId":"ocid1.loadbalancer.oc1.iad.other"}}`,
	} {
		_, err := r.client.FairleadV1alpha1().BackendSetBindings("models").Patch(r.t.Context(), "validation",
			"application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		require.ErrorContains(r.t, err, "cannot be changed")
	}
	b, err := r.client.FairleadV1alpha1().BackendSetBindings("models").Get(r.t.Context(), "validation", metav1.GetOptions{})
	require.NoError(r.t, err)
	assert.EqualValues(r.t, 1, b.Spec.Weight)
	assert.Equal(r.t, time.Hour, b.Spec.Drain.Maximum.Duration)
	assert.Equal(r.t, v1alpha1.KeepBackends, b.Spec.DeletionPolicy)
}

func testProblems(r *rig, id string) {
	r.service("models", "problems", "1")
	r.edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
		delete(lb.BackendSets, "embed")
		return nil
	})
	r.bind("models", "problems", id, "embed")
	c := r.reason("models", "problems", "BackendSetNotFound")
	assert.Contains(r.t, c.Message, "it has chat, reserved")
	require.Eventually(r.t, func() bool { // an Event says ServiceInvalid if the binding arrived before the Service
		events, err := r.kube.CoreV1().Events("models").List(r.t.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.kind=BackendSetBinding,involvedObject.name=problems,reason=BackendSetNotFound",
		})
		return err == nil && len(events.Items) == 1 && events.Items[0].Type == corev1.EventTypeWarning
	}, kubetest.Patience, tick)
}

func testPlan(r *rig, id string) {
	plan := r.plan
	r.service("models", "planned", "1 2")
	code, _, log := plan("-n", "none")
	assert.Equal(r.t, 1, code)
	assert.Contains(r.t, log, "nothing could be planned")
	r.bind("models", "planned", id, "chat")
	r.reason("models", "planned", "Synced")
	code, out, log := plan("-n", "models", "planned")
	assert.Zero(r.t, code, log)
	assert.Equal(r.t, "models/planned: backend set chat: 0 changes\n", out)
	const want = "models/planned: backend set chat: 3 changes, by UpdateBackendSet\n  + 10.0.0.1:8000 weight 1\n" +
		"  + 10.0.0.2:8000 weight 1\n  ~ 10.0.0.9:80 weight 1 draining\n"
	require.EventuallyWithT(r.t, func(c *assert.CollectT) { // again, if the program corrects the set first
		r.edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
			lb.BackendSets["chat"].Backends = []ocilb.Backend{{Name: "10.0.0.9:80", IPAddress: "10.0.0.9", Port: 80, Weight: 1}}
			return nil
		})
		code, out, log = plan("-n", "models", "planned")
		assert.Equal(c, dryrun.ExitDiffers, code, log)
		assert.Equal(c, want, out)
	}, kubetest.Patience, tick)
	r.backends(id, "chat", "1 2 9@80:drain")
}

// plan runs the subcommand plan.
func (r *rig) plan(args ...string) (code int, out, log string) {
	r.t.Helper()
	var stdout, stderr bytes.Buffer
	root := commands.New(&stdout, &stderr)
	root.SetArgs(append([]string{
		"plan", "--kubeconfig=" + r.cluster.Kubeconfig, "--config-map=fairlead/syncer", "--oci-auth=api-key",
		"--oci-key-directory=" + r.keys, "--oci-endpoint=" + r.endpoint,
	}, args...))
	err := root.ExecuteContext(r.t.Context())
	if err != nil {
		fmt.Fprintln(&stderr, err)
	}
	assert.NotContains(r.t, stdout.String()+stderr.String(), strings.Split(r.private, "\n")[1])
	return service.ExitCode("", err, io.Discard), stdout.String(), stderr.String()
}

// testForeign has a set with a backend of Terraform.
func testForeign(r *rig, id string) {
	r.edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
		lb.BackendSets["chat"].Backends = []ocilb.Backend{{Name: "10.0.0.9:80", IPAddress: "10.0.0.9", Port: 80, Weight: 1}}
		return nil
	})
	r.service("models", "foreign", "1")
	r.bind("models", "foreign", id, "chat")
	c := r.reason("models", "foreign", "Conflict")
	assert.Contains(r.t, c.Message, "10.0.0.9:80")
	assert.Equal(r.t, "9@80", r.has(id, "chat"))
	r.edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
		lb.BackendSets["chat"].Backends = nil
		return nil
	})
	r.reason("models", "foreign", "Synced")
	r.backends(id, "chat", "1")
}

// TestRestart stops the program, changes everything, and starts it again.
func TestRestart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.balancer("restart", "chat")
	r.configure("loadBalancers: [{id: " + id + "}]")
	stop := r.start()
	r.service("models", "chat", "1 2")
	r.bind("models", "chat", id, "chat")
	r.reason("models", "chat", "Synced")
	r.backends(id, "chat", "1 2")
	stop()
	r.apply(slice("models", "chat", "2:finishing 3"))
	r.emulator.ForgetCalls()
	r.start()
	r.backends(id, "chat", "1:drain 2:drain 3")
	assert.Equal(t, 1, r.emulator.Writes(time.Time{}))

	r.configure("loadBalancers: [{id: " + id + ", nonsense: true}]")
	r.apply(slice("models", "chat", "3 4"))
	r.backends(id, "chat", "1:drain 3 4")
	r.configure("loadBalancers: []")
	r.reason("models", "chat", "NotAllowed")
}

// TestReadinessGate lets pods wait for the load balancer.
func TestReadinessGate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.balancer("gates", "chat")
	r.configure("loadBalancers: [{id: " + id + "}]")
	r.start(func(c *config.Config) { c.Gates.Enabled = true })
	bound := r.gatedPod("chat-1")
	r.service("models", "chat", "")
	r.emulator.SetFaults(ocilb.Fault{
		Operations: []string{"CreateBackend", "UpdateBackendSet"}, Kind: ocilb.FaultStatus, Status: 409, Code: "IncorrectState", Count: 2,
	})
	r.bind("models", "chat", id, "chat")
	r.apply(sliceOf(bound, "chat", "1:notready"))
	r.containersReady(bound)
	r.gate("chat-1", "False WaitingForLoadBalancer")
	r.backends(id, "chat", "1")
	r.gate("chat-1", "True InService")
	time.Sleep(time.Second)
	assert.Equal(t, "1", r.has(id, "chat"), "the kubelet and the EndpointSlice controller are late")
	lost := []byte(`{"status": {"conditions": [{"type": "Ready", "status": "False", "reason": ""}]}}`)
	_, err := r.kube.CoreV1().Pods("models").Patch(t.Context(), "chat-1", types.StrategicMergePatchType, lost, metav1.PatchOptions{},
		"status")
	require.NoError(t, err)
	r.backends(id, "chat", "1:drain") // the node controller does so with the pods of a dead node

	r.containersReady(r.gatedPod("alone"))
	r.gate("alone", "True NoBinding")
}
