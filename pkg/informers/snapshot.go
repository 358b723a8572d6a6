package informers

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// Snapshot is a set of objects that was read once.
type Snapshot struct {
	Objects []*unstructured.Unstructured
	Served  func(schema.GroupVersionResource) bool // nil: all kinds are
}

// Reader returns the objects that an informer of the kind would have. The last of several objects with one name counts.
func (s *Snapshot) Reader(k Kind) (Reader, error) {
	made := &snapshotReader{Indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, k.Indexers)}
	if k.Off || s.Served != nil && !s.Served(k.Resource) {
		return made, nil
	}
	made.listed = true
	selector, err := labels.Parse(k.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector of %s: %w", k.Resource.Resource, err)
	}
	for _, u := range s.Objects {
		if k.Namespace != "" && u.GetNamespace() != k.Namespace {
			continue
		}
		if u.GroupVersionKind().Group != k.Resource.Group || u.GetKind() != k.Name || !selector.Matches(labels.Set(u.GetLabels())) {
			continue
		}
		obj, err := k.Transform(u.DeepCopy())
		if err == nil {
			err = made.Add(obj)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
		}
	}
	return made, nil
}

// snapshotReader implements Reader.
type snapshotReader struct {
	cache.Indexer

	listed bool
}

func (s *snapshotReader) Get(name cache.ObjectName) (any, bool) {
	obj, found, _ := s.GetByKey(name.String()) // look-ups of an indexer cannot fail
	return obj, found
}

func (s *snapshotReader) ByIndex(index, value string) []any {
	objects, err := s.Indexer.ByIndex(index, value)
	if err != nil {
		panic(err) // the Kind does not have this index: a programming error
	}
	return objects
}

func (s *snapshotReader) Listed() bool { return s.listed }
