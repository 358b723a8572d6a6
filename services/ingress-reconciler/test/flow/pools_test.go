//go:build system

package flow

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// picker creates the Service of an endpoint picker.
func (r *rig) picker(name string) {
	r.t.Helper()
	r.apply(fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: %s}, spec: {selector: {app: picker}, ports: `+
		`[{name: grpc, port: 9002}]}}`, name, ns))
}

// pool creates an InferencePool.
func (r *rig) pool(name, matchLabels string) {
	r.t.Helper()
	r.apply(fmt.Sprintf(`{apiVersion: inference.networking.k8s.io/v1, kind: InferencePool, metadata: {name: %s, namespace: %s},
	spec: {selector: {matchLabels: %s},
		targetPorts: [{number: 8000}], endpointPickerRef: {name: picker, port: {number: 9002}}}}`, name, ns, matchLabels))
}

func TestNamedPools(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI+"inferencePool: {name: theirs}\n")
		r.apply(gateway)
		r.start()
		r.service(ns, "chat", "engine")
		r.awaitCondition("chat",
			"False InferencePoolNotFound: InferencePool theirs does not exist: create it, or correct inferencePool.name")
		const mismatch = "InferencePoolMismatch: InferencePool theirs selects no pods of the engine: the selector has app=other, the " +
			"pods have app=chat-engine"
		r.pool("theirs", "{app: other}")
		r.awaitCondition("chat",
			"False EndpointPickerNotFound: InferencePool theirs: Service picker of the endpoint picker does not exist: create it, or "+
				"correct endpointPickerRef; "+mismatch)
		r.picker("picker")
		const url = "http://chat.models.example.com/; Gateway gateways/public: accepted"
		r.has("httproute chat.models.example.com/ -> theirs by public")
		r.awaitCondition("chat", "True Programmed: "+url+"; "+mismatch+"; InferencePool theirs: FailClose")
		r.patch(render.InferencePools, ns, "theirs", `{"spec":{"selector":{"matchLabels":{"app":"chat-engine"}}}}`)
		r.awaitCondition("chat", "True Programmed: "+url+"; InferencePool theirs: FailClose")
		r.settles()

		t.Log("A pool of the engine would bypass a router; a pool of the router's pods is used")
		r.patch(isvc.Resource, ns, "chat", `{"spec":{"router":{}}}`)
		r.has("httproute chat.models.example.com/ -> chat-router by public")
		r.awaitCondition("chat",
			"True Programmed: "+url+
				"; InferencePoolUnsupported: requests go to the router: InferencePool theirs would bypass it. Add component: router to "+
				"the selector of the pool")
		r.patch(render.InferencePools, ns, "theirs",
			`{"spec":{"selector":{"matchLabels":{"app":null,"component":"router","ome.io/inferenceservice":"chat"}}}}`)
		r.has("httproute chat.models.example.com/ -> theirs by public")
		r.awaitCondition("chat", "True Programmed: "+url+"; InferencePool theirs: FailClose")
		r.settles()
	})
}

func TestCreatedPools(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release,
			gatewayAPI+
				"inferencePool: {endpointPickerRef: {name: 'picker-{{ .Name }}', failureMode: FailOpen}}\nfallbackService: {enabled: "+
				"true, type: NodePort}\n")
		r.apply(gateway)
		r.start()
		r.service(ns, "chat", "engine")
		const missing = "InferencePool chat-fairlead: Service picker-chat of the endpoint picker does not exist: create it, or correct " +
			"endpointPickerRef"
		r.awaitCondition("chat", "False EndpointPickerNotFound: "+missing)
		r.has("services chat-external")

		r.picker("picker-chat")
		const url = "http://chat.models.example.com/; Gateway gateways/public: accepted"
		all := []string{
			"httproute chat.models.example.com/ -> chat-fairlead by public", "inferencepools chat-fairlead", "services chat-external",
		}
		r.has(all...)
		r.awaitCondition("chat", "True Programmed: "+url+"; InferencePool chat-fairlead: FailOpen")
		assert.Equal(t, "picker-chat", field(r.only(render.InferencePools), "spec", "endpointPickerRef", "name"))
		r.settles() // the API server allocates a node port
		external, err := r.cluster.Clientset().CoreV1().Services(ns).Get(t.Context(), "chat-external", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, corev1.ServiceTypeNodePort, external.Spec.Type)
		_, err = r.cluster.Clientset().CoreV1().Services(ns).Get(t.Context(), "chat", metav1.GetOptions{})
		require.NoError(t, err, "OME creates the Service chat")

		t.Log("Without the picker, the objects stay")
		r.delete(services, ns, "picker-chat")
		r.eventually(func() (string, bool) {
			got := r.condition(ns, "chat")
			return got, assert.Contains(quiet{}, got, missing)
		}, "the condition has the reason")
		r.settles()
		r.has(all...)
		r.picker("picker-chat")
		r.awaitCondition("chat", "True Programmed: "+url+"; InferencePool chat-fairlead: FailOpen")

		t.Log("The router receives the requests, not a pool of the engine")
		r.patch(isvc.Resource, ns, "chat", `{"spec":{"router":{}}}`)
		r.has("httproute chat.models.example.com/ -> chat-router by public", "services chat-external")
		r.awaitCondition("chat",
			"True Programmed: "+url+
				"; InferencePoolUnsupported: requests go to the router: an InferencePool of the engine would bypass it. Remove the "+
				"router or inferencePool")
		r.patch(isvc.Resource, ns, "chat", `{"spec":{"router":null}}`)
		r.has(all...)
		r.settles()

		t.Log("Without a pool in the configuration, the Service receives the requests")
		r.configure(gatewayAPI)
		r.has("httproute chat.models.example.com/ -> chat-engine by public")
		r.settles()
	})
}

// blue is an InferenceReplica that a user created.
const blue = `{apiVersion: ome.io/v1beta1, kind: InferenceReplica, metadata: {namespace: models, name: blue}, spec: {component: engine,
  replicas: 1, runners: [
	{name: leader, size: 1, template: {spec: {containers: [{name: e, image: own:1, ports: [{containerPort: 30000, name: http}]}]}}},
	{name: worker, size: 1, template: {spec: {containers: [{name: w, image: own:1}]}}}]}}`

// engine is a service with an engine. pods contains the names of the Deployments whose pods receive requests.
type engine struct {
	name, spec  string
	annotations map[string]any
	pods        []string
}

// engines lists the ways in which OME creates the pods of an engine. Each way uses different labels.
var engines = map[ome.Release][]engine{
	ome.Release12: {
		{name: "raw", spec: "{engine: {}}", pods: []string{"raw-engine"}},
		{name: "nodes", spec: "{engine: {leader: {}, worker: {size: 1}}}", pods: []string{"nodes-engine-lws"}},
		{name: "others", spec: "{engine: {leader: {}, worker: {size: 1}}}", pods: []string{"others-engine-lws"}},
		{name: "old", spec: "{predictor: {model: {name: m}}}", pods: []string{"old-engine"}},
	},
	ome.Release13: {
		{name: "raw", spec: "{engine: {}}", pods: []string{"raw-engine"}},
		{name: "one", spec: "{deploymentMode: OMENative, engine: {}}", pods: []string{"one-engine-default"}},
		{name: "nodes", spec: "{engine: {leader: {}, worker: {size: 1}}}", pods: []string{"nodes-engine-leader"}},
		{name: "others", spec: "{engine: {leader: {}, worker: {size: 1}}}", pods: []string{"others-engine-leader"}},
		{
			name: "runtime", spec: "{engine: {runner: {name: e, ports: [{containerPort: 8080, name: http1}]}}}",
			pods: []string{"runtime-engine-leader"}, annotations: map[string]any{ome.AnnotationRuntimeWorkers: "engine=1"},
		},
		{name: "front", spec: "{replicaRefs: {engine: [blue]}}", pods: []string{"front-engine-leader"}},
		{name: "sets", spec: "{engine: {leader: {}, annotations: {ome.io/deploymentMode: MultiNode}}}", pods: []string{"sets-engine-lws"}},
	},
}

// TestPodsOfPoolsAndFallbackServices creates a pool and a fallback Service for each of the engines in one namespace, and compares their
// selectors with the labels of pods.
func TestPodsOfPoolsAndFallbackServices(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI+"inferencePool: {endpointPickerRef: {name: picker}}\nfallbackService: {enabled: true}\n")
		r.stopOME()
		r.startOME(func(o *ome.Options) { o.PodImage = "server:1" })
		r.apply(gateway)
		r.picker("picker")
		if release == ome.Release13 {
			r.apply(blue)
		}
		r.start()
		for _, e := range engines[release] {
			r.yaml(ns, e.name, e.spec, e.annotations)
		}
		for _, e := range engines[release] {
			r.eventually(func() (string, bool) {
				r.podsAreReady()
				got := r.condition(ns, e.name)
				return got, got == fmt.Sprintf(accepted, e.name+".models.example.com")+"; InferencePool "+e.name+"-fairlead: FailClose"
			}, "condition of %s", e.name)
			pool := r.get(render.InferencePools, e.name+"-fairlead")
			fallback := r.get(services, e.name+"-external")
			assert.Equal(t, e.pods, r.selected(pool, "spec", "selector", "matchLabels"), "pool of %s", e.name)
			assert.Equal(t, e.pods, r.selected(fallback, "spec", "selector"), "fallback Service of %s", e.name)
		}
		r.settles()
	})
}

// podsAreReady writes the status of all Deployments.
func (r *rig) podsAreReady() {
	r.t.Helper()
	list, err := r.cluster.Clientset().AppsV1().Deployments(ns).List(r.t.Context(), metav1.ListOptions{})
	require.NoError(r.t, err)
	for i := range list.Items {
		d := &list.Items[i]
		n := *d.Spec.Replicas
		if d.Status.ReadyReplicas == n {
			continue
		}
		patch := fmt.Sprintf(`{"status":{"observedGeneration":%d,"replicas":%[2]d,"readyReplicas":%[2]d,"conditions":[{"type":`+
			`"Available","status":"True","reason":"MinimumReplicasAvailable"}]}}`, d.Generation, n)
		_, err := r.cluster.Clientset().AppsV1().Deployments(ns).Patch(r.t.Context(), d.Name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{}, "status")
		require.NoError(r.t, err)
	}
}

func (r *rig) get(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	r.t.Helper()
	u, err := r.client.Resource(resource).Namespace(ns).Get(r.t.Context(), name, metav1.GetOptions{})
	require.NoError(r.t, err)
	return u
}

// selected returns the Deployments whose pods a selector matches.
func (r *rig) selected(u *unstructured.Unstructured, path ...string) []string {
	r.t.Helper()
	selector, found, err := unstructured.NestedStringMap(u.Object, path...)
	require.NoError(r.t, err)
	require.True(r.t, found)
	list, err := r.cluster.Clientset().AppsV1().Deployments(ns).List(r.t.Context(), metav1.ListOptions{})
	require.NoError(r.t, err)
	var names []string
	for i := range list.Items {
		if labels.SelectorFromSet(selector).Matches(labels.Set(list.Items[i].Spec.Template.Labels)) {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// TestInstancesThatServe checks that a service has a route while OME reports EngineReady=False, as with OME's routes in release 1.3.
func TestInstancesThatServe(t *testing.T) {
	t.Parallel()
	r := newRig(t, ome.Release13, gatewayAPI)
	r.apply(gateway)
	r.start()
	r.yaml(ns, "chat", "{deploymentMode: OMENative, engine: {minReplicas: 2}}", map[string]any{ome.AnnotationServing: "engine=0"})
	r.awaitCondition("chat", "False ComponentNotReady: the engine is not ready")
	r.settles()
	r.patch(isvc.Resource, ns, "chat", fmt.Sprintf(`{"metadata":{"annotations":{%q:"engine=1"}}}`, ome.AnnotationServing))
	r.awaitCondition("chat", fmt.Sprintf(accepted, "chat.models.example.com"))
	live, err := isvc.Read(r.get(isvc.Resource, "chat"))
	require.NoError(t, err)
	assert.True(t,
		slices.ContainsFunc(live.Conditions,
			func(c isvc.Condition) bool { return c.Type == "EngineReady" && c.Status == metav1.ConditionFalse }))
	r.has("httproute chat.models.example.com/ -> chat-engine by public")
}

// TestReplicasOfAUser tests a service that refers to an InferenceReplica, which may not exist.
func TestReplicasOfAUser(t *testing.T) {
	t.Parallel()
	r := newRig(t, ome.Release13, gatewayAPI)
	r.apply(gateway)
	r.start()
	r.yaml(ns, "front", "{replicaRefs: {engine: [blue]}}", nil)
	r.awaitCondition("front", "False ServiceNotFound: engine front-engine: the Service does not exist")
	r.apply(blue)
	r.awaitCondition("front", fmt.Sprintf(accepted, "front.models.example.com"))
	r.has("httproute front.models.example.com/ -> front-engine by public")
	r.settles()
	r.delete(replicas, ns, "blue")
	r.awaitOME("front", "EngineReady", "False")
	r.notices()
	r.settles()
	r.has("httproute front.models.example.com/ -> front-engine by public") // an engine that is no longer ready keeps its route
}

// TestWorkersOfTheRuntime tests an engine whose Service also selects workers. Release 1.3 creates such a Service if only the serving
// runtime declares the workers.
func TestWorkersOfTheRuntime(t *testing.T) {
	t.Parallel()
	r := newRig(t, ome.Release13, gatewayAPI)
	r.apply(gateway)
	r.start()
	r.yaml(ns, "chat", "{engine: {runner: {name: e, ports: [{containerPort: 8080, name: http1}]}}}",
		map[string]any{ome.AnnotationRuntimeWorkers: "engine=1"})
	r.awaitCondition("chat",
		fmt.Sprintf(accepted, "chat.models.example.com")+
			"; WorkersSelected: OME's Service chat-engine also sends requests to worker pods: add leader: {} and worker: {} to spec.engine")
	r.patch(isvc.Resource, ns, "chat",
		`{"spec":{"engine":{"leader":{"runner":{"name":"e","ports":[{"containerPort":8080}]}},"worker":{"size":1}}}}`)
	r.awaitCondition("chat", fmt.Sprintf(accepted, "chat.models.example.com"))
	r.settles()
}

// TestUpgradeOfOME upgrades OME from release 1.2 to 1.3, which recreates the pods of multi-node engines with different labels.
func TestUpgradeOfOME(t *testing.T) {
	t.Parallel()
	r := newRig(t, ome.Release12, gatewayAPI+"inferencePool: {endpointPickerRef: {name: picker}}\n")
	r.apply(gateway)
	r.picker("picker")
	r.start()
	r.yaml(ns, "chat", "{engine: {leader: {}, worker: {size: 1}}}", nil)
	want := []string{"httproute chat.models.example.com/ -> chat-fairlead by public", "inferencepools chat-fairlead"}
	r.has(want...)
	assert.Equal(t, "head", field(r.only(render.InferencePools), "spec", "selector", "matchLabels", "ray.io/node-type"))
	uids := r.uids()
	r.settles()
	gaps := r.planes.watchGaps("chat.models.example.com")
	r.stopOME()
	r.apply(ome.CRDs(ome.Release13))
	r.apply(ome.Config(ome.Release13))
	r.release = ome.Release13
	r.startOME()
	r.eventually(func() (string, bool) {
		u, err := r.client.Resource(render.InferencePools).Namespace(ns).Get(context.Background(), "chat-fairlead", metav1.GetOptions{})
		require.NoError(t, err)
		got := field(u, "spec", "selector", "matchLabels")
		return got, field(u, "spec", "selector", "matchLabels", ome.LabelRunner) == "leader" &&
			field(u, "spec", "selector", "matchLabels", "ray.io/node-type") == "<nil>"
	}, "the pool selects leaders of release 1.3")
	r.settles()
	r.has(want...)
	assert.Equal(t, uids, r.uids(), "the objects are not recreated")
	assert.Empty(t, gaps())
}
