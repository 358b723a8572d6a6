package dryrun

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/golden"
	"fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kubetest"
)

// names returns "Kind namespace/name" of objects.
func names(objects []*unstructured.Unstructured) []string {
	all := []string{}
	for _, u := range objects {
		all = append(all, fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName()))
	}
	return all
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	return &unstructured.Unstructured{Object: golden.Decode[map[string]any](t, []byte(text))}
}

const configMap = "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: a, name: c}, data: {config: text, other: x}}"

func TestReadFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("a.yaml", configMap+"\n---\n# empty\n---\n{apiVersion: v1, kind: Service, metadata: {namespace: a, name: s}}\n")
	write("deep/er/b.json", `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "a", "name": "p"}}]}`)
	write("values.yml", "replicas: 2\n---\n[a, list]\n")
	write("README.md", "not: read\n")
	write(".git/c.yaml", "{apiVersion: v1, kind: Secret, metadata: {namespace: a, name: hidden}}")
	w, err := ReadFiles([]string{dir, Stdin}, strings.NewReader("{apiVersion: v1, kind: Node, metadata: {name: node}}"))
	require.NoError(t, err)
	assert.Equal(t, []string{"ConfigMap a/c", "Service a/s", "Pod a/p", "Node /node"}, names(w.Objects))
	values := filepath.Join(dir, "values.yml")
	message := values + ": skipped a document without apiVersion and kind: it is not a Kubernetes manifest"
	assert.Equal(t, []string{message, message}, w.Skipped)
	var out bytes.Buffer
	w.Print(&out)
	assert.Equal(t, message+"\n"+message+"\n", out.String())

	text, found := w.ConfigMap(cache.ObjectName{Namespace: "a", Name: "c"}, "config")
	assert.True(t, found)
	assert.Equal(t, "text", text)
	for _, missing := range []struct{ namespace, name, key string }{{"a", "c", "none"}, {"b", "c", "config"}, {"a", "d", "config"}} {
		_, found = w.ConfigMap(cache.ObjectName{Namespace: missing.namespace, Name: missing.name}, missing.key)
		assert.False(t, found, missing)
	}

	named, err := ReadFiles([]string{filepath.Join(dir, "README.md"), filepath.Join(dir, ".git")}, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"Secret a/hidden"}, names(named.Objects), "a path that is named is read, whatever its name")
}

func TestReadFilesFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := ReadFiles([]string{filepath.Join(dir, "none")}, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	for text, want := range map[string]string{
		"a: [": "read manifests: stdin: ", "{apiVersion: v1, kind: List, items: [7]}": "read manifests: stdin: ",
	} {
		_, err = ReadFiles([]string{Stdin}, strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
}

var (
	pods     = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	services = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	nodes    = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
)

// newCluster returns a cluster whose ConfigMaps can be listed by their name alone, as by a role with resourceNames.
func newCluster(t *testing.T) *fake.FakeDynamicClient {
	t.Helper()
	var all []runtime.Object
	for _, text := range []string{
		configMap, "{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: p, labels: {app: x}}}", "{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: q}}",
		"{apiVersion: v1, kind: Service, metadata: {namespace: a, name: s}}",
	} {
		all = append(all, object(t, text))
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		configMaps: "ConfigMapList", pods: "PodList", services: "ServiceList", nodes: "NodeList",
	}, all...)
	client.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list, ok := action.(clienttesting.ListAction)
		if ok && list.GetListRestrictions().Fields.String() == "metadata.name=c" && list.GetNamespace() == "a" {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(configMaps.GroupResource(), "", errors.New("no role"))
	})
	return client
}

func kind(resource schema.GroupVersionResource, name string) informers.Kind {
	return informers.Kind{Resource: resource, Name: name, Transform: informers.Metadata()}
}

func TestReadCluster(t *testing.T) {
	t.Parallel()
	client := newCluster(t)
	kubetest.FailAlways(client, "list", "nodes", apierrors.NewNotFound(nodes.GroupResource(), ""))
	some, off := kind(pods, "Pod"), kind(services, "Service")
	some.Selector, off.Off = "app=x", true
	w, err := ReadCluster(t.Context(), client, []informers.Kind{some, some, off, kind(nodes, "Node")}, cache.ObjectName{Namespace: "a", Name: "c"}, cache.ObjectName{})
	require.NoError(t, err)
	assert.Equal(t, []string{"Pod a/p", "ConfigMap a/c"}, names(w.Objects))
	assert.Empty(t, w.Skipped)
	assert.True(t, w.Served(pods))
	assert.False(t, w.Served(nodes), "the cluster does not have the kind")
	assert.False(t, w.Served(services))
	for _, action := range client.Actions() {
		assert.Equal(t, "list", action.GetVerb(), "informers need no more")
	}
	assert.Len(t, client.Actions(), 3, "kinds that are alike are listed once")
}

