package ome_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/pkg/kubetest/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	namespace = "models"
	patience  = 30 * time.Second
)

// world is a control plane with OME's objects, and an OME in it.
type world struct {
	*testing.T
	cluster  *cluster.Cluster
	kube     kubernetes.Interface
	isvc     dynamic.ResourceInterface
	replicas dynamic.ResourceInterface
	ome      *ome.Emulator
	stop     func()
}

// newWorld starts a control plane with the CRD and the ConfigMap, and an emulator.
func newWorld(t *testing.T, change ...func(*ome.Options)) *world {
	t.Helper()
	w := newCluster(t)
	w.start(change...)
	return w
}

// newCluster is newWorld without an emulator.
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
	_, err := w.cluster.Kubectl(w.Context(), "wait", "--for=condition=Established", "crd", "--all")
	require.NoError(w, err)
}

// release13 makes an emulator one of release 1.3.
func release13(o *ome.Options) { o.Release = ome.Release13 }

// start runs an emulator until stop is called or the test ends.
func (w *world) start(change ...func(*ome.Options)) {
	w.Helper()
	options := ome.DefaultOptions()
	for _, f := range change {
		f(&options)
	}
	if options.Release == ome.Release13 {
		w.install(ome.Release13)
	}
	e, err := ome.New(ome.Params{Options: options, Config: w.cluster.RESTConfig(), Log: zaptest.NewLogger(w)})
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
	require.Eventually(w, e.Synced, patience, 10*time.Millisecond)
}

// apply is kubectl apply in the namespace.
func (w *world) apply(manifest string) {
	w.Helper()
	require.NoError(w, w.cluster.Apply(w.Context(), manifest))
}

// service creates an InferenceService with metadata and spec in the short form of YAML.
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
	require.EventuallyWithT(w, check, patience, 20*time.Millisecond)
}

func (w *world) get(c require.TestingT, name string) *unstructured.Unstructured {
	u, err := w.isvc.Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(c, err)
	return u
}

// conditions returns status and reason by type.
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

// services returns those of the namespace by name.
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

// settled waits until nothing has been written for some time, and returns the counts of writes.
func (w *world) settled() map[ome.Write]int {
	w.Helper()
	const quiet = 500 * time.Millisecond
	deadline := time.Now().Add(patience)
	for before := w.ome.Writes(); ; {
		time.Sleep(quiet)
		after := w.ome.Writes()
		if assert.ObjectsAreEqual(before, after) {
			return after
		}
		require.True(w, time.Now().Before(deadline), "the emulator goes on writing: %v, then %v", before, after)
		before = after
	}
}
