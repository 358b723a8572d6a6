// Package informers holds the informers of all kinds that the program reads, with their indexes. Objects are trimmed to the fields
// that the program uses.
package informers

import (
	"net/netip"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	netutils "k8s.io/utils/net"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	kit "fairlead.dev/pkg/informers"
)

// Indexes.
const (
	byService    = "service"    // bindings and EndpointSlices, by namespace/name of their Service
	byBackendSet = "backendset" // bindings, by load balancer and set
	byNamespace  = "namespace"  // bindings
	byPod        = "pod"        // EndpointSlices, by namespace/name of their pods
	byAddress    = "address"    // EndpointSlices, by the addresses of their endpoints
)

// Options choose the kinds that the program reads.
type Options struct {
	Gates    bool // readiness gates
	Gateways bool // the Gateway API
}

// Caches are the caches of all kinds.
type Caches struct {
	Bindings, Services, EndpointSlices kit.Informer
	Pods                               kit.Informer // off without readiness gates and Gateways

	// Kinds of the Gateway API: off without Gateways.
	GatewayClasses, Gateways, Routes, Grants, Pools kit.Informer
	GatewayConfigs                                  kit.Informer // of oke-gateway-api
	Namespaces                                      kit.Informer // labels
	Secrets                                         kit.Informer // certificates
	ConfigMaps                                      kit.Informer // parameters of Gateways, and records
}

// Informers are the informers.
type Informers struct {
	*kit.Group
	Caches
}

// New returns informers. Run starts them.
func New(p kit.Params, o Options) *Informers {
	group := kit.NewGroup(p)
	return &Informers{Group: group, Caches: o.Declare().Watch(group)}
}

// Declare declares the kinds that the program reads.
func (o Options) Declare() kit.Declaration[Caches] {
	return func(add func(kit.Kind) kit.Informer) Caches {
		pods := kit.Kind{
			Resource: corev1.SchemeGroupVersion.WithResource("pods"), Name: "Pod", Required: true, Off: !o.Gates && !o.Gateways,
			Transform: kit.Typed(trimPod),
		}
		if o.Gateways {
			pods.Transform, pods.Indexers = kit.Typed(trimPodOfGateways), inNamespace
		}
		c := Caches{
			Bindings: add(kit.Kind{
				Resource: v1alpha1.SchemeGroupVersion.WithResource("backendsetbindings"), Name: "BackendSetBinding", Required: true,
				Transform: kit.Typed(func(b *v1alpha1.BackendSetBinding) { b.ManagedFields = nil }),
				Indexers: cache.Indexers{
					byService: kit.IndexBy(indexBindingByService), byBackendSet: kit.IndexBy(indexBindingBySet),
					byNamespace: cache.MetaNamespaceIndexFunc,
				},
			}),
			Services: add(kit.Kind{
				Resource: corev1.SchemeGroupVersion.WithResource("services"), Name: "Service", Required: true,
				Transform: kit.Typed(trimService),
			}),
			EndpointSlices: add(kit.Kind{
				Resource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), Name: "EndpointSlice", Required: true,
				Selector:  discoveryv1.LabelServiceName,
				Transform: kit.Typed(trimSlice),
				Indexers: cache.Indexers{
					byService: kit.IndexBy(indexSliceByService), byPod: kit.IndexBy(indexSliceByPod), byAddress: kit.IndexBy(AddressesOf),
				},
			}),
			Pods: add(pods),
		}
		addGatewayKinds(&c, func(k kit.Kind) kit.Informer {
			k.Off = !o.Gateways
			return add(k)
		})
		return c
	}
}

func trimService(s *corev1.Service) {
	*s = corev1.Service{ObjectMeta: identityOf(&s.ObjectMeta), Spec: corev1.ServiceSpec{Ports: s.Spec.Ports}}
}

// identityOf keeps what identifies an object.
func identityOf(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, DeletionTimestamp: m.DeletionTimestamp,
	}
}

