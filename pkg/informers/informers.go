// Package informers watches the kinds that a controller reads, and keeps only the needed parts of objects.
//
// A service declares a Kind for each: the objects to list, their indexes, and the parts to keep. Group.Add makes an informer
// of a Kind, for a running service; Snapshot makes a Reader of the same Kind from objects that were read once, for a dry
// run. A Declaration does either for all kinds. Code that reads objects uses a Reader in both cases:
//
//	the kind                                    Reader.Listed    objects
//	is listed                                   true             all
//	has no CRD, or no permission to list it     false            none
//	is off                                      false            none
//
// The CRD may be installed, and the permission granted, while the service runs: kube.OptionalInformer detects both.
package informers

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kube"
)

// Kind declares how the objects of a kind are read.
type Kind struct {
	Resource  schema.GroupVersionResource
	Name      string // of the kind, for example HTTPRoute
	Selector  string // of labels; empty for all objects
	Fields    string // selector of fields, such as "type=kubernetes.io/tls"; empty for all objects
	Namespace string // empty for the objects of all namespaces
	Indexers  cache.Indexers
	Transform cache.TransformFunc
	// Preferred are other versions of the kind: where one of them is served, this one counts as not served.
	Preferred []string
	// Off disables the kind: it is not listed, and counts as not served.
	Off bool
	// Required makes a service wait for the permission to list the kind: without its objects the service would assume that
	// none exist.
	Required bool
}

// String names the kind in messages by its resource and its selector.
func (k *Kind) String() string {
	return strings.Join(strings.Fields(k.Resource.GroupResource().String()+" "+k.Selector+" "+k.Fields), " ")
}

// In returns the client of the objects of the kind.
func (k *Kind) In(client dynamic.Interface) dynamic.ResourceInterface {
	if k.Namespace == "" {
		return client.Resource(k.Resource)
	}
	return client.Resource(k.Resource).Namespace(k.Namespace)
}

// Reader provides the objects of a kind, as its Transform returned them. They must not be changed.
type Reader interface {
	Get(name cache.ObjectName) (any, bool)
	List() []any
	ByIndex(index, value string) []any
	// Listed reports whether the kind is served and all its objects are known.
	Listed() bool
}

// Informer is a Reader that tells handlers about changes.
type Informer interface {
	Reader
	AddEventHandler(h cache.ResourceEventHandler)
}

// Params are the parts of a Group.
type Params struct {
	Log       *zap.Logger
	Client    dynamic.Interface
	Discovery kube.ResourceDiscovery
	Interval  time.Duration // interval of checks which kinds are served
}

// Group is a set of informers that run together.
type Group struct {
	p       Params
	running []member
}

type member struct {
	informer *kube.OptionalInformer
	name     string
}

// NewGroup returns an empty Group.
func NewGroup(p Params) *Group { return &Group{p: p} }

// Add returns an informer of a kind that runs with the Group. Call it before Run. The informer of a kind that is off accepts
// handlers and never has objects.
func (g *Group) Add(k Kind) *kube.OptionalInformer {
	informer := kube.NewOptionalInformer(kube.OptionalInformerParams{
		Log: g.p.Log, Discovery: g.p.Discovery, Resource: k.Resource, PollInterval: g.p.Interval, Required: k.Required,
		Preferred: k.Preferred,
		New: func() cache.SharedIndexInformer {
			return kube.NewInformer(g.p.Client, k.In(g.p.Client), &unstructured.Unstructured{}, kube.InformerOptions{
				Description: k.Resource.String(), LabelSelector: k.Selector, FieldSelector: k.Fields, Indexers: maps.Clone(k.Indexers),
				Transform: k.Transform,
			})
		},
	})
	if !k.Off {
		g.running = append(g.running, member{informer: informer, name: k.String()})
	}
	return informer
}

// Run watches until ctx ends.
func (g *Group) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, m := range g.running {
		all.Go(func() { m.informer.Run(ctx) })
	}
	all.Wait()
}

// Unsynced returns the names of the kinds that are not listed yet.
func (g *Group) Unsynced() []string {
	var names []string
	for _, m := range g.running {
		if !m.informer.HasSynced() {
			names = append(names, m.name)
		}
	}
	return names
}
