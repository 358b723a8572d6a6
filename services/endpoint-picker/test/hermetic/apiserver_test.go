//go:build system

package hermetic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Where the kinds are that the picker reads.
const (
	pathPools      = "/apis/inference.networking.k8s.io/v1/namespaces/ns/inferencepools"
	pathPods       = "/api/v1/namespaces/ns/pods"
	pathObjectives = "/apis/llm-d.ai/v1alpha2/namespaces/ns/inferenceobjectives"
	pathRewrites   = "/apis/llm-d.ai/v1alpha2/namespaces/ns/inferencemodelrewrites"
)

var kinds = map[string]string{pathPools: "InferencePool", pathPods: "Pod", pathObjectives: "InferenceObjective", pathRewrites: "InferenceModelRewrite"}

// object is one of any kind.
type object = map[string]any

// apiServer is as much of Kubernetes' API as the picker uses: lists and watches of a few kinds.
type apiServer struct {
	url string

	mu      sync.Mutex
	changed chan struct{} // closed by the next change
	version int
	objects map[string]map[string]object // by path and name
	log     map[string][]change          // by path
	asked   map[string]bool              // paths
}

type change struct {
	version int
	line    []byte
}

func newAPIServer(t testing.TB) *apiServer {
	t.Helper()
	a := &apiServer{changed: make(chan struct{}), version: 1, objects: map[string]map[string]object{}, log: map[string][]change{}, asked: map[string]bool{}}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	a.url = server.URL
	return a
}

// put makes or replaces an object.
func (a *apiServer) put(t testing.TB, path, name string, o object) {
	t.Helper()
	event := "MODIFIED"
	if a.objects[path][name] == nil {
		event = "ADDED"
	}
	a.apply(t, path, name, event, o)
}

// remove deletes an object that is there.
func (a *apiServer) remove(t testing.TB, path, name string) {
	t.Helper()
	a.apply(t, path, name, "DELETED", a.objects[path][name])
}

func (a *apiServer) apply(t testing.TB, path, name, event string, o object) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	metadata, _ := o["metadata"].(object)
	if metadata == nil {
		metadata = object{}
	}
	metadata["name"], metadata["namespace"], metadata["uid"] = name, "ns", path+name
	metadata["resourceVersion"], metadata["generation"] = strconv.Itoa(a.version), a.version
	o["metadata"], o["kind"], o["apiVersion"] = metadata, kinds[path], groupVersion(path)
	line, err := json.Marshal(object{"type": event, "object": o})
	require.NoError(t, err)
	a.log[path] = append(a.log[path], change{a.version, line})
	if a.objects[path] == nil {
		a.objects[path] = map[string]object{}
	}
	if a.objects[path][name] = o; event == "DELETED" {
		delete(a.objects[path], name)
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

// groupVersion is what a path is of: /apis/group/version/... or /api/version/...
func groupVersion(path string) string {
	group, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/"), "/namespaces/")
	return group
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.asked[r.URL.Path] = true
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, known := kinds[r.URL.Path]
	switch {
	case strings.HasPrefix(r.URL.Path, "/apis/") && strings.Count(r.URL.Path, "/") == 3:
		a.discovery(w, strings.TrimPrefix(r.URL.Path, "/apis/"))
	case !known || r.Method != http.MethodGet:
		w.WriteHeader(http.StatusForbidden)
	case r.URL.Query().Has("sendInitialEvents"): // as servers without WatchList do
		w.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(w).Encode(object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": http.StatusUnprocessableEntity})
	case r.URL.Query().Has("watch"):
		a.watch(w, r)
	default:
		a.list(w, r.URL.Path)
	}
}

// discovery lists the kinds of a group that have been used: the CRDs of others are not installed.
func (a *apiServer) discovery(w http.ResponseWriter, group string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var resources []object
	for path, kind := range kinds {
		if groupVersion(path) == group && a.log[path] != nil {
			resources = append(resources, object{"name": path[strings.LastIndex(path, "/")+1:], "namespaced": true, "kind": kind, "verbs": []string{"list", "watch"}})
		}
	}
	if resources == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": resources})
}

func (a *apiServer) list(w http.ResponseWriter, path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	items := []object{}
	for _, o := range a.objects[path] {
		items = append(items, o)
	}
	_ = json.NewEncoder(w).Encode(object{
		"kind": kinds[path] + "List", "apiVersion": groupVersion(path), "metadata": object{"resourceVersion": strconv.Itoa(a.version)}, "items": items,
	})
}

// watch sends all changes after a version, until the client has gone.
func (a *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.WriteHeader(http.StatusOK)
	for {
		a.mu.Lock()
		log, changed := a.log[r.URL.Path], a.changed
		a.mu.Unlock()
		for _, c := range log {
			if c.version > since {
				since = c.version
				fmt.Fprintf(w, "%s\n", c.line)
			}
		}
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// poolObject is an InferencePool of the pods that newPod makes.
func poolObject(ports ...uint16) object {
	var targets []object
	for _, p := range ports {
		targets = append(targets, object{"number": p})
	}
	return object{"spec": object{"selector": object{"matchLabels": object{"app": "model"}}, "targetPorts": targets}}
}

// podObject is a pod. Its labels are those of the pool's, and these.
func podObject(ip string, ready bool, labels map[string]string) object {
	all, condition := object{"app": "model"}, "False"
	for k, v := range labels {
		all[k] = v
	}
	if ready {
		condition = "True"
	}
	return object{
		"metadata": object{"labels": all},
		"status":   object{"podIP": ip, "conditions": []object{{"type": "Ready", "status": condition}}},
	}
}
