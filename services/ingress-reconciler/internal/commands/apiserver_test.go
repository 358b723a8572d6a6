package commands

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.dev/pkg/dryrun"
)

// apiServer emulates an API server for a user with the permissions of the chart: the user can list and delete objects, and list
// ConfigMaps by name. The server serves only the kinds of its objects.
type apiServer struct {
	t *testing.T

	mu        sync.Mutex
	objects   []*unstructured.Unstructured
	forbidden []string // resources
	requests  []string
}

// startAPIServer starts an API server with the objects in manifests, and returns the flag to connect to it.
func startAPIServer(t *testing.T, forbidden []string, manifests ...string) (*apiServer, string) {
	t.Helper()
	w, err := dryrun.ReadFiles([]string{"-"}, strings.NewReader(strings.Join(manifests, "\n---\n")))
	require.NoError(t, err)
	a := &apiServer{t: t, objects: w.Objects, forbidden: forbidden}
	host := fmt.Sprintf("cluster%d.test", started.Add(1))
	servers.Store(host, a)
	t.Cleanup(func() { servers.Delete(host) })
	return a, "--kubeconfig=" +
		file(t,
			fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: "+
				"[{name: c, cluster: {server: %q}}]}", "http://"+host))
}

// servers are the API servers that run, by their hosts.
var (
	servers sync.Map
	started atomic.Int32
)

// apiServers sends requests to servers, in memory.
type apiServers struct{}

func (apiServers) RoundTrip(r *http.Request) (*http.Response, error) {
	a, ok := servers.Load(r.URL.Host)
	if !ok {
		return nil, fmt.Errorf("no API server at %s", r.URL.Host)
	}
	w := httptest.NewRecorder()
	a.(*apiServer).ServeHTTP(w, r)
	return w.Result(), nil
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	group, resource, namespace, name := splitPath(r.URL.Path)
	a.requests = append(a.requests, r.Method+" "+strings.Trim(resource+" "+name, " "))
	selected, one := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	if slices.Contains(a.forbidden, resource) || r.Method == http.MethodGet && name != "" || resource == "configmaps" && !one {
		a.write(w, http.StatusForbidden,
			metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonForbidden,
				Code: http.StatusForbidden,
			})
		return
	}
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		a.t.Error(err)
	}
	var items []any
	known := false
	for i, u := range a.objects {
		if u.GroupVersionKind().Group != group || plural(u.GetKind()) != resource {
			continue
		}
		known = true
		if one && (u.GetName() != selected || u.GetNamespace() != namespace) {
			continue
		}
		if name != "" && (u.GetName() != name || u.GetNamespace() != namespace) || !selector.Matches(labels.Set(u.GetLabels())) {
			continue
		}
		items = append(items, u.Object)
		if r.Method == http.MethodDelete {
			a.objects = slices.Delete(a.objects, i, i+1)
			break
		}
	}
	switch {
	case !known, name != "" && len(items) == 0:
		a.write(w, http.StatusNotFound,
			metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonNotFound,
				Code: http.StatusNotFound,
			})
	case name != "":
		a.write(w, http.StatusOK, items[0])
	default:
		a.write(w, http.StatusOK,
			map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": append([]any{}, items...)})
	}
}

func (a *apiServer) write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		a.t.Error(err)
	}
}

// count returns how many requests begin with a text.
func (a *apiServer) count(request string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, r := range a.requests {
		if strings.HasPrefix(r, request) {
			n++
		}
	}
	return n
}

// splitPath splits /apis/GROUP/VERSION[/namespaces/NAMESPACE]/RESOURCE[/NAME], and /api/v1/....
func splitPath(path string) (group, resource, namespace, name string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts = parts[1:]; strings.HasPrefix(path, "/apis/") {
		group, parts = parts[0], parts[1:]
	}
	parts = parts[1:]
	if len(parts) > 2 && parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	if resource = parts[0]; len(parts) > 1 {
		name = parts[1]
	}
	return group, resource, namespace, name
}

func plural(kind string) string {
	switch kind = strings.ToLower(kind); {
	case strings.HasSuffix(kind, "s"):
		return kind + "es"
	case strings.HasSuffix(kind, "cy"):
		return strings.TrimSuffix(kind, "y") + "ies"
	}
	return kind + "s"
}
