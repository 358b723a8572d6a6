//go:build system

package flow

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"fairlead.dev/pkg/apis/llmd/v1alpha1"
	clientset "fairlead.dev/pkg/client/clientset/versioned"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/audit"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/services/variant-autoscaler/internal/app"
	"fairlead.dev/services/variant-autoscaler/internal/config"
)

const (
	tick      = 50 * time.Millisecond
	program   = "variant-autoscaler"
	namespace = "fairlead"
	charts    = "../../../../charts/variant-autoscaler"
)

// rig is an API server with the roles of the chart, and the program as the user of them. There is no Prometheus: the load of all models is
// unknown, and replicas follow the bounds of variants.
type rig struct {
	*cluster.Cluster

	t          *testing.T
	kubeconfig string // of the program's ServiceAccount
	variants   clientset.Interface
	passes     int
}

// newRig returns a rig whose chart has values, as name=value.
func newRig(t *testing.T, values ...string) *rig {
	t.Helper()
	r := &rig{t: t, Cluster: cluster.Start(t, cluster.ControlPlaneOnly, cluster.Audit)}
	r.variants = clientset.NewForConfigOrDie(r.RESTConfig())
	args := []string{"template", program, charts, "--namespace", namespace, "--show-only", "templates/rbac.yaml", "--show-only", "templates/serviceaccount.yaml"}
	for _, v := range append(values, "prometheus.url=https://prometheus", "rbac.aggregate=false") {
		args = append(args, "--set", v)
	}
	roles, err := r.Helm(t.Context(), args...)
	require.NoError(t, err)
	r.apply(`
{apiVersion: v1, kind: Namespace, metadata: {name: models}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: fairlead}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: variantautoscaling-config, namespace: fairlead}, data: {GLOBAL_OPT_INTERVAL: 10s, PROMETHEUS_BASE_URL: "https://prometheus.invalid"}}
---
`)
	r.apply(r.read(charts + "/crds/llmd.ai_variantautoscalings.yaml"))
	r.apply(r.read("testdata/kinds.yaml"))
	r.apply(roles)
	r.kubeconfig = r.kubeconfigOf(program)
	return r
}

func (r *rig) read(file string) string {
	r.t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(r.t, err)
	return string(text)
}

func (r *rig) apply(manifests string) {
	r.t.Helper()
	require.NoError(r.t, r.Apply(r.t.Context(), manifests))
}

// kubeconfigOf writes a kubeconfig with a token of a ServiceAccount.
func (r *rig) kubeconfigOf(account string) string {
	r.t.Helper()
	token, err := r.Clientset().CoreV1().ServiceAccounts(namespace).CreateToken(r.t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(r.t, err)
	c, err := clientcmd.LoadFromFile(r.Kubeconfig)
	require.NoError(r.t, err)
	for name := range c.AuthInfos {
		c.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	file := filepath.Join(r.t.TempDir(), "kubeconfig")
	require.NoError(r.t, clientcmd.WriteToFile(*c, file))
	return file
}

// start runs a replica of the program until the test ends or stop is called. options change its configuration.
func (r *rig) start(actuator string, options ...func(*config.Config)) (stop func()) {
	r.t.Helper()
	cfg := config.Default(func(string) string { return "" })
	cfg.Kube.Kubeconfig, cfg.Namespace, cfg.Leader.Namespace, cfg.Actuator = r.kubeconfig, namespace, namespace, actuator
	cfg.HTTP.MetricsAddress, cfg.HTTP.HealthAddress = "127.0.0.1:0", "127.0.0.1:0"
	for _, o := range options {
		o(cfg)
	}
	require.NoError(r.t, cfg.Validate())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, cfg, zap.NewNop()) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(r.t, <-ended)
	})
	r.t.Cleanup(stop)
	return stop
}

