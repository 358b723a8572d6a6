//go:build system

package ome_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/logging"
)

const namespace = "models"

// world is a control plane with OME's CRDs and ConfigMap, and an emulator.
type world struct {
	*testing.T
	cluster  *cluster.Cluster
	kube     kubernetes.Interface
	isvc     dynamic.ResourceInterface
	replicas dynamic.ResourceInterface
	release  ome.Release
	ome      *ome.Emulator
	stop     func()

	registry *prometheus.Registry   // of the emulator
	logs     *observer.ObservedLogs // of the emulator
	markers  int
}

// newWorld starts a control plane with the CRDs and the ConfigMap, and an emulator.
func newWorld(t *testing.T, change ...func(*ome.Options)) *world {
	t.Helper()
	w := newCluster(t)
	w.start(change...)
	return w
}

// newCluster is like newWorld, but without an emulator.
func newCluster(t *testing.T) *world {
	t.Helper()
	c := cluster.Start(t, cluster.ControlPlaneOnly)
	for _, name := range []string{"ome", namespace} {
		_, err := c.Kubectl(t.Context(), "create", "namespace", name)
		require.NoError(t, err)
	}
	in := func(resource string) dynamic.ResourceInterface {
		gvr := schema.GroupVersionResource{Group: "ome.io", Version: "v1beta1", Resource: resource}
		return dynamic.NewForConfigOrDie(c.RESTConfig()).Resource(gvr).Namespace(namespace)
	}
	w := &world{T: t, cluster: c, kube: c.Clientset(), isvc: in("inferenceservices"), replicas: in("inferencereplicas")}
	w.install(ome.Release12)
	return w
}

// install applies the CRDs and the ConfigMap of a release.
func (w *world) install(r ome.Release) {
	w.Helper()
	w.apply(ome.CRDs(r))
	w.apply(ome.Config(r))
}

// release13 selects release 1.3.
func release13(o *ome.Options) { o.Release = ome.Release13 }

