package informers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/golden"
	"fairlead.dev/pkg/kubetest"
)

func TestMain(m *testing.M) {
	kubetest.DropErrorBackoff()
	goleak.VerifyTestMain(m)
}

var (
	services = corev1.SchemeGroupVersion.WithResource("services")
	pods     = corev1.SchemeGroupVersion.WithResource("pods")
	chat     = cache.ObjectName{Namespace: "models", Name: "chat"}
)

// byApp indexes objects by a label.
var byApp = cache.Indexers{"app": func(obj any) ([]string, error) {
	return []string{obj.(metav1.Object).GetLabels()["app"]}, nil
}}

// services of an application, by application, without their status.
func serviceKind() Kind {
	return Kind{Resource: services, Name: "Service", Selector: "app", Indexers: byApp, Transform: Typed(func(s *corev1.Service) { s.Status = corev1.ServiceStatus{} })}
}

const manifests = `
- {apiVersion: v1, kind: Service, metadata: {namespace: models, name: chat, labels: {app: x}}, spec: {clusterIP: 10.0.0.1}, status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}}
- {apiVersion: v1, kind: Service, metadata: {namespace: models, name: malformed, uid: u, labels: {app: x}, annotations: {a: b}}, spec: {clusterIP: 7}}
- {apiVersion: v1, kind: Service, metadata: {namespace: models, name: unlabeled}}
- {apiVersion: serving.knative.dev/v1, kind: Service, metadata: {namespace: models, name: foreign, labels: {app: x}}}
- {apiVersion: v1, kind: Pod, metadata: {namespace: models, name: chat, labels: {app: x}}}
`

func objects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for _, m := range golden.Decode[[]map[string]any](t, []byte(manifests)) {
		all = append(all, &unstructured.Unstructured{Object: m})
	}
	return all
}

// discovery serves services and pods.
type discovery struct{}

func (discovery) ServerResourcesForGroupVersionWithContext(context.Context, string) (*metav1.APIResourceList, error) {
	return &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "services"}, {Name: "pods"}}}, nil
}

// newGroup returns a Group of a cluster with the objects.
func newGroup(t *testing.T) (*Group, *fake.FakeDynamicClient) {
	t.Helper()
	var all []runtime.Object
	for _, u := range objects(t) {
		if u.GetAPIVersion() == "v1" {
			all = append(all, u)
		}
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{services: "ServiceList", pods: "PodList"}, all...)
	return NewGroup(Params{Log: zap.NewNop(), Client: client, Discovery: discovery{}, Interval: time.Minute}), client
}

func run(t *testing.T, g *Group) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// assertServices asserts what a Reader has of the services of applications.
func assertServices(t *testing.T, r Reader) {
	t.Helper()
	assert.True(t, r.Listed())
	assert.Len(t, r.List(), 2)
	obj, found := r.Get(chat)
	require.True(t, found)
	service, ok := obj.(*corev1.Service)
	require.True(t, ok)
	assert.Equal(t, "10.0.0.1", service.Spec.ClusterIP)
	assert.Empty(t, service.Status, "it was trimmed")
	assert.Equal(t, []any{obj}, r.ByIndex("app", "x"))
	obj, found = r.Get(cache.ObjectName{Namespace: "models", Name: "malformed"})
	require.True(t, found, "it exists")
	assert.Equal(t, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "models", Name: "malformed", UID: "u"}}, obj)
	_, found = r.Get(cache.ObjectName{Namespace: "models", Name: "unlabeled"})
	assert.False(t, found)
}

func TestGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGroup(t)
		served := g.Add(serviceKind())
		podKind := Kind{Resource: pods, Name: "Pod", Indexers: byApp, Transform: Metadata()}
		podInformer := g.Add(podKind)
		assert.Equal(t, []string{"services app", "pods"}, g.Unsynced())
		run(t, g)
		synctest.Wait()
		assert.Empty(t, g.Unsynced())
		assertServices(t, served)
		assert.Len(t, podInformer.ByIndex("app", "x"), 1)
	})
}

func TestKindThatIsOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, client := newGroup(t)
		off := serviceKind()
		off.Off = true
		informer := g.Add(off)
		informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { t.Error("it has objects") }})
		run(t, g)
		synctest.Wait()
		assert.Empty(t, g.Unsynced(), "nobody waits for it")
		assert.False(t, informer.Listed())
		assert.Empty(t, informer.List())
		assert.Empty(t, client.Actions())
	})
}

func TestKindWithoutPermission(t *testing.T) {
	t.Parallel()
	for _, required := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g, client := newGroup(t)
			kubetest.FailAlways(client, "list", "services", apierrors.NewForbidden(services.GroupResource(), "", errors.New("no role")))
			k := serviceKind()
			k.Required = required
			informer := g.Add(k)
			run(t, g)
			time.Sleep(time.Minute)
			assert.Equal(t, required, len(g.Unsynced()) == 1)
			assert.False(t, informer.Listed())
		})
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	world := Snapshot{Objects: objects(t)}
	r, err := world.Reader(serviceKind())
	require.NoError(t, err)
	assertServices(t, r)
	assert.Panics(t, func() { r.ByIndex("other", "x") })

	off := serviceKind()
	off.Off = true
	world.Served = func(resource schema.GroupVersionResource) bool { return resource != pods }
	for _, k := range []Kind{off, {Resource: pods, Name: "Pod", Transform: Metadata()}} {
		r, err := world.Reader(k)
		require.NoError(t, err)
		assert.False(t, r.Listed())
		assert.Empty(t, r.List())
		_, found := r.Get(chat)
		assert.False(t, found)
	}

	broken := serviceKind()
	broken.Transform = func(any) (any, error) { return nil, errors.New("no") }
	_, err = world.Reader(broken)
	require.EqualError(t, err, "read Service models/chat: no")
	broken.Selector = "a in b"
	_, err = world.Reader(broken)
	require.ErrorContains(t, err, "selector of services: ")
	broken.Selector, broken.Fields = "", "a"
	_, err = world.Reader(broken)
	require.ErrorContains(t, err, "field selector of services: ")
}

func TestSnapshotSelectsByNamespaceAndFields(t *testing.T) {
	t.Parallel()
	world := Snapshot{Objects: objects(t)}
	for _, tt := range []struct {
		namespace, fields string
		want              int
	}{
		{"models", "", 2},
		{"other", "", 0},
		{"", "spec.clusterIP=10.0.0.1", 1},
		{"", "metadata.name=chat", 1},
		{"", "spec.clusterIP!=10.0.0.1", 1},
		{"", "spec.none=x", 0},
	} {
		k := serviceKind()
		k.Namespace, k.Fields = tt.namespace, tt.fields
		r, err := world.Reader(k)
		require.NoError(t, err)
		assert.Len(t, r.List(), tt.want, "%s %s", tt.namespace, tt.fields)
	}
}

func TestTransformOfWhatIsNoObject(t *testing.T) {
	t.Parallel()
	tombstone := cache.DeletedFinalStateUnknown{Key: "models/chat"}
	got, err := Metadata()(tombstone)
	require.NoError(t, err)
	assert.Equal(t, tombstone, got)
}
