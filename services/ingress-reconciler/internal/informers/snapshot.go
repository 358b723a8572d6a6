package informers

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// snapshot is what was read of a kind once.
type snapshot struct {
	cache.Indexer

	served bool
}

// Get implements Reader.
func (s *snapshot) Get(name cache.ObjectName) (any, bool) {
	obj, found, _ := s.GetByKey(name.String()) // an indexer's lookup cannot fail
	return obj, found
}

// ByIndex implements Reader.
func (s *snapshot) ByIndex(index, value string) []any {
	objects, err := s.Indexer.ByIndex(index, value)
	if err != nil {
		panic(err) // not reached: the index is of this package
	}
	return objects
}

// Listed implements Reader.
func (s *snapshot) Listed() bool { return s.served }

// Snapshot returns caches of these objects, which are read as informers would. A kind that is not served is one of a cluster
// without its CRD; objects of kinds that nobody reads are left out.
func Snapshot(objects []*unstructured.Unstructured, served func(schema.GroupVersionResource) bool) (Caches, error) {
	var failed error
	caches := each(Kinds(), func(k Kind) Reader {
		s := &snapshot{Indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, k.indexers), served: served(k.Resource)}
		selector, err := labels.Parse(k.Selector)
		if err != nil {
			panic(err) // not reached: it is of this package
		}
		for _, u := range objects {
			if u.GroupVersionKind().Group != k.Resource.Group || u.GetKind() != k.Name || !selector.Matches(labels.Set(u.GetLabels())) {
				continue
			}
			obj, err := k.transform(u.DeepCopy())
			if err == nil {
				err = s.Add(obj)
			}
			if err != nil {
				failed = fmt.Errorf("read %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
			}
		}
		return s
	})
	return caches, failed
}