// start runs an emulator until stop is called or the test ends.
func (w *world) start(change ...func(*ome.Options)) {
	w.Helper()
	options := ome.DefaultOptions()
	for _, f := range change {
		f(&options)
	}
	w.release = options.Release
	if w.release == ome.Release13 {
		w.install(ome.Release13)
	}
	var observed zapcore.Core
	observed, w.logs = observer.New(zap.DebugLevel)
	w.registry = prometheus.NewRegistry()
	log := zap.New(zapcore.NewTee(observed, zaptest.NewLogger(w).Core()))
	e, err := ome.New(ome.Params{Options: options, Config: w.cluster.RESTConfig(), Log: log, Registry: w.registry})
	require.NoError(w, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	w.ome = e
	stopped := false
	w.stop = func() {
		if !stopped {
			cancel()
			assert.NoError(w, <-ended)
		}
		stopped = true
	}
	w.Cleanup(w.stop)
	require.Eventually(w, e.Synced, kubetest.Patience, 10*time.Millisecond)
}

// apply applies a manifest.
func (w *world) apply(manifest string) {
	w.Helper()
	require.NoError(w, w.cluster.Apply(w.Context(), manifest))
}

// service creates an InferenceService with metadata and spec in YAML's flow style.
func (w *world) service(metadata, spec string) types.UID {
	w.Helper()
	w.apply("{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {namespace: models, " + metadata + "}, spec: {" + spec + "}}")
	live, err := w.isvc.List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	return live.Items[0].GetUID()
}

func (w *world) patch(name, patch string) {
	w.Helper()
	_, err := w.isvc.Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(w, err)
}

func (w *world) patchStatus(name, patch string) {
	w.Helper()
	_, err := w.isvc.Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(w, err)
}

// configure changes keys of OME's ingress configuration.
func (w *world) configure(change map[string]any) {
	w.Helper()
	maps := w.kube.CoreV1().ConfigMaps("ome")
	live, err := maps.Get(w.Context(), ome.ConfigName, metav1.GetOptions{})
	require.NoError(w, err)
	values := map[string]any{}
	require.NoError(w, json.Unmarshal([]byte(live.Data["ingress"]), &values))
	for key, value := range change {
		values[key] = value
	}
	text, err := json.Marshal(values)
	require.NoError(w, err)
	live.Data["ingress"] = string(text)
	_, err = maps.Update(w.Context(), live, metav1.UpdateOptions{})
	require.NoError(w, err)
}

// eventually waits until all assertions of check hold.
func (w *world) eventually(check func(*assert.CollectT)) {
	w.Helper()
	require.EventuallyWithT(w, check, kubetest.Patience, 20*time.Millisecond)
}

func (w *world) get(c require.TestingT, name string) *unstructured.Unstructured {
	u, err := w.isvc.Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(c, err)
	return u
}

// conditions returns the status and the reason of each condition, by type.
func conditions(u *unstructured.Unstructured) map[string]string {
	found := map[string]string{}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, item := range list {
		c := item.(map[string]any)
		text, _ := c["status"].(string)
		if reason, ok := c["reason"].(string); ok {
			text += " " + reason
		}
		found[c["type"].(string)] = text
	}
	return found
}

func text(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}

// services returns the Services of the namespace, by name.
func (w *world) services(c require.TestingT) map[string]corev1.Service {
	list, err := w.kube.CoreV1().Services(namespace).List(context.Background(), metav1.ListOptions{})
	require.NoError(c, err)
	found := map[string]corev1.Service{}
	for i := range list.Items {
		found[list.Items[i].Name] = list.Items[i]
	}
	return found
}

func names[V any](m map[string]V) []string {
	list := make([]string, 0, len(m))
	for name := range m {
		list = append(list, name)
	}
	return list
}

// settled waits until the emulator has processed all events without further writes. It returns the counts of writes.
func (w *world) settled() map[ome.Write]int {
	w.Helper()
	deadline := time.Now().Add(kubetest.Patience)
	for before := w.ome.Writes(); ; {
		w.processed()
		after := w.ome.Writes()
		if assert.ObjectsAreEqual(before, after) {
			return after
		}
		require.True(w, time.Now().Before(deadline), "the emulator does not stop writing: %v, then %v", before, after)
		before = after
	}
}

// processed waits until the emulator has processed all earlier events and its queue is empty. It creates an object of each kind
// that the emulator watches and writes. The event of this object follows all earlier events of the kind.
func (w *world) processed() {
	w.Helper()
	w.markers++
	var names, manifests []string
	for kind, manifest := range map[string]string{
		// The emulator writes nothing for a spec that it cannot decode.
		"InferenceService": "{apiVersion: ome.io/v1beta1, spec: {engine: undecodable}, metadata: {finalizers: [" + ome.Finalizer + "], ",
		"InferenceReplica": "{apiVersion: ome.io/v1beta1, spec: {}, metadata: {",
		"Service":          "{apiVersion: v1, spec: {ports: [{port: 80}]}, metadata: {",
		"ConfigMap":        "{apiVersion: v1, metadata: {",
		"Deployment":       "{apiVersion: apps/v1, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}, metadata: {",
		"Ingress":          "{apiVersion: networking.k8s.io/v1, spec: {defaultBackend: {service: {name: a, port: {number: 80}}}}, metadata: {",
	} {
		if kind == ome.KindReplica && w.release != ome.Release13 {
			continue
		}
		name := fmt.Sprintf("marker-%d-%s", w.markers, strings.ToLower(kind))
		if kind != ome.Kind { // the owner does not exist
			manifest += fmt.Sprintf("labels: {%s: %s}, ownerReferences: [{apiVersion: %s, kind: %s, name: %s, uid: none, controller: true}], ",
				ome.LabelService, name, ome.APIVersion, ome.Kind, name)
		}
		manifests = append(manifests, manifest+fmt.Sprintf("namespace: ome, name: %s}, kind: %s}", name, kind))
		names = append(names, "ome/"+name)
	}
	w.apply(strings.Join(manifests, "\n---\n"))
	w.eventually(func(c *assert.CollectT) {
		last, count := w.outcomes()
		for _, name := range names {
			assert.Contains(c, last, name)
		}
		for name, message := range last {
			assert.NotContains(c, message, "requeued", name)
		}
		assert.InDelta(c, count, counter(c, w.registry, "workqueue_adds_total"), 0, "the queue is empty")
	})
}

// fails waits until three reconciles of a service have failed with an error that contains the text.
func (w *world) fails(name, text string) {
	w.Helper()
	w.eventually(func(c *assert.CollectT) {
		failures := w.logs.FilterField(zap.String(logging.KeyName, name)).Filter(func(entry observer.LoggedEntry) bool {
			err, _ := entry.ContextMap()["error"].(string)
			return strings.Contains(err, text)
		})
		assert.GreaterOrEqual(c, failures.Len(), 3)
	})
}

// outcomes returns the last outcome of each name, and the number of reconciles.
func (w *world) outcomes() (last map[string]string, count int) {
	last = map[string]string{}
	for _, entry := range w.logs.All() {
		fields := entry.ContextMap()
		if _, ended := fields[logging.KeyDuration]; !ended {
			continue
		}
		count++
		last[fmt.Sprint(fields[logging.KeyNamespace], "/", fields[logging.KeyName])] = entry.Message
	}
	return last, count
}

// counter returns the value of a counter with one series.
func counter(t require.TestingT, r *prometheus.Registry, name string) float64 {
	families, err := r.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == name {
			require.Len(t, family.GetMetric(), 1)
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	require.Fail(t, "metric "+name+" does not exist")
	return 0
}
