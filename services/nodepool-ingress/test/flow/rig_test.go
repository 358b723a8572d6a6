//go:build system

package flow

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/services/nodepool-ingress/internal/app"
	"fairlead.dev/services/nodepool-ingress/internal/config"
	"fairlead.dev/services/nodepool-ingress/internal/informers"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
)

const (
	tick = 50 * time.Millisecond
	// quiet is the time in which a settled program would write again, if it did.
	quiet = 1500 * time.Millisecond

	namespace = "fairlead"
	crdFile   = "../../../../charts/nodepool-ingress/crds/apps.openyurt.io_yurtingresses.yaml"
)

// rig is a cluster with the CRD of the program.
type rig struct {
	t       testing.TB
	cluster *cluster.Cluster
	client  dynamic.Interface
	kube    kubernetes.Interface
	logs    *zaptest.ObservedLogs
}

// newRig returns a rig in a shared API server, without objects of other tests. No other test uses it at the same time: the program serves
// all YurtIngresses.
func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigIn(t, shared.BorrowCluster(t), "")
}

// newRigIn returns a rig in a cluster. It installs a CRD if one is given, which may be that of another release.
func newRigIn(t testing.TB, c *cluster.Cluster, crd string) *rig {
	t.Helper()
	r := &rig{t: t, cluster: c, client: dynamic.NewForConfigOrDie(c.RESTConfig()), kube: c.Clientset()}
	if crd == "" {
		return r
	}
	r.apply("{apiVersion: v1, kind: Namespace, metadata: {name: " + namespace + "}}")
	r.apply(read(t, crd))
	return r
}

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

func (r *rig) apply(manifest string) {
	r.t.Helper()
	require.NoError(r.t, r.cluster.Apply(r.t.Context(), manifest))
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

// start runs the program.
func (r *rig) start(changes ...func(*config.Config)) (stop func()) {
	r.t.Helper()
	cfg := config.Default()
	cfg.Kube.Kubeconfig = r.cluster.Kubeconfig
	cfg.HTTP.MetricsAddress, cfg.HTTP.HealthAddress = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Leader.Elect = false
	cfg.Policy.Install.Namespace = namespace
	cfg.Discovery = 500 * time.Millisecond
	cfg.Work.LastRetry = time.Second
	for _, change := range changes {
		change(cfg)
	}
	require.NoError(r.t, cfg.Validate())
	core, logs := zaptest.New(zap.DebugLevel)
	r.logs = logs
	return background(r.t, func(ctx context.Context) error { return app.Run(ctx, cfg, zap.New(core)) })
}

// node creates a node of a pool. It is ready.
func (r *rig) node(name, key, pool string) {
	r.t.Helper()
	n, err := r.kube.CoreV1().Nodes().Create(r.t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{key: pool}}}, metav1.CreateOptions{})
	require.NoError(r.t, err)
	r.ready(n.Name, corev1.ConditionTrue)
}

func (r *rig) ready(node string, status corev1.ConditionStatus) {
	r.t.Helper()
	patch := fmt.Sprintf(`{"status": {"conditions": [{"type": "Ready", "status": %q}]}}`, status)
	_, err := r.kube.CoreV1().Nodes().Patch(r.t.Context(), node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{},
		"status")
	require.NoError(r.t, err)
}

// pools creates a ready node in each pool.
func (r *rig) pools(names ...string) {
	r.t.Helper()
	for _, name := range names {
		r.node("node-"+name, v1alpha1.LabelNodePool, name)
	}
}

// create creates a YurtIngress with a specification in YAML.
func (r *rig) create(name, spec string) *v1alpha1.YurtIngress {
	r.t.Helper()
	r.apply(fmt.Sprintf("{apiVersion: apps.openyurt.io/v1alpha1, kind: YurtIngress, metadata: {name: %s}, spec: %s}", name, spec))
	return r.get(name)
}

// get returns a YurtIngress, nil if it does not exist.
func (r *rig) get(name string) *v1alpha1.YurtIngress {
	r.t.Helper()
	u, err := r.client.Resource(informers.YurtIngresses).Get(r.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(r.t, err)
	var y v1alpha1.YurtIngress
	require.NoError(r.t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &y))
	return &y
}

// patch changes a YurtIngress with a merge patch.
func (r *rig) patch(name, text string) {
	r.t.Helper()
	r.patchObject(informers.YurtIngresses, "", name, text)
}

func (r *rig) patchObject(resource schema.GroupVersionResource, ns, name, text string) {
	r.t.Helper()
	_, err := r.client.Resource(resource).Namespace(ns).Patch(r.t.Context(), name, types.MergePatchType, []byte(text),
		metav1.PatchOptions{FieldManager: "kubectl"})
	require.NoError(r.t, err)
}

func (r *rig) delete(resource schema.GroupVersionResource, ns, name string) {
	r.t.Helper()
	require.NoError(r.t, r.client.Resource(resource).Namespace(ns).Delete(r.t.Context(), name, metav1.DeleteOptions{}))
}

// owned returns the objects of a YurtIngress by kind and name, and of one pool if it is not empty.
func (r *rig) owned(uid types.UID, pool string) map[string]*unstructured.Unstructured {
	r.t.Helper()
	objects := map[string]*unstructured.Unstructured{}
	for _, k := range plan.Kinds() {
		list, err := r.client.Resource(k.Resource).List(r.t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelManagedBy})
		require.NoError(r.t, err)
		for i := range list.Items {
			u := &list.Items[i]
			if owner := metav1.GetControllerOf(u); owner != nil && owner.UID == uid &&
				(pool == "" || u.GetLabels()[v1alpha1.LabelPool] == pool) {
				objects[k.Kind+"/"+u.GetName()] = u
			}
		}
	}
	return objects
}

