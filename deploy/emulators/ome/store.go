package ome

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// manager is the field manager of all writes.
const manager = "ome"

// kind is an API resource and the kind of its objects.
type kind struct {
	schema.GroupVersionResource

	name string
}

func (k kind) groupVersionKind() schema.GroupVersionKind { return k.GroupVersion().WithKind(k.name) }

func newKind(group, version, resource, name string) kind {
	return kind{schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, name}
}

// Kinds that the emulator reads or writes.
var (
	inferenceServices = newKind("ome.io", "v1beta1", "inferenceservices", Kind)
	replicas          = newKind("ome.io", "v1beta1", "inferencereplicas", KindReplica)
	services          = newKind("", "v1", "services", "Service")
	configMaps        = newKind("", "v1", "configmaps", "ConfigMap")
	deployments       = newKind("apps", "v1", "deployments", "Deployment")
	autoscalers       = newKind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
	ingresses         = newKind("networking.k8s.io", "v1", "ingresses", "Ingress")
	knativeServices   = newKind("serving.knative.dev", "v1", "services", "Service")
	virtualServices   = newKind("networking.istio.io", "v1beta1", "virtualservices", "VirtualService")
)

// Write is the verb and the kind of a write request. The verb of a status update is "update status".
type Write struct{ Verb, Kind string }

// ledger counts write requests, successful or not, and exports the counts as a metric.
type ledger struct {
	mu     sync.Mutex
	counts map[Write]int
}

var writesDesc = prometheus.NewDesc("ome_emulator_writes_total", "Write requests, by verb and kind.", []string{"verb", "kind"}, nil)

func newLedger() *ledger { return &ledger{counts: map[Write]int{}} }

func (l *ledger) count(verb string, k kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[Write{verb, k.name}]++
}

func (l *ledger) snapshot() map[Write]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}

// Describe implements prometheus.Collector.
func (*ledger) Describe(descs chan<- *prometheus.Desc) { descs <- writesDesc }

// Collect implements prometheus.Collector.
func (l *ledger) Collect(metrics chan<- prometheus.Metric) {
	for w, n := range l.snapshot() {
		metrics <- prometheus.MustNewConstMetric(writesDesc, prometheus.CounterValue, float64(n), w.Verb, w.Kind)
	}
}

// object is a typed object.
type object = metav1.Object

// store reads and writes objects at the API server.
type store struct {
	client dynamic.Interface
	ledger *ledger
}

func (s *store) in(k kind, namespace string) dynamic.ResourceInterface {
	return s.client.Resource(k.GroupVersionResource).Namespace(namespace)
}

// get reads the object with the name of the given one into it, and reports whether it exists.
func (s *store) get(ctx context.Context, k kind, into object) (bool, error) {
	u, err := s.in(k, into.GetNamespace()).Get(ctx, into.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
	}
	if err != nil {
		return false, fmt.Errorf("get %s %s: %w", k.name, into.GetName(), err)
	}
	return true, nil
}

func (s *store) create(ctx context.Context, k kind, o object) error {
	u, err := encode(k, o)
	if err != nil {
		return err
	}
	s.ledger.count("create", k)
	if _, err := s.in(k, o.GetNamespace()).Create(ctx, u, metav1.CreateOptions{FieldManager: manager}); err != nil {
		return fmt.Errorf("create %s %s: %w", k.name, o.GetName(), err)
	}
	return nil
}

func (s *store) update(ctx context.Context, k kind, o object) error {
	u, err := encode(k, o)
	if err != nil {
		return err
	}
	_, err = s.updateRaw(ctx, k, u)
	return err
}

// updateRaw is like update, but keeps fields that the types of this package do not have.
func (s *store) updateRaw(ctx context.Context, k kind, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	s.ledger.count("update", k)
	updated, err := s.in(k, u.GetNamespace()).Update(ctx, u, metav1.UpdateOptions{FieldManager: manager})
	if err != nil {
		return nil, fmt.Errorf("update %s %s: %w", k.name, u.GetName(), err)
	}
	return updated, nil
}

func (s *store) updateStatus(ctx context.Context, k kind, o object) error {
	u, err := encode(k, o)
	if err != nil {
		return err
	}
	s.ledger.count("update status", k)
	if _, err := s.in(k, o.GetNamespace()).UpdateStatus(ctx, u, metav1.UpdateOptions{FieldManager: manager}); err != nil {
		return fmt.Errorf("update status of %s %s: %w", k.name, o.GetName(), err)
	}
	return nil
}

// delete deletes an object. A missing object is not an error.
func (s *store) delete(ctx context.Context, k kind, namespace, name string) error {
	s.ledger.count("delete", k)
	background := metav1.DeletePropagationBackground
	err := s.in(k, namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s: %w", k.name, name, err)
	}
	return nil
}

func encode(k kind, o object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", k.name, o.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(k.groupVersionKind())
	return u, nil
}
