// Package scale reads the scale subresource of targets of kinds that the program does not watch: any kind that has one. The CRD of a kind says
// where its replicas are, and the API server reads them. It needs the permission to get the scale, and none on the kind itself.
package scale

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// maxReads bounds the requests of a pass, and maxOfNamespace the part of them that a namespace can take. The largest known fleets have
	// some hundred variants, nearly all of them Deployments.
	maxReads       = 512
	maxOfNamespace = 128
	// readTime is the time of a pass for all of them.
	readTime = 10 * time.Second
	// kindTime is how long an answer about a kind counts.
	kindTime = 5 * time.Minute
)

// Errors of a Read.
var (
	// ErrNotFound means that the object does not exist.
	ErrNotFound = errors.New("it does not exist")
	// ErrNoScale means that objects of the kind have no replicas to read: the message says why.
	ErrNoScale = errors.New("the cluster serves no such kind with a scale subresource")
)

// Scale is what the scale subresource of an object says.
type Scale struct {
	Replicas int64             // that the spec asks for
	Current  int64             // that there are
	Selector labels.Selector   // of the pods that serve, one for each replica; nil: not known
	Labels   map[string]string // that Selector requires
}

// Read returns the scale of a target in a namespace.
type Read func(namespace string, t snapshot.Target) (*Scale, error)

// Reader reads scales. One goroutine may use it.
type Reader struct {
	client    dynamic.Interface
	discovery kube.ResourceDiscovery
	now       func() time.Time

	kinds map[schema.GroupVersionKind]kind
	last  map[object]*Scale
}

// kind is what discovery says of a kind.
type kind struct {
	resource string // empty: it has no scale
	read     time.Time
}

type object struct {
	namespace string
	target    snapshot.Target
}

// New returns a Reader.
func New(client dynamic.Interface, discovery kube.ResourceDiscovery, now func() time.Time) *Reader {
	return &Reader{client: client, discovery: discovery, now: now, kinds: map[schema.GroupVersionKind]kind{}, last: map[object]*Scale{}}
}

// Pass returns the Read of one pass. What cannot be read for a moment, or is too much for a pass, is as in the pass before. end forgets what
// the pass did not ask for.
func (r *Reader) Pass(ctx context.Context) (read Read, end func()) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	seen, counts, total := map[object]*Scale{}, map[string]int{}, 0
	return func(namespace string, t snapshot.Target) (*Scale, error) {
			key := object{namespace, t}
			err := fmt.Errorf("a pass reads at most %d targets of such kinds, and %d of a namespace", maxReads, maxOfNamespace)
			var made *Scale
			if total < maxReads && counts[namespace] < maxOfNamespace {
				total, counts[namespace] = total+1, counts[namespace]+1
				made, err = r.read(ctx, namespace, t)
			}
			if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrNoScale) && r.last[key] != nil {
				made, err = r.last[key], nil
			}
			if err == nil {
				seen[key] = made
			}
			return made, err
		}, func() {
			cancel()
			r.last = seen
		}
}

func (r *Reader) read(ctx context.Context, namespace string, t snapshot.Target) (*Scale, error) {
	gvk := schema.FromAPIVersionAndKind(t.APIVersion, t.Kind)
	k, found := r.kinds[gvk]
	if !found || r.now().Sub(k.read) >= kindTime {
		resource, err := r.resourceOf(ctx, gvk)
		if err != nil {
			return nil, err
		}
		k = kind{resource: resource, read: r.now()}
		r.kinds[gvk] = k
	}
	if k.resource == "" {
		return nil, ErrNoScale
	}
	u, err := r.client.Resource(gvk.GroupVersion().WithResource(k.resource)).Namespace(namespace).Get(ctx, t.Name, metav1.GetOptions{}, "scale")
	switch {
	case apierrors.IsNotFound(err):
		return nil, ErrNotFound
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("%w that this program may read: grant get on %s/scale of group %s, in scaleTargets of the chart", ErrNoScale, k.resource, gvk.Group)
	case err != nil:
		return nil, fmt.Errorf("read its scale: %w", err)
	}
	return scaleOf(u), nil
}

// resourceOf returns the resource of a kind with a scale subresource, empty if there is none.
func (r *Reader) resourceOf(ctx context.Context, gvk schema.GroupVersionKind) (string, error) {
	if gvk.Version == "" || gvk.Kind == "" {
		return "", nil
	}
	list, err := r.discovery.ServerResourcesForGroupVersionWithContext(ctx, gvk.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the kinds of %s: %w", gvk.GroupVersion(), err)
	}
	scaled := map[string]bool{}
	for i := range list.APIResources {
		if name, is := strings.CutSuffix(list.APIResources[i].Name, "/scale"); is {
			scaled[name] = true
		}
	}
	for i := range list.APIResources {
		if a := &list.APIResources[i]; a.Kind == gvk.Kind && a.Namespaced && scaled[a.Name] {
			return a.Name, nil
		}
	}
	return "", nil
}

func scaleOf(u *unstructured.Unstructured) *Scale {
	made := &Scale{}
	made.Replicas, _, _ = unstructured.NestedInt64(u.Object, "spec", "replicas")
	made.Current, _, _ = unstructured.NestedInt64(u.Object, "status", "replicas")
	text, _, _ := unstructured.NestedString(u.Object, "status", "selector")
	selector, err := labels.Parse(text)
	if err != nil || selector.Empty() {
		return made
	}
	made.Selector, made.Labels = selector, map[string]string{}
	requirements, _ := selector.Requirements()
	for i := range requirements {
		if value, single := selector.RequiresExactMatch(requirements[i].Key()); single {
			made.Labels[requirements[i].Key()] = value
		}
	}
	return made
}
