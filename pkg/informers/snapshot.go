package informers

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// Snapshot is a set of objects that was read once.
type Snapshot struct {
	Objects []*unstructured.Unstructured
	Served  func(schema.GroupVersionResource) bool // nil: all kinds are
}

// Reader returns the objects that an informer of the kind would have. The last of several objects with one name counts. Objects do not
// change: handlers are never called.
func (s *Snapshot) Reader(k Kind) (Informer, error) {
	made := &snapshotReader{Indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, k.Indexers)}
	if k.Off || s.Served != nil && !s.Served(k.Resource) {
		return made, nil
	}
	made.listed = true
	selector, err := labels.Parse(k.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector of %s: %w", k.Resource.Resource, err)
	}
	having, err := fields.ParseSelector(k.Fields)
	if err != nil {
		return nil, fmt.Errorf("field selector of %s: %w", k.Resource.Resource, err)
	}
	for _, u := range s.Objects {
		if !k.selectsObject(u, selector, having) {
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

// selectsObject reports whether an object is one of the kind.
func (k *Kind) selectsObject(u *unstructured.Unstructured, labelled labels.Selector, having fields.Selector) bool {
	if u.GroupVersionKind().Group != k.Resource.Group || u.GetKind() != k.Name || k.Namespace != "" && u.GetNamespace() != k.Namespace {
		return false
	}
	return labelled.Matches(labels.Set(u.GetLabels())) && having.Matches(fieldsOf{u})
}

// fieldsOf provides fields of an object by their paths, as a field selector names them.
type fieldsOf struct{ *unstructured.Unstructured }

func (f fieldsOf) Has(path string) bool { return f.Get(path) != "" }

func (f fieldsOf) Get(path string) string {
	value, _, _ := unstructured.NestedString(f.Object, strings.Split(path, ".")...) // another type has no value
	return value
}

// snapshotReader implements Informer.
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

func (*snapshotReader) AddEventHandler(cache.ResourceEventHandler) {}

func (s *snapshotReader) Listed() bool { return s.listed }
