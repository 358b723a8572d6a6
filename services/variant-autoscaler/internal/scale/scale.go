// Package scale reads and writes the scale subresource of targets: of any kind that has one. The CRD of a kind says where its replicas are,
// and the API server reads them. The program needs the permission to get or update the scale, and none on the kind itself.
//
//	Kinds     finds the kinds that have a scale, by discovery
//	Reader    reads the targets of kinds that the program does not watch, in each pass
//	Writer    sets the replicas of one target
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
	"k8s.io/client-go/dynamic"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// maxReads bounds the requests of a pass, and maxOfNamespace the part of them that a namespace can take. The largest known fleets have
	// some hundred variants, nearly all of them Deployments.
	maxReads       = 512
	maxOfNamespace = 128
	// readTime is the time of a pass for all of them.
	readTime = 10 * time.Second
)

// scaleSubresource is the name of the subresource.
const scaleSubresource = "scale"

// Errors of a Read or a Write.
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
	client dynamic.Interface
	kinds  *Kinds
	last   map[Object]*Scale
}

// Object identifies a target.
type Object struct {
	Namespace string
	Target    snapshot.Target
}

// NewReader returns a Reader.
func NewReader(client dynamic.Interface, kinds *Kinds) *Reader {
	return &Reader{client: client, kinds: kinds, last: map[Object]*Scale{}}
}

// BeginPass returns the Read of one pass. If a read fails for a moment, or a pass has too many, Read returns the scale of the pass before.
// end forgets scales that the pass did not ask for.
func (r *Reader) BeginPass(ctx context.Context) (read Read, end func()) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	seen, counts, total := map[Object]*Scale{}, map[string]int{}, 0
	return func(namespace string, t snapshot.Target) (*Scale, error) {
			key := Object{namespace, t}
			err := fmt.Errorf("a pass reads at most %d targets of such kinds, and %d of a namespace", maxReads, maxOfNamespace)
			var scale *Scale
			if total < maxReads && counts[namespace] < maxOfNamespace {
				total, counts[namespace] = total+1, counts[namespace]+1
				scale, err = r.readScale(ctx, namespace, t)
			}
			if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrNoScale) && r.last[key] != nil {
				scale, err = r.last[key], nil
			}
			if err == nil {
				seen[key] = scale
			}
			return scale, err
		}, func() {
			cancel()
			r.last = seen
		}
}

func (r *Reader) readScale(ctx context.Context, namespace string, t snapshot.Target) (*Scale, error) {
	resource, err := r.kinds.resourceOf(ctx, t)
	if err != nil {
		return nil, err
	}
	u, err := r.client.Resource(resource).Namespace(namespace).Get(ctx, t.Name, metav1.GetOptions{}, scaleSubresource)
	switch {
	case isUnset(err):
		return &Scale{}, nil
	case apierrors.IsNotFound(err):
		return nil, ErrNotFound
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("%w that this program may read: grant get on %s/scale of group %s, in scaleTargets of the chart", ErrNoScale, resource.Resource, resource.Group)
	case err != nil:
		return nil, fmt.Errorf("read its scale: %w", err)
	}
	return scaleOf(u), nil
}

// isUnset reports whether an object of a CRD has no number of replicas. The API server calls that an internal error, and has no code for
// it: https://github.com/kubernetes/kubernetes/blob/v1.34.0/staging/src/k8s.io/apiextensions-apiserver/pkg/registry/customresource/etcd.go
// A DisaggregatedSetRoleScaler has none until an autoscaler writes it.
func isUnset(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "the spec replicas field ")
}

func scaleOf(u *unstructured.Unstructured) *Scale {
	scale := &Scale{}
	scale.Replicas, _, _ = unstructured.NestedInt64(u.Object, "spec", "replicas")
	scale.Current, _, _ = unstructured.NestedInt64(u.Object, "status", "replicas")
	text, _, _ := unstructured.NestedString(u.Object, "status", "selector")
	selector, err := labels.Parse(text)
	if err != nil || selector.Empty() {
		return scale
	}
	scale.Selector, scale.Labels = selector, map[string]string{}
	requirements, _ := selector.Requirements()
	for i := range requirements {
		if value, single := selector.RequiresExactMatch(requirements[i].Key()); single {
			scale.Labels[requirements[i].Key()] = value
		}
	}
	return scale
}