func TestReadClusterWithoutPermission(t *testing.T) {
	t.Parallel()
	client := newCluster(t)
	forbidden := apierrors.NewForbidden(services.GroupResource(), "", errors.New("no role"))
	kubetest.FailAlways(client, "list", "services", forbidden)
	k := kind(services, "Service")
	w, err := ReadCluster(t.Context(), client, []informers.Kind{k, kind(pods, "Pod")})
	require.NoError(t, err)
	assert.Equal(t, []string{"Pod a/p", "Pod a/q"}, names(w.Objects))
	assert.Equal(t, []string{"services: skipped, because this user may not list them; the plan treats the kind as not available"}, w.Skipped)
	assert.False(t, w.Served(services))

	k.Required = true
	_, err = ReadCluster(t.Context(), client, []informers.Kind{k})
	require.ErrorIs(t, err, forbidden)
	_, err = ReadCluster(t.Context(), client, nil, cache.ObjectName{Namespace: "a", Name: "d"})
	require.ErrorContains(t, err, "list ConfigMap a/d: ")
	kubetest.FailAlways(client, "list", "pods", apierrors.NewServiceUnavailable("later"))
	_, err = ReadCluster(t.Context(), client, []informers.Kind{kind(pods, "Pod")})
	require.EqualError(t, err, "list pods: later")
}

func TestList(t *testing.T) {
	t.Parallel()
	client := newCluster(t)
	kubetest.FailAlways(client, "list", "nodes", apierrors.NewNotFound(nodes.GroupResource(), ""))
	kubetest.FailAlways(client, "list", "services", apierrors.NewForbidden(services.GroupResource(), "", errors.New("no role")))
	w, err := List(t.Context(), client, []schema.GroupVersionResource{pods, nodes, services}, "app=x")
	require.NoError(t, err)
	assert.Equal(t, []string{"Pod a/p"}, names(w.Objects))
	assert.Equal(t, []string{"services: skipped, because this user may not list them"}, w.Skipped)
	kubetest.FailAlways(client, "list", "pods", apierrors.NewServiceUnavailable("later"))
	_, err = List(t.Context(), client, []schema.GroupVersionResource{pods}, fields.Everything().String())
	require.EqualError(t, err, "list pods: later")
}

func TestDiff(t *testing.T) {
	t.Parallel()
	const live = "{metadata: {name: a, uid: added}, spec: {replicas: 1, ports: [{port: 80, nodePort: 30000}, {port: 81}], selector: text}}"
	tests := []struct {
		name, wanted, want string
	}{
		{name: "fields that others added", wanted: "{metadata: {name: a}, spec: {replicas: 1, ports: [{port: 80}, {port: 81}]}}"},
		{name: "a value", wanted: "{metadata: {name: a}, spec: {replicas: 2}}", want: "-  replicas: 1\n+  replicas: 2\n"},
		{name: "a value in a list", wanted: "{spec: {ports: [{port: 82}, {port: 81}]}}", want: "-  - port: 80\n+  - port: 82\n"},
		{name: "a shorter list", wanted: "{spec: {ports: [{port: 80}]}}", want: "-  - port: 81\n"},
		{name: "a longer list", wanted: "{spec: {ports: [{port: 80}, {port: 81}, {port: 82}]}}", want: "+  - port: 82\n"},
		{name: "another type", wanted: "{spec: {selector: {app: x}}}", want: "-  selector: text\n+  selector:\n+    app: x\n"},
		{name: "an object instead of a list", wanted: "{metadata: {name: {a: b}}}", want: "-  name: a\n+  name:\n+    a: b\n"},
		{name: "a list instead of a text", wanted: "{spec: {selector: [x]}}", want: "-  selector: text\n+  selector:\n+  - x\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := Diff(object(t, live), object(t, tt.wanted))
			if tt.want == "" {
				assert.Empty(t, got)
				return
			}
			assert.Contains(t, got, tt.want)
			assert.Contains(t, got, "--- live\n+++ wanted\n")
			assert.NotContains(t, got, "nodePort")
		})
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	a, b := object(t, "{kind: A, metadata: {name: a}}"), object(t, "{kind: B, spec: {host: '<b>'}}")
	var out bytes.Buffer
	require.NoError(t, WriteYAML(&out, a, b))
	assert.Equal(t, "---\nkind: A\nmetadata:\n  name: a\n---\nkind: B\nspec:\n  host: <b>\n", out.String())
	out.Reset()
	require.NoError(t, WriteList(&out, a, b))
	assert.JSONEq(t, `{"apiVersion": "v1", "kind": "List", "items": [{"kind": "A", "metadata": {"name": "a"}}, {"kind": "B", "spec": {"host": "<b>"}}]}`, out.String())
	assert.Contains(t, out.String(), "<b>", "for people to read")
	out.Reset()
	require.NoError(t, WriteList(&out))
	assert.JSONEq(t, `{"apiVersion": "v1", "kind": "List", "items": []}`, out.String())
	require.Error(t, WriteYAML(failing{}, a))
	require.Error(t, WriteJSON(failing{}, 1))
}

// failing is a closed pipe.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("closed") }