// bound sets minimum and maximum of a variant, so that it gets a number of replicas.
func (r *rig) bound(variant string, replicas int) {
	r.t.Helper()
	patch := fmt.Sprintf(`{"spec": {"minReplicas": %[1]d, "maxReplicas": %[1]d}}`, replicas)
	_, err := r.variants.LlmdV1alpha1().VariantAutoscalings("models").Patch(r.t.Context(), variant, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(r.t, err)
}

// pass causes a pass, as a change of any variant does. If the program has not heard of what was changed before by then, it does so in a later
// pass, of the timer.
func (r *rig) pass() {
	r.t.Helper()
	r.passes++
	r.variant("pass", "v1", "ConfigMap", r.passes)
}

// condition waits until a condition of a variant has a status and a reason.
func (r *rig) condition(variant, kind, want string) metav1.Condition {
	r.t.Helper()
	var found metav1.Condition
	require.EventuallyWithT(r.t, func(collect *assert.CollectT) {
		v, err := r.variants.LlmdV1alpha1().VariantAutoscalings("models").Get(r.t.Context(), variant, metav1.GetOptions{})
		require.NoError(collect, err)
		for _, c := range v.Status.Conditions {
			if c.Type == kind {
				found = c
			}
		}
		require.Equal(collect, want, string(found.Status)+" "+found.Reason, "%s: %s", variant, found.Message)
		require.Equal(collect, v.Generation, found.ObservedGeneration)
		require.NotNil(collect, v.Status.Actuation)
		require.Equal(collect, r.applied(v), v.Status.Actuation.Applied)
	}, kubetest.Patience, tick)
	return found
}

// applied reports whether the condition Applied of a variant is true.
func (r *rig) applied(v *v1alpha1.VariantAutoscaling) bool {
	for _, c := range v.Status.Conditions {
		if c.Type == v1alpha1.ConditionApplied {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

// replicas waits until an object has a number of replicas in its spec.
func (r *rig) replicas(kind, name string, want int64) *unstructured.Unstructured {
	r.t.Helper()
	var found *unstructured.Unstructured
	require.EventuallyWithT(r.t, func(collect *assert.CollectT) {
		text, err := r.Kubectl(r.t.Context(), "-n", "models", "get", kind, name, "-o", "json", "--show-managed-fields")
		require.NoError(collect, err)
		found = &unstructured.Unstructured{}
		require.NoError(collect, found.UnmarshalJSON([]byte(text)))
		n, _, _ := unstructured.NestedInt64(found.Object, "spec", "replicas")
		require.Equal(collect, want, n)
	}, kubetest.Patience, tick)
	return found
}

// writes returns the writes of scales by the program, as resource/name.
func (r *rig) writes() []string {
	r.t.Helper()
	var all []string
	for _, call := range r.calls() {
		if call.Object.Subresource == "scale" && call.Writes() && call.Response.Code < 300 {
			all = append(all, call.Object.Resource+"/"+call.Object.Name)
		}
	}
	return all
}

// calls returns the requests of the program.
func (r *rig) calls() []audit.Call {
	r.t.Helper()
	return audit.Calls(r.t, r.Cluster, audit.Program{Account: types.NamespacedName{Namespace: namespace, Name: program}}, time.Time{})
}

// variant declares a variant of a model of its own.
func (r *rig) variant(name, apiVersion, kind string, replicas int) {
	r.t.Helper()
	r.apply(fmt.Sprintf(`{apiVersion: llmd.ai/v1alpha1, kind: VariantAutoscaling, metadata: {name: %[1]s, namespace: models},
spec: {scaleTargetRef: {apiVersion: %[2]s, kind: %[3]s, name: %[1]s}, modelID: %[1]s, minReplicas: %[4]d, maxReplicas: %[4]d}}`, name, apiVersion, kind, replicas))
}

// workload creates a Deployment or a StatefulSet with one replica. metadata and spec are further fields.
func (r *rig) workload(kind, name, metadata, spec string) {
	r.t.Helper()
	r.apply(strings.NewReplacer("KIND", kind, "NAME", name, "METADATA", metadata, "SPEC", spec).Replace(
		`{apiVersion: apps/v1, kind: KIND, metadata: {name: NAME, namespace: models METADATA}, spec: {replicas: 1, selector: {matchLabels: {app: NAME}},
template: {metadata: {labels: {app: NAME}}, spec: {containers: [{name: server, image: server}]}} SPEC}}`))
}
