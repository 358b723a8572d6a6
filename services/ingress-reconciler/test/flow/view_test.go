//go:build system

package flow

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/audit"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/ingress-reconciler/internal/condition"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// condition returns the reconciler's condition of a service: "status reason: message".
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

// objectNames matches the names of objects in a condition, which contain hashes.
var objectNames = regexp.MustCompile(` \([A-Za-z]+ [^()]*-fairlead-[0-9a-f]{8}\)`)

// awaitCondition waits until the condition of a service is want.
func (r *rig) awaitCondition(name, want string) {
	r.t.Helper()
	r.eventually(func() (string, bool) {
		got := r.condition(ns, name)
		return got, got == want
	}, "condition of %s: want %s", name, want)
}

// eventually waits until f returns true. The failure message contains the last observation.
func (r *rig) eventually(f func() (saw string, ok bool), format string, args ...any) {
	r.t.Helper()
	var saw string
	var ok bool
	for deadline := time.Now().Add(kubetest.Patience); time.Now().Before(deadline); time.Sleep(tick) {
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

// ours returns the reconciler's objects in a namespace: "resource host/path -> backend", sorted by resource.
func (r *rig) ours(namespace string) []string {
	lines := []string{}
	for _, resource := range informers.Written {
		list, err := r.client.Resource(resource).Namespace(namespace).List(context.Background(),
			metav1.ListOptions{LabelSelector: render.LabelManagedBy + "=" + render.Manager})
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

// field returns a field of an object as text: "<nil>" if the field is missing, "" if a list is too short.
func field(u *unstructured.Unstructured, path ...any) string {
	var v any = u.Object
	for _, f := range path {
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

// describe returns a line that describes an object.
func describe(resource string, u *unstructured.Unstructured) string {
	at := func(path ...any) string { return field(u, path...) }
	switch resource {
	case "httproutes":
		rule := []any{"spec", "rules", 0}
		return fmt.Sprintf("httproute %s%s -> %s by %s", at("spec", "hostnames", 0), at(append(rule, "matches", 0, "path", "value")...),
			at(append(rule, "backendRefs", 0, "name")...), at("spec", "parentRefs", 0, "name"))
	case "ingresses":
		path := []any{"spec", "rules", 0, "http", "paths", 0}
		return fmt.Sprintf("ingress %s%s -> %s", at("spec", "rules", 0, "host"), at(append(path, "path")...),
			at(append(path, "backend", "service", "name")...))
	case "virtualservices":
		return fmt.Sprintf("virtualservice %s%s -> %s", at("spec", "hosts", 0), at("spec", "http", 0, "match", 0, "uri", "prefix"),
			strings.SplitN(at("spec", "http", 0, "route", 0, "destination", "host"), ".", 2)[0])
	}
	return resource + " " + u.GetName()
}

// has waits until the reconciler's objects in the namespace are want, in any order.
func (r *rig) has(want ...string) {
	r.t.Helper()
	r.eventually(func() (string, bool) {
		got := r.ours(ns)
		return strings.Join(got, "\n"), assert.ElementsMatch(quiet{}, want, got)
	}, "objects of the reconciler: want\n%s", strings.Join(want, "\n"))
}

// quiet drops the message of an assertion.
type quiet struct{}

func (quiet) Errorf(string, ...any) {}

// settles waits until no client has written for longer than settleTime. Controllers that disagree write again within milliseconds.
func (r *rig) settles() {
	r.t.Helper()
	const quietFor = 2500 * time.Millisecond // longer than settleTime
	var last audit.Call
	quiet := time.Duration(0)
	r.eventually(func() (string, bool) {
		quiet += tick
		for _, c := range r.calls.Next() {
			if c.Writes() && c.Object.Resource != "leases" && c.Object.Resource != "events" {
				quiet, last = 0, c
			}
		}
		return fmt.Sprintf("%+v", last), quiet > quietFor
	}, "writes never end")
}

// notices waits until the reconciler has seen all previous changes of InferenceServices. It creates a marker, an InferenceService that
// cannot be decoded, and waits until the reconciler logs it: the marker's event and its place in the queue come after the previous changes.
// OME does not write the marker, because the marker already has OME's finalizer.
func (r *rig) notices() {
	r.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "spec": map[string]any{"engine": "undecodable"},
		"metadata": map[string]any{"generateName": "marker-", "namespace": "ome", "finalizers": []any{ome.Finalizer}},
	}}
	u, err := r.client.Resource(isvc.Resource).Namespace("ome").Create(r.t.Context(), u, metav1.CreateOptions{})
	require.NoError(r.t, err)
	r.eventually(func() (string, bool) {
		n := r.logs.FilterField(zap.String(logging.KeyName, u.GetName())).Len()
		return fmt.Sprint(n), n > 0
	}, "the reconciler notices %s", u.GetName())
}

// awaitOME waits until OME has written the status of one of its conditions.
func (r *rig) awaitOME(name, condition, status string) {
	r.t.Helper()
	r.eventually(func() (string, bool) {
		list, _, err := unstructured.NestedSlice(r.get(isvc.Resource, name).Object, "status", "conditions")
		require.NoError(r.t, err)
		return fmt.Sprint(list), slices.ContainsFunc(list, func(c any) bool {
			fields := c.(map[string]any)
			return fields["type"] == condition && fields["status"] == status
		})
	}, "%s of %s is %s", condition, name, status)
}

// only returns the only object of a kind.
func (r *rig) only(resource schema.GroupVersionResource) *unstructured.Unstructured {
	r.t.Helper()
	list, err := r.client.Resource(resource).Namespace(ns).List(r.t.Context(), metav1.ListOptions{})
	require.NoError(r.t, err)
	require.Len(r.t, list.Items, 1)
	return &list.Items[0]
}

// serviceOf waits until OME has created the Service of a component, and returns its name.
func (r *rig) serviceOf(service, component string) (name string) {
	r.t.Helper()
	r.eventually(func() (string, bool) {
		list, err := r.client.Resource(services).Namespace(ns).List(r.t.Context(),
			metav1.ListOptions{LabelSelector: "component=" + component + ",ome.io/inferenceservice=" + service})
		require.NoError(r.t, err)
		if len(list.Items) == 1 {
			name = list.Items[0].GetName()
		}
		return fmt.Sprint(len(list.Items)), name != ""
	}, "OME creates the Service of %s %s", component, service)
	return name
}

// uids returns the UIDs of the reconciler's objects by description.
func (r *rig) uids() map[string]types.UID {
	r.t.Helper()
	all := map[string]types.UID{}
	for _, resource := range informers.Written {
		list, err := r.client.Resource(resource).Namespace(ns).List(r.t.Context(),
			metav1.ListOptions{LabelSelector: render.LabelManagedBy + "=" + render.Manager})
		require.NoError(r.t, err)
		for i := range list.Items {
			all[describe(resource.Resource, &list.Items[i])] = list.Items[i].GetUID()
		}
	}
	return all
}

// marked returns the reconciler's objects that are marked as superseded.
func (r *rig) marked() []string {
	r.t.Helper()
	all := []string{}
	for _, resource := range informers.Written {
		list, err := r.client.Resource(resource).Namespace(ns).List(r.t.Context(),
			metav1.ListOptions{LabelSelector: render.LabelManagedBy + "=" + render.Manager})
		require.NoError(r.t, err)
		for i := range list.Items {
			if list.Items[i].GetAnnotations()[observe.AnnotationSuperseded] != "" {
				all = append(all, describe(resource.Resource, &list.Items[i]))
			}
		}
	}
	return all
}