func trimSlice(s *discoveryv1.EndpointSlice) {
	service := s.Labels[discoveryv1.LabelServiceName]
	s.ObjectMeta = identityOf(&s.ObjectMeta)
	s.Labels = map[string]string{discoveryv1.LabelServiceName: service}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		trimmed := discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions}
		if r := e.TargetRef; r != nil && r.Kind == "Pod" {
			trimmed.TargetRef = &corev1.ObjectReference{Kind: r.Kind, Name: r.Name, UID: r.UID}
		}
		*e = trimmed
	}
}

// trimPod keeps the readiness of a pod that has the readiness gate, and the existence of others. Of the gates of other controllers, it
// keeps the first one that is closed: a pod can have any number.
func trimPod(p *corev1.Pod) {
	trimmed := corev1.Pod{ObjectMeta: identityOf(&p.ObjectMeta)}
	if HasGate(p) {
		trimmed.CreationTimestamp = p.CreationTimestamp
		trimmed.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: v1alpha1.ReadinessGate}}
		open := map[corev1.PodConditionType]bool{v1alpha1.ReadinessGate: true} // or closed: it is kept anyway
		for _, c := range p.Status.Conditions {
			switch c.Type {
			case corev1.ContainersReady, v1alpha1.ReadinessGate:
				trimmed.Status.Conditions = append(trimmed.Status.Conditions, c)
			case corev1.PodReady:
				trimmed.Status.Conditions = append(trimmed.Status.Conditions,
					corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason})
			default:
				open[c.Type] = c.Status == corev1.ConditionTrue
			}
		}
		if i := slices.IndexFunc(p.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool { return !open[g.ConditionType] }); i >= 0 {
			trimmed.Spec.ReadinessGates = append(trimmed.Spec.ReadinessGates, p.Spec.ReadinessGates[i])
		}
	}
	*p = trimmed
}

// HasGate reports whether a pod has the readiness gate.
func HasGate(p *corev1.Pod) bool {
	return slices.Contains(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: v1alpha1.ReadinessGate})
}

// FindCondition returns a condition of a pod, nil if the pod does not have it.
func FindCondition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &p.Status.Conditions[i]
}

// IsTrue reports whether a condition of a pod is True.
func IsTrue(p *corev1.Pod, kind corev1.PodConditionType) bool {
	c := FindCondition(p, kind)
	return c != nil && c.Status == corev1.ConditionTrue
}

// GateIsClosed reports whether a pod has the readiness gate, and waits for it.
func GateIsClosed(p *corev1.Pod) bool {
	return HasGate(p) && !IsTrue(p, v1alpha1.ReadinessGate)
}

// ClosedGates returns the pods of a Service whose gate is closed.
func ClosedGates(endpointSlices, pods kit.Reader, service cache.ObjectName) []cache.ObjectName {
	var closed []cache.ObjectName
	for _, s := range SlicesOfService(endpointSlices, service) {
		closed = append(closed, ClosedGatesIn(pods, s)...)
	}
	return closed
}

// ClosedGatesIn returns the pods of an EndpointSlice whose gate is closed.
func ClosedGatesIn(pods kit.Reader, s *discoveryv1.EndpointSlice) []cache.ObjectName {
	var closed []cache.ObjectName
	for i := range s.Endpoints {
		r := s.Endpoints[i].TargetRef
		if r == nil {
			continue
		}
		name := cache.ObjectName{Namespace: s.Namespace, Name: r.Name}
		if p := FindObject[corev1.Pod](pods, name); p != nil && GateIsClosed(p) {
			closed = append(closed, name)
		}
	}
	return closed
}

func indexBindingByService(b *v1alpha1.BackendSetBinding) []string {
	return []string{b.Namespace + "/" + b.Spec.ServiceRef.Name}
}

func indexBindingBySet(b *v1alpha1.BackendSetBinding) []string {
	return []string{setKey(b.Spec.LoadBalancerID, b.Spec.BackendSetName)}
}

func setKey(loadBalancer, set string) string { return loadBalancer + "/" + set }

