package flow

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/services/ingress-reconciler/internal/app"
	"fairlead.dev/services/ingress-reconciler/internal/condition"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

const (
	patience = 30 * time.Second
	tick     = 20 * time.Millisecond
	ns       = "models"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a reconciler that runs, and what it runs beside.
type rig struct {
	t       testing.TB
	cluster *cluster.Cluster
	client  dynamic.Interface
	planes  *planes
	stopOME func()
	logs    *zaptest.ObservedLogs
}

// newRig starts everything, under a configuration of ours. Kinds that are named are left out.
func newRig(t *testing.T, configuration string, without ...schema.GroupVersionResource) *rig {
	t.Helper()
	r := newPlainRig(t, configuration, without...)
	r.planes = startPlanes(t, r.client, r.cluster.Clientset().Discovery())
	r.stopOME = r.startOME(ome.DefaultOptions())
	return r
}

// newPlainRig starts an API server that has all kinds, and a configuration of ours.
func newPlainRig(t testing.TB, configuration string, without ...schema.GroupVersionResource) *rig {
	t.Helper()
	c := cluster.Start(t, cluster.ControlPlaneOnly)
	r := &rig{t: t, cluster: c, client: dynamic.NewForConfigOrDie(c.RESTConfig())}
	for _, namespace := range []string{"ome", "fairlead", "gateways", ns, "others"} {
		r.apply(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", namespace))
	}
	r.apply(ome.CRD())
	r.apply(ome.Config())
	for resource, manifest := range crds(t) {
		skip := false
		for _, w := range without {
			skip = skip || w.Resource == resource
		}
		if !skip {
			r.apply(manifest)
		}
	}
	_, err := c.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
	require.NoError(t, err)
	r.configure(configuration)
	return r
}

// crds are the manifests of the kinds that may be absent, by resource.
func crds(t testing.TB) map[string]string {
	t.Helper()
	gateway := filepath.Join(module(t, "sigs.k8s.io/gateway-api"), "config/crd/standard")
	all := map[string]string{
		"middlewares": loose("traefik.io", "v1alpha1", "Middleware"),
		"services":    loose("serving.knative.dev", "v1", "Service"),
		"inferencepools": read(t, filepath.Join(module(t, "sigs.k8s.io/gateway-api-inference-extension"),
			"config/crd/bases/inference.networking.k8s.io_inferencepools.yaml")),
	}
	for _, resource := range []string{"gatewayclasses", "gateways", "httproutes"} {
		all[resource] = read(t, filepath.Join(gateway, "gateway.networking.k8s.io_"+resource+".yaml"))
	}
	for manifest := range strings.SplitSeq(read(t, filepath.Join(module(t, "istio.io/api"), "kubernetes/customresourcedefinitions.gen.yaml")), "\n---\n") {
		if strings.Contains(manifest, "name: virtualservices.networking.istio.io") {
			all["virtualservices"] = manifest
		}
	}
	require.NotEmpty(t, all["virtualservices"])
	return all
}

// module returns the folder of a module that this one requires.
func module(t testing.TB, path string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// loose is the CRD of a kind that holds anything.
func loose(group, version, kind string) string {
	plural := strings.ToLower(kind) + "s"
	return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[4]s.%[1]s}, spec: {
		group: %[1]s, scope: Namespaced, names: {kind: %[3]s, plural: %[4]s}, versions: [{name: %[2]s, served: true, storage: true,
		schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`, group, version, kind, plural)
}

func (r *rig) apply(manifest string) {
	r.t.Helper()
	require.NoError(r.t, r.cluster.Apply(r.t.Context(), manifest))
}

// configure writes our ConfigMap.
func (r *rig) configure(text string) {
	r.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "ours", "namespace": "fairlead"}, "data": map[string]any{"config": text},
	}}
	_, err := r.client.Resource(configMaps).Namespace("fairlead").Apply(r.t.Context(), "ours", u, metav1.ApplyOptions{FieldManager: "test", Force: true})
	require.NoError(r.t, err)
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// background runs something until the test ends, or stop is called.
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

// startOME runs the stand-in for OME.
func (r *rig) startOME(o ome.Options) (stop func()) {
	r.t.Helper()
	emulator, err := ome.New(ome.Params{Options: o, Config: r.cluster.RESTConfig(), Log: zap.NewNop()})
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
	cfg.Sources.Ours = config.Name{Namespace: "fairlead", Name: "ours"}
	for _, change := range changes {
		change(cfg)
	}
	core, logs := zaptest.New(zap.InfoLevel)
	r.logs = logs
	return background(r.t, func(ctx context.Context) error { return app.Run(ctx, cfg, zap.New(core)) })
}

// service makes an InferenceService of these components.
func (r *rig) service(namespace, name string, components ...string) {
	r.t.Helper()
	spec := map[string]any{}
	for _, c := range components {
		spec[c] = map[string]any{}
	}
	r.object(namespace, name, spec, nil)
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

// aged waits until whatever is made next is younger than a service: ages are in whole seconds.
func (r *rig) aged(namespace, name string) {
	r.t.Helper()
	u, err := r.client.Resource(isvc.Resource).Namespace(namespace).Get(r.t.Context(), name, metav1.GetOptions{})
	require.NoError(r.t, err)
	created := u.GetCreationTimestamp()
	r.eventually(func() (string, bool) { return created.String(), time.Now().Unix() > created.Unix() }, "%s is older", name)
}

// patch changes an object by a merge patch.
func (r *rig) patch(resource schema.GroupVersionResource, namespace, name, text string) {
	r.t.Helper()
	_, err := r.client.Resource(resource).Namespace(namespace).Patch(r.t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{FieldManager: "kubectl"})
	require.NoError(r.t, err)
}

func (r *rig) delete(resource schema.GroupVersionResource, namespace, name string) {
	r.t.Helper()
	require.NoError(r.t, r.client.Resource(resource).Namespace(namespace).Delete(r.t.Context(), name, metav1.DeleteOptions{}))
}

// condition returns what ours says of a service: "status reason: message".
// collectGarbage deletes the objects of ours whose InferenceService is gone, as the garbage collector does, which this cluster lacks.
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
		list, err := r.client.Resource(resource).List(r.t.Context(), metav1.ListOptions{LabelSelector: render.LabelManagedBy + "=" + render.Manager})
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

func (r *rig) condition(namespace, name string) string {
	u, err := r.client.Resource(isvc.Resource).Namespace(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	s, err := isvc.Read(u)
	if err != nil {
		return err.Error()
	}
	if c := condition.Find(s); c != nil {
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, objectNames.ReplaceAllString(c.Message, ""))
	}
	return "none"
}

// objectNames are the names of objects in a condition, which contain hashes.
var objectNames = regexp.MustCompile(` \([A-Za-z]+ [^()]*-fairlead-[0-9a-f]{8}\)`)

// says waits until the condition of a service is this.
func (r *rig) says(name, want string) {
	r.t.Helper()
	r.eventually(func() (string, bool) {
		got := r.condition(ns, name)
		return got, got == want
	}, "condition of %s: want %s", name, want)
}

// eventually waits until a function is true, and fails with what it saw last.
func (r *rig) eventually(f func() (saw string, ok bool), format string, args ...any) {
	r.t.Helper()
	var saw string
	var ok bool
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(tick) {
		if saw, ok = f(); ok {
			return
		}
	}
	require.Fail(r.t, fmt.Sprintf(format, args...), "last seen: %s\nlogs:\n%s", saw, r.logged())
}

// logged returns the last lines of the reconciler's log.
func (r *rig) logged() string {
	var lines []string
	if r.logs != nil {
		for _, e := range r.logs.All() {
			lines = append(lines, fmt.Sprintf("%s %s %v", e.Level, e.Message, e.ContextMap()))
		}
	}
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// ours returns the objects of ours in a namespace: "resource host/path -> backend", sorted by resource.
func (r *rig) ours(namespace string) []string {
	lines := []string{}
	for _, resource := range informers.Written {
		list, err := r.client.Resource(resource).Namespace(namespace).List(context.Background(), metav1.ListOptions{LabelSelector: render.LabelManagedBy + "=" + render.Manager})
		if apierrors.IsNotFound(err) {
			continue
		}
		require.NoError(r.t, err)
		for i := range list.Items {
			lines = append(lines, describe(resource.Resource, &list.Items[i]))
		}
	}
	return lines
}

// describe says in a line what an object does.
func describe(resource string, u *unstructured.Unstructured) string {
	at := func(fields ...any) string {
		var v any = u.Object
		for _, f := range fields {
			switch f := f.(type) {
			case string:
				m, _ := v.(map[string]any)
				v = m[f]
			case int:
				l, _ := v.([]any)
				if len(l) <= f {
					return ""
				}
				v = l[f]
			}
		}
		return fmt.Sprint(v)
	}
	switch resource {
	case "httproutes":
		rule := []any{"spec", "rules", 0}
		return fmt.Sprintf("httproute %s%s -> %s by %s", at("spec", "hostnames", 0), at(append(rule, "matches", 0, "path", "value")...),
			at(append(rule, "backendRefs", 0, "name")...), at("spec", "parentRefs", 0, "name"))
	case "ingresses":
		path := []any{"spec", "rules", 0, "http", "paths", 0}
		return fmt.Sprintf("ingress %s%s -> %s", at("spec", "rules", 0, "host"), at(append(path, "path")...), at(append(path, "backend", "service", "name")...))
	case "virtualservices":
		return fmt.Sprintf("virtualservice %s%s -> %s", at("spec", "hosts", 0), at("spec", "http", 0, "match", 0, "uri", "prefix"),
			strings.SplitN(at("spec", "http", 0, "route", 0, "destination", "host"), ".", 2)[0])
	}
	return resource + " " + u.GetName()
}

// has waits until the objects of ours in the namespace are these, in any order.
func (r *rig) has(want ...string) {
	r.t.Helper()
	r.eventually(func() (string, bool) {
		got := r.ours(ns)
		return strings.Join(got, "\n"), assert.ElementsMatch(quiet{}, want, got)
	}, "objects of ours: want\n%s", strings.Join(want, "\n"))
}

// quiet takes what an assertion says.
type quiet struct{}

func (quiet) Errorf(string, ...any) {}

var writes = regexp.MustCompile(`(?m)^apiserver_request_total\{([^}]*)\} (\S+)$`)

// writes returns how many writes the API server has seen, but for those of Leases, Events and itself.
func (r *rig) writes() map[string]float64 {
	r.t.Helper()
	client, err := httpClient(r)
	require.NoError(r.t, err)
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.cluster.RESTConfig().Host+"/metrics", nil)
	require.NoError(r.t, err)
	response, err := client.Do(request)
	require.NoError(r.t, err)
	defer func() { assert.NoError(r.t, response.Body.Close()) }()
	body, err := io.ReadAll(response.Body)
	require.NoError(r.t, err)
	counts := map[string]float64{}
	for _, match := range writes.FindAllStringSubmatch(string(body), -1) {
		labels := match[1]
		if !regexp.MustCompile(`verb="(POST|PUT|PATCH|APPLY|DELETE)"`).MatchString(labels) ||
			!regexp.MustCompile(`resource="(inferenceservices|httproutes|ingresses|virtualservices|middlewares|inferencepools|services|configmaps)"`).MatchString(labels) {
			continue
		}
		n, err := strconv.ParseFloat(match[2], 64)
		require.NoError(r.t, err)
		counts[labels] = n
	}
	return counts
}

// settles waits until nobody has written for a while, and asserts that it stays so: whoever is at odds with another writes
// again within milliseconds.
func (r *rig) settles() {
	r.t.Helper()
	const quietFor = 1500 * time.Millisecond
	before := r.writes()
	r.eventually(func() (string, bool) {
		time.Sleep(quietFor)
		now := r.writes()
		same := assert.Equal(quiet{}, before, now)
		before = now
		return fmt.Sprint(now), same
	}, "writes never end")
}

// uids returns the uids of the objects of ours, by what they do.
func (r *rig) uids() map[string]types.UID {
	r.t.Helper()
	all := map[string]types.UID{}
	for _, resource := range informers.Written {
		list, err := r.client.Resource(resource).Namespace(ns).List(r.t.Context(), metav1.ListOptions{LabelSelector: render.LabelManagedBy + "=" + render.Manager})
		require.NoError(r.t, err)
		for i := range list.Items {
			all[describe(resource.Resource, &list.Items[i])] = list.Items[i].GetUID()
		}
	}
	return all
}

// marked returns the objects of ours that others have taken the place of.
func (r *rig) marked() []string {
	r.t.Helper()
	all := []string{}
	for _, resource := range informers.Written {
		list, err := r.client.Resource(resource).Namespace(ns).List(r.t.Context(), metav1.ListOptions{LabelSelector: render.LabelManagedBy + "=" + render.Manager})
		require.NoError(r.t, err)
		for i := range list.Items {
			if list.Items[i].GetAnnotations()[observe.AnnotationSuperseded] != "" {
				all = append(all, describe(resource.Resource, &list.Items[i]))
			}
		}
	}
	return all
}
