package informers

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

// Resources of the Gateway API.
var (
	GatewayClasses = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: "gatewayclasses"}
	Gateways       = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: "gateways"}
	HTTPRoutes     = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: "httproutes"}
	Grants         = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1beta1", Resource: "referencegrants"}
	Pools          = schema.GroupVersionResource{Group: PoolGroup, Version: "v1", Resource: "inferencepools"}
	GatewayConfigs = schema.GroupVersionResource{Group: ConfigGroup, Version: "v1", Resource: "gateway-configs"}
)

// Groups of kinds whose modules are not imported.
const (
	PoolGroup   = "inference.networking.k8s.io"
	ConfigGroup = "oke-gateway-api.gemyago.github.io"
)

// Pool is the part of an InferencePool that the program reads.
type Pool struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		TargetPorts []struct {
			Number int32 `json:"number"`
		} `json:"targetPorts"`
		EndpointPickerRef struct {
			Group *string `json:"group"`
			Kind  string  `json:"kind"`
			Name  string  `json:"name"`
			Port  *struct {
				Number int32 `json:"number"`
			} `json:"port"`
			FailureMode string `json:"failureMode"`
		} `json:"endpointPickerRef"`
	} `json:"spec"`
}

// FailOpen is the failure mode of pools whose pods may be chosen without their endpoint picker.
const FailOpen = "FailOpen"

// GatewayConfig is the part of a GatewayConfig of oke-gateway-api that the program reads: all of its fields.
type GatewayConfig struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		LoadBalancerID string `json:"loadBalancerId"`
	} `json:"spec"`
}

// inNamespace are the indexers of kinds that are read by namespace.
var inNamespace = cache.Indexers{byNamespace: cache.MetaNamespaceIndexFunc}

// addGatewayKinds adds the kinds of the Gateway API.
func addGatewayKinds(c *Caches, add func(kit.Kind) kit.Informer) {
	c.GatewayClasses = add(kit.Kind{
		Resource: GatewayClasses, Name: "GatewayClass", Transform: kit.Typed(func(c *gatewayv1.GatewayClass) { c.ManagedFields = nil }),
	})
	c.Gateways = add(kit.Kind{
		Resource: Gateways, Name: "Gateway", Transform: kit.Typed(func(g *gatewayv1.Gateway) { g.ManagedFields = nil }),
	})
	c.Routes = add(kit.Kind{Resource: HTTPRoutes, Name: "HTTPRoute", Transform: kit.Typed[gatewayv1.HTTPRoute](kit.TrimMetadata)})
	c.Grants = add(kit.Kind{
		Resource: Grants, Name: "ReferenceGrant", Transform: kit.Typed[gatewayv1beta1.ReferenceGrant](kit.TrimMetadata),
		Indexers: inNamespace,
	})
	c.Pools = add(kit.Kind{Resource: Pools, Name: "InferencePool", Transform: kit.Typed[Pool](kit.TrimMetadata)})
	c.GatewayConfigs = add(kit.Kind{Resource: GatewayConfigs, Name: "GatewayConfig", Transform: kit.Typed[GatewayConfig](kit.TrimMetadata)})
	c.Namespaces = add(kit.Kind{
		Resource: corev1.SchemeGroupVersion.WithResource("namespaces"), Name: "Namespace", Transform: kit.Metadata(),
	})
	c.Secrets = add(kit.Kind{
		Resource: corev1.SchemeGroupVersion.WithResource("secrets"), Name: "Secret", Transform: kit.Typed(trimSecret),
		Fields: "type=" + string(corev1.SecretTypeTLS),
	})
	c.ConfigMaps = add(kit.Kind{
		Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Name: "ConfigMap",
		Transform: kit.Typed[corev1.ConfigMap](kit.TrimMetadata), Selector: lbrecord.Label,
	})
}

// trimSecret keeps a certificate with its key.
func trimSecret(s *corev1.Secret) {
	data := map[string][]byte{}
	for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey, corev1.ServiceAccountRootCAKey} {
		if text, found := s.Data[key]; found {
			data[key] = text
		}
	}
	*s = corev1.Secret{ObjectMeta: identityOf(&s.ObjectMeta), Type: s.Type, Data: data}
}

// trimPodOfGateways keeps what trimPod keeps, and the labels, the address and the readiness, for pools without an endpoint picker that
// serves HTTP.
func trimPodOfGateways(p *corev1.Pod) {
	labels, address := p.Labels, p.Status.PodIP
	gated, ready := HasGate(p), FindCondition(p, corev1.PodReady)
	trimPod(p)
	p.Labels, p.Status.PodIP = labels, address
	if !gated && ready != nil {
		p.Status.Conditions = []corev1.PodCondition{{Type: ready.Type, Status: ready.Status, Reason: ready.Reason}}
	}
}

// GrantsOfNamespace returns the ReferenceGrants of a namespace.
func GrantsOfNamespace(r kit.Reader, namespace string) []*gatewayv1beta1.ReferenceGrant {
	return kit.CastObjects[*gatewayv1beta1.ReferenceGrant](r.ByIndex(byNamespace, namespace))
}

// PodsOfNamespace returns the pods of a namespace.
func PodsOfNamespace(r kit.Reader, namespace string) []*corev1.Pod {
	return kit.CastObjects[*corev1.Pod](r.ByIndex(byNamespace, namespace))
}