func indexSliceByService(s *discoveryv1.EndpointSlice) []string {
	return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
}

func indexSliceByPod(s *discoveryv1.EndpointSlice) []string {
	var pods []string
	for i := range s.Endpoints {
		if r := s.Endpoints[i].TargetRef; r != nil {
			pods = append(pods, s.Namespace+"/"+r.Name)
		}
	}
	return pods
}

// AddressesOf returns the IP addresses of the endpoints of an EndpointSlice.
func AddressesOf(s *discoveryv1.EndpointSlice) []string {
	addresses := make([]string, 0, len(s.Endpoints))
	for i := range s.Endpoints {
		if a := AddressOf(&s.Endpoints[i]); a != "" {
			addresses = append(addresses, a)
		}
	}
	return addresses
}

// AddressOf returns the IP address of an endpoint as package netip writes it, empty if it has none. The API server accepts IPv4 addresses
// with leading zeros, and those mapped to IPv6. The first address counts: the API specifies no meaning of more.
func AddressOf(e *discoveryv1.Endpoint) string {
	if len(e.Addresses) == 0 {
		return ""
	}
	text := e.Addresses[0]
	if a, err := netip.ParseAddr(text); err == nil && a.Is4() {
		return text
	}
	if a, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(text)); ok {
		return a.Unmap().String()
	}
	return ""
}

// BindingsOfService returns the bindings of a Service.
func BindingsOfService(r kit.Reader, service cache.ObjectName) []*v1alpha1.BackendSetBinding {
	return kit.CastObjects[*v1alpha1.BackendSetBinding](r.ByIndex(byService, service.String()))
}

// BindingsOfSet returns the bindings of a backend set.
func BindingsOfSet(r kit.Reader, loadBalancer, set string) []*v1alpha1.BackendSetBinding {
	return kit.CastObjects[*v1alpha1.BackendSetBinding](r.ByIndex(byBackendSet, setKey(loadBalancer, set)))
}

// BindingsOfNamespace returns the bindings of a namespace.
func BindingsOfNamespace(r kit.Reader, namespace string) []*v1alpha1.BackendSetBinding {
	return kit.CastObjects[*v1alpha1.BackendSetBinding](r.ByIndex(byNamespace, namespace))
}

// SlicesOfService returns the EndpointSlices of a Service.
func SlicesOfService(r kit.Reader, service cache.ObjectName) []*discoveryv1.EndpointSlice {
	return kit.CastObjects[*discoveryv1.EndpointSlice](r.ByIndex(byService, service.String()))
}

// SamePod reports whether an update of a pod changes nothing that the program reads: of most pods, that is only their existence.
func SamePod(old, current *corev1.Pod) bool {
	return old.DeletionTimestamp.Equal(current.DeletionTimestamp) && reflect.DeepEqual(old.Labels, current.Labels) &&
		reflect.DeepEqual(old.Spec, current.Spec) && reflect.DeepEqual(old.Status, current.Status)
}

// SlicesOfPod returns the EndpointSlices with a pod.
func SlicesOfPod(r kit.Reader, pod cache.ObjectName) []*discoveryv1.EndpointSlice {
	return kit.CastObjects[*discoveryv1.EndpointSlice](r.ByIndex(byPod, pod.String()))
}

// SlicesOfAddress returns the EndpointSlices with an endpoint of an IP address.
func SlicesOfAddress(r kit.Reader, ip string) []*discoveryv1.EndpointSlice {
	return kit.CastObjects[*discoveryv1.EndpointSlice](r.ByIndex(byAddress, ip))
}

// ListAll returns all objects of a kind that could be read.
func ListAll[T any](r kit.Reader) []*T { return kit.CastObjects[*T](r.List()) }

// FindObject returns an object, nil if it does not exist or could not be read.
func FindObject[T any](r kit.Reader, name cache.ObjectName) *T {
	obj, _ := r.Get(name)
	t, _ := obj.(*T)
	return t
}
