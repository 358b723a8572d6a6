package lbrecord

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/informers"
)

const (
	// Label marks ConfigMaps of Gateways: records, and parameters. Informers read only those.
	Label = "fairlead.dev/gateway"
	// LabelRecord is the value of Label of records.
	LabelRecord = "record"
	// LabelParameters is the value of Label of parameters of Gateways.
	LabelParameters = "parameters"

	// Keys of the ConfigMap.
	keyRecord       = "record"
	keyLoadBalancer = "loadBalancer"

	// nameLength is the length of the hash in names of ConfigMaps.
	nameLength = 16
)

// ErrMissing means that a load balancer has no record.
var ErrMissing = errors.New("the load balancer has no record")

// ConfigMapName returns the name of the ConfigMap of a load balancer.
func ConfigMapName(loadBalancer string) string {
	return "fairlead-load-balancer-" + hashText(loadBalancer)[:nameLength]
}

// FromConfigMap returns the record in a ConfigMap.
func FromConfigMap(c *corev1.ConfigMap) (*Record, error) {
	r, err := Parse(c.Data[keyRecord])
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w", c.Namespace, c.Name, err)
	}
	if c.Name != ConfigMapName(r.LoadBalancer) {
		return nil, fmt.Errorf("ConfigMap %s/%s has the record of another load balancer, %s", c.Namespace, c.Name, r.LoadBalancer)
	}
	return r, nil
}

// FromNamespace returns the record of a ConfigMap, if it is one in the namespace of records. Anybody can write ConfigMaps elsewhere.
func FromNamespace(c *corev1.ConfigMap, namespace string) (*Record, bool) {
	if c.Namespace != namespace || c.Labels[Label] != LabelRecord {
		return nil, false
	}
	r, err := FromConfigMap(c)
	return r, err == nil
}

// ListsSet reports whether the record of a load balancer, among the ConfigMaps of a cache, has a backend set.
func ListsSet(configMaps informers.Reader, namespace, loadBalancer, set string) bool {
	obj, _ := configMaps.Get(cache.ObjectName{Namespace: namespace, Name: ConfigMapName(loadBalancer)})
	c, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return false
	}
	r, err := FromConfigMap(c)
	return err == nil && r.HasObject(BackendSet, set)
}

// Store reads and writes records. A write fails with a conflict if another client has changed the record since it was read.
type Store struct {
	client    typedcorev1.ConfigMapsGetter
	namespace string
	owner     string // field manager

	known sync.Map // *corev1.ConfigMap by load balancer, as read or written last
}

// NewStore returns a Store of the records in a namespace.
func NewStore(client typedcorev1.ConfigMapsGetter, namespace, owner string) *Store {
	return &Store{client: client, namespace: namespace, owner: owner}
}

// ClearCache forgets what was read, at the beginning of a term.
func (s *Store) ClearCache() { s.known.Clear() }

// cachedRecord returns the ConfigMap that was read or written last, nil if there is none.
func (s *Store) cachedRecord(loadBalancer string) *corev1.ConfigMap {
	known, _ := s.known.Load(loadBalancer)
	c, _ := known.(*corev1.ConfigMap)
	return c
}

// InvalidateStale forgets a record if a ConfigMap that an informer has seen differs from the one that was read or written last: another
// client has changed it. A ConfigMap without a version was deleted.
func (s *Store) InvalidateStale(loadBalancer, resourceVersion string) {
	if known := s.cachedRecord(loadBalancer); known != nil && (resourceVersion == "" || resourceVersion != known.ResourceVersion) {
		s.known.CompareAndDelete(loadBalancer, known)
	}
}

// Read returns the record of a load balancer, or ErrMissing. The result may be changed.
func (s *Store) Read(ctx context.Context, loadBalancer string) (*Record, error) {
	if known := s.cachedRecord(loadBalancer); known != nil {
		return FromConfigMap(known)
	}
	got, err := s.client.ConfigMaps(s.namespace).Get(ctx, ConfigMapName(loadBalancer), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, ErrMissing
	case err != nil:
		return nil, fmt.Errorf("read record of %s: %w", loadBalancer, err)
	}
	s.known.Store(loadBalancer, got)
	return FromConfigMap(got)
}

// Write writes a record, which must come from Read, or be the first one of its load balancer.
func (s *Store) Write(ctx context.Context, r *Record) error {
	known, configMaps := s.cachedRecord(r.LoadBalancer), s.client.ConfigMaps(s.namespace)
	next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: ConfigMapName(r.LoadBalancer)}}
	if known != nil {
		next = known.DeepCopy()
	}
	metav1.SetMetaDataLabel(&next.ObjectMeta, Label, LabelRecord)
	next.Data = map[string]string{keyLoadBalancer: r.LoadBalancer, keyRecord: r.Encode()}
	var written *corev1.ConfigMap
	var err error
	if known == nil {
		written, err = configMaps.Create(ctx, next, metav1.CreateOptions{FieldManager: s.owner})
	} else {
		written, err = configMaps.Update(ctx, next, metav1.UpdateOptions{FieldManager: s.owner})
	}
	if err != nil {
		s.known.Delete(r.LoadBalancer) // the next Read asks the API server
		return fmt.Errorf("write record of %s: %w", r.LoadBalancer, err)
	}
	s.known.Store(r.LoadBalancer, written)
	return nil
}

// Delete deletes the record of a load balancer that has no object of a Gateway any longer.
func (s *Store) Delete(ctx context.Context, loadBalancer string) error {
	options := metav1.DeleteOptions{}
	if known := s.cachedRecord(loadBalancer); known != nil {
		options.Preconditions = &metav1.Preconditions{UID: &known.UID, ResourceVersion: &known.ResourceVersion}
	}
	s.known.Delete(loadBalancer)
	err := s.client.ConfigMaps(s.namespace).Delete(ctx, ConfigMapName(loadBalancer), options)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete record of %s: %w", loadBalancer, err)
	}
	return nil
}
