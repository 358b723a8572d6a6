//go:build system

package flow

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/pkg/configmap"
	"fairlead.dev/pkg/kubetest/audit"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/services/ingress-reconciler/internal/app"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

const (
	tick = 100 * time.Millisecond
	ns   = "models"
)

// onEachRelease runs a test with each release of OME.
func onEachRelease(t *testing.T, test func(t *testing.T, release ome.Release)) {
	t.Helper()
	for _, release := range ome.Releases {
		t.Run(string(release), func(t *testing.T) {
			t.Parallel()
			test(t, release)
		})
	}
}

// rig is a cluster with OME, data planes and, after start, the reconciler.
type rig struct {
	t       testing.TB
	cluster *cluster.Cluster
	client  dynamic.Interface
	planes  *planes
	release ome.Release
	calls   *audit.Log
	stopOME func()
	logs    *zaptest.ObservedLogs
	admits  *rest.Config // a proxy that refuses objects like a webhook; nil: none
}

// newRig returns a rig with the default configuration of an OME release. If kinds are omitted, the rig uses a separate cluster.
func newRig(t *testing.T, release ome.Release, configuration string, without ...schema.GroupVersionResource) *rig {
	t.Helper()
	var c *cluster.Cluster
	if len(without) == 0 {
		c = shared.BorrowCluster(t)
	} else {
		c = cluster.Start(t, cluster.ControlPlaneOnly, cluster.Audit)
		prepare(t, c, without...)
	}
	r := newPlainRig(t, c, release, configuration)
	r.planes = startPlanes(t, r.client, r.cluster.Clientset().Discovery())
	r.stopOME = r.startOME()
	return r
}

// newPlainRig returns a rig with the configurations of OME and of the reconciler, in a prepared cluster.
func newPlainRig(t testing.TB, c *cluster.Cluster, release ome.Release, configuration string) *rig {
	t.Helper()
	r := &rig{t: t, cluster: c, client: dynamic.NewForConfigOrDie(c.RESTConfig()), release: release}
	r.calls = audit.Follow(t, c)
	if release == ome.Release13 {
		r.apply(ome.CRDs(release))
	}
	r.apply(ome.Config(release))
	r.configure(configuration)
	return r
}

func (r *rig) apply(manifest string) {
	r.t.Helper()
	require.NoError(r.t, r.cluster.Apply(r.t.Context(), manifest))
}

// configure writes the ConfigMap of the reconciler.
func (r *rig) configure(text string) {
	r.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "ours", "namespace": "fairlead"},
		"data": map[string]any{"config": text},
	}}
	_, err := r.client.Resource(configMaps).Namespace("fairlead").Apply(r.t.Context(), "ours", u,
		metav1.ApplyOptions{FieldManager: "test", Force: true})
	require.NoError(r.t, err)
}

// background calls run, and cancels its context when the test ends or stop is called.
func background(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

// startOME runs the emulator of OME.
func (r *rig) startOME(changes ...func(*ome.Options)) (stop func()) {
	r.t.Helper()
	o := ome.DefaultOptions()
	o.Release = r.release
	for _, change := range changes {
		change(&o)
	}
	emulator, err := ome.New(ome.Params{Options: o, Config: cmp.Or(r.admits, r.cluster.RESTConfig()), Log: zap.NewNop()})
	require.NoError(r.t, err)
	return background(r.t, emulator.Run)
}

// start runs the reconciler.
func (r *rig) start(changes ...func(*config.Config)) (stop func()) {
	r.t.Helper()
	cfg := config.Default()
	cfg.Kube.Kubeconfig = r.cluster.Kubeconfig
	cfg.HTTP.MetricsAddress, cfg.HTTP.HealthAddress = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Leader.Elect = false
	cfg.Sources.ConfigMap = configmap.Name{Namespace: "fairlead", Name: "ours"}
	for _, change := range changes {
		change(cfg)
	}
	core, logs := zaptest.New(zap.InfoLevel)
	r.logs = logs
	return background(r.t, func(ctx context.Context) error { return app.Run(ctx, cfg, zap.New(core)) })
}

// service creates an InferenceService with components.
func (r *rig) service(namespace, name string, components ...string) {
	r.t.Helper()
	spec := map[string]any{}
	for _, c := range components {
		spec[c] = map[string]any{}
	}
	r.object(namespace, name, spec, nil)
}

// yaml creates an InferenceService with a specification in YAML.
func (r *rig) yaml(namespace, name, text string, annotations map[string]any) {
	r.t.Helper()
	spec := map[string]any{}
	require.NoError(r.t, yaml.Unmarshal([]byte(text), &spec))
	r.object(namespace, name, spec, annotations)
}

func (r *rig) object(namespace, name string, spec, annotations map[string]any) {
	r.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "spec": spec,
		"metadata": map[string]any{"name": name, "namespace": namespace, "annotations": annotations},
	}}
	_, err := r.client.Resource(isvc.Resource).Namespace(namespace).Create(r.t.Context(), u, metav1.CreateOptions{})
	require.NoError(r.t, err)
}

// aged waits until new objects would be younger than a service. Timestamps have a resolution of one second.
func (r *rig) aged(namespace, name string) {
	r.t.Helper()
	u, err := r.client.Resource(isvc.Resource).Namespace(namespace).Get(r.t.Context(), name, metav1.GetOptions{})
	require.NoError(r.t, err)
	created := u.GetCreationTimestamp()
	r.eventually(func() (string, bool) { return created.String(), time.Now().Unix() > created.Unix() }, "%s is older", name)
}

// patch changes an object with a merge patch.
func (r *rig) patch(resource schema.GroupVersionResource, namespace, name, text string) {
	r.t.Helper()
	_, err := r.client.Resource(resource).Namespace(namespace).Patch(r.t.Context(), name, types.MergePatchType, []byte(text),
		metav1.PatchOptions{FieldManager: "kubectl"})
	require.NoError(r.t, err)
}

func (r *rig) delete(resource schema.GroupVersionResource, namespace, name string) {
	r.t.Helper()
	require.NoError(r.t, r.client.Resource(resource).Namespace(namespace).Delete(r.t.Context(), name, metav1.DeleteOptions{}))
}

// collectGarbage deletes the reconciler's objects whose InferenceService is gone. The cluster has no garbage collector.
func (r *rig) collectGarbage() {
	r.t.Helper()
	alive := map[types.UID]bool{}
	r.eventually(func() (string, bool) {
		services, err := r.client.Resource(isvc.Resource).List(r.t.Context(), metav1.ListOptions{})
		require.NoError(r.t, err)
		clear(alive)
		for i := range services.Items {
			if services.Items[i].GetDeletionTimestamp() != nil {
				return services.Items[i].GetName(), false
			}
			alive[services.Items[i].GetUID()] = true
		}
		return "", true
	}, "OME removes its finalizers")
	for _, resource := range informers.Written {
		list, err := r.client.Resource(resource).List(r.t.Context(),
			metav1.ListOptions{LabelSelector: render.LabelManagedBy + "=" + render.Manager})
		if apierrors.IsNotFound(err) {
			continue
		}
		require.NoError(r.t, err)
		for i := range list.Items {
			o := &list.Items[i]
			if owner := metav1.GetControllerOf(o); owner != nil && !alive[owner.UID] {
				r.delete(resource, o.GetNamespace(), o.GetName())
			}
		}
	}
}