// managed returns the names of the objects of the program of one kind.
func (r *rig) managed(resource schema.GroupVersionResource) []string {
	r.t.Helper()
	list, err := r.client.Resource(resource).List(r.t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelManagedBy})
	require.NoError(r.t, err)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return names
}

// deployment returns the Deployment of a pool, nil if it does not exist.
func (r *rig) deployment(pool string) *appsv1.Deployment {
	r.t.Helper()
	list, err := r.kube.AppsV1().Deployments(namespace).List(r.t.Context(),
		metav1.ListOptions{LabelSelector: v1alpha1.LabelPool + "=" + pool})
	require.NoError(r.t, err)
	if len(list.Items) == 0 {
		return nil
	}
	require.Len(r.t, list.Items, 1)
	return &list.Items[0]
}

func image(d *appsv1.Deployment) string {
	if d == nil {
		return ""
	}
	return d.Spec.Template.Spec.Containers[0].Image
}

// deploy plays the controller of Deployments, until the test ends: pods are ready at once, unless their image has the tag bad: then their
// deadline is exceeded, or the tag slow: then they stay as they are.
func (r *rig) deploy() {
	background(r.t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			list, err := r.kube.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for i := range list.Items {
				d := &list.Items[i]
				if d.Status.ObservedGeneration != d.Generation && d.DeletionTimestamp == nil {
					progress(d)
					_, _ = r.kube.AppsV1().Deployments(namespace).UpdateStatus(ctx, d,
						metav1.UpdateOptions{FieldManager: "deployment-controller"})
				}
			}
			time.Sleep(tick)
		}
		return nil
	})
}

func progress(d *appsv1.Deployment) {
	replicas, tag := *d.Spec.Replicas, image(d)
	before := d.Status
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: replicas}
	condition := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable",
	}
	switch {
	case strings.HasSuffix(tag, ":bad"): // the old pods stay
		d.Status.ReadyReplicas, d.Status.AvailableReplicas, d.Status.UpdatedReplicas = before.ReadyReplicas, before.AvailableReplicas, 1
		d.Status.Replicas++
		condition.Status, condition.Reason, condition.Message = corev1.ConditionFalse, "ProgressDeadlineExceeded", "timed out progressing"
	case strings.HasSuffix(tag, ":slow"):
		d.Status.ReadyReplicas, d.Status.AvailableReplicas, d.Status.UpdatedReplicas = before.ReadyReplicas, before.AvailableReplicas, 0
	default:
		d.Status.ReadyReplicas, d.Status.AvailableReplicas, d.Status.UpdatedReplicas = replicas, replicas, replicas
	}
	d.Status.Conditions = []appsv1.DeploymentCondition{condition}
}

// pool returns the status of a pool.
func (r *rig) pool(name, pool string) *v1alpha1.PoolStatus {
	r.t.Helper()
	y := r.get(name)
	if y == nil {
		return nil
	}
	for i := range y.Status.Pools {
		if y.Status.Pools[i].Name == pool {
			return &y.Status.Pools[i]
		}
	}
	return nil
}

// condition returns status and reason of a condition of a pool.
func (r *rig) condition(name, pool, kind string) string {
	r.t.Helper()
	p := r.pool(name, pool)
	if p == nil {
		return ""
	}
	for _, c := range p.Conditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// await waits until a pool has a condition.
func (r *rig) await(name, pool, kind, want string) {
	r.t.Helper()
	r.eventually(func() (string, bool) {
		got := r.condition(name, pool, kind)
		return got, got == want
	}, "%s %s: condition %s is %s", name, pool, kind, want)
}

// eventually waits until f reports true. Its text is in the message of a failure.
func (r *rig) eventually(f func() (string, bool), format string, args ...any) {
	r.t.Helper()
	last := ""
	for end := time.Now().Add(kubetest.Patience); ; time.Sleep(tick) {
		var done bool
		if last, done = f(); done {
			return
		}
		if time.Now().After(end) {
			require.Failf(r.t, "timed out", "%s: last: %s\nlog:\n%s", fmt.Sprintf(format, args...), last, r.log())
		}
	}
}

// log returns the log of the program.
func (r *rig) log() string {
	var lines []string
	if r.logs != nil {
		for _, e := range r.logs.All() {
			if e.Level < zap.InfoLevel {
				continue
			}
			lines = append(lines, fmt.Sprintf("%s %s %v", e.Level, e.Message, e.ContextMap()))
		}
	}
	if len(lines) > 30 {
		lines = lines[len(lines)-30:]
	}
	return strings.Join(lines, "\n")
}

// versions returns the resource versions of all objects of a YurtIngress, and its own.
func (r *rig) versions(name string) map[string]string {
	r.t.Helper()
	y := r.get(name)
	versions := map[string]string{"YurtIngress/" + name: y.ResourceVersion}
	for key, u := range r.owned(y.UID, "") {
		versions[key] = u.GetResourceVersion()
	}
	return versions
}

// settled checks that the program writes nothing for a while.
func (r *rig) settled(name string) {
	r.t.Helper()
	r.eventually(func() (string, bool) {
		before := r.versions(name)
		time.Sleep(quiet)
		after := r.versions(name)
		return fmt.Sprint(before, after), assert.ObjectsAreEqual(before, after)
	}, "no writes")
}
