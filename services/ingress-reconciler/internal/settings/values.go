// Package settings says how services are to be exposed: by our own configuration, by OME's where ours is silent, and by
// what is said of one service.
//
//	OME's ConfigMap, key ingress      read only, JSON; what is wrong there is OME's to say
//	its gateways for a namespace
//	our configuration                 YAML or JSON
//	its gateways for a namespace
//	annotations of the service        changing one restarts its pods
//	our configuration's overrides     by namespace, name or labels; they do not
//
// What is lower in this list wins, key by key. The keys have OME's names. A value that cannot be used is a Problem of the
// services it is for, and of no other.
package settings

import (
	"encoding/json"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Strategy is what objects expose a service.
type Strategy string

// The strategies. Auto follows the mode of the component that takes the requests.
const (
	Auto           Strategy = "auto"
	HTTPRoute      Strategy = "httproute"
	Ingress        Strategy = "ingress"
	VirtualService Strategy = "virtualservice"
)

// Values are keys that may be said at each level. A field that is nil or empty is not said.
type Values struct {
	Strategy Strategy `json:"strategy,omitempty"`

	IngressDomain            *string   `json:"ingressDomain,omitempty"`
	AdditionalIngressDomains *[]string `json:"additionalIngressDomains,omitempty"`
	DomainTemplate           *string   `json:"domainTemplate,omitempty"`
	PathTemplate             *string   `json:"pathTemplate,omitempty"` // empty turns paths off
	URLScheme                *string   `json:"urlScheme,omitempty"`
	PerISVCSubdomain         *bool     `json:"perISVCSubdomain,omitempty"`
	SharedHostPrefix         *string   `json:"sharedHostPrefix,omitempty"` // empty: the domain itself
	ComponentHosts           *bool     `json:"componentHosts,omitempty"`   // a host for each component, besides

	EnableGatewayAPI          *bool      `json:"enableGatewayAPI,omitempty"`
	EnableGatewayAPIOfKServe  *bool      `json:"enableGatewayApi,omitempty"`  // as KServe spells it; nil after parsing
	OMEIngressGateway         *string    `json:"omeIngressGateway,omitempty"` // namespace/name of a Gateway, or namespace/name/listener
	AdditionalIngressGateways *[]Gateway `json:"additionalIngressGateways,omitempty"`
	IngressGateway            *string    `json:"ingressGateway,omitempty"` // of Istio
	DisableIstioVirtualHost   *bool      `json:"disableIstioVirtualHost,omitempty"`
	IngressClassName          *string    `json:"ingressClassName,omitempty"`           // empty: the cluster's default
	KnativeGatewayService     *string    `json:"knativeLocalGatewayService,omitempty"` // what takes requests for Knative Services

	DefaultRouteTimeoutSeconds *int64 `json:"defaultRouteTimeoutSeconds,omitempty"` // 0: none
	DisableHTTPRouteTimeout    *bool  `json:"disableHTTPRouteTimeout,omitempty"`    // leave timeouts out of HTTPRoutes: some Gateways refuse them
	MaxRequestBodySize         *Size  `json:"maxRequestBodySize,omitempty"`         // 0: any
	BufferBodies               *bool  `json:"bufferBodies,omitempty"`               // have Ingress controllers take bodies in whole

	TLSSecretName *string `json:"tlsSecretName,omitempty"` // of an Ingress: a template, with the fields of domainTemplate; with an issuer, <host>-tls
	TLSIssuer     *string `json:"tlsIssuer,omitempty"`     // Issuer/<name> or ClusterIssuer/<name> of cert-manager

	InferencePool     *InferencePool `json:"inferencePool,omitempty"`
	ModelHeader       *string        `json:"modelBasedRoutingHeaderName,omitempty"` // one host for many models, told apart by this header
	ModelNameTemplate *string        `json:"modelNameTemplate,omitempty"`           // its value, with the fields of domainTemplate

	FallbackService *FallbackService `json:"fallbackService,omitempty"`

	Labels          *map[string]string `json:"labels,omitempty"`          // of all objects; they win over copied ones
	Annotations     *map[string]string `json:"annotations,omitempty"`     // of routes; they win over copied ones
	CopyLabels      *[]string          `json:"copyLabels,omitempty"`      // labels of the InferenceService that all objects get: see copy.go
	CopyAnnotations *[]string          `json:"copyAnnotations,omitempty"` // annotations of the InferenceService that routes get: see copy.go

	AnnotationPrefixes *[]string `json:"annotationPrefixes,omitempty"` // refused: a key of earlier releases
}

// Size is a quantity, as a text or a number of bytes.
type Size string

// UnmarshalJSON implements json.Unmarshaler.
func (s *Size) UnmarshalJSON(data []byte) error {
	var number json.Number // takes texts that are numbers, too
	if err := json.Unmarshal(data, &number); err == nil {
		*s = Size(number)
		return nil
	}
	return json.Unmarshal(data, (*string)(s))
}

// InferencePool is the InferencePool that HTTPRoutes of the entry use instead of a Service: an existing one, or one that is
// created.
type InferencePool struct {
	Name              string          `json:"name,omitempty"` // of an existing pool
	EndpointPickerRef *EndpointPicker `json:"endpointPickerRef,omitempty"`
}

// EndpointPicker is the Service of the endpoint picker of a pool that is created, in the namespace of the pool. Most pickers
// serve one pool, so the name is a template.
type EndpointPicker struct {
	Name        string `json:"name"`                  // a template with the fields of domainTemplate
	Port        int32  `json:"port,omitempty"`        // 0: 9002
	FailureMode string `json:"failureMode,omitempty"` // FailClose or FailOpen; empty: FailClose
}

// FallbackService is a Service beside OME's, for what cannot use routes.
type FallbackService struct {
	Enabled bool   `json:"enabled"`
	Suffix  string `json:"suffix,omitempty"` // of its name; empty: -external
	Type    string `json:"type,omitempty"`   // ClusterIP, NodePort or LoadBalancer; empty: ClusterIP

	Annotations     map[string]string `json:"annotations,omitempty"`     // they win over copied ones
	CopyAnnotations []string          `json:"copyAnnotations,omitempty"` // annotations of the InferenceService that it gets; nil: see copy.go

	AnnotationPrefixes []string `json:"annotationPrefixes,omitempty"` // refused: a key of earlier releases
}

// Gateway is one more Gateway to attach to.
type Gateway struct {
	OMEIngressGateway string `json:"omeIngressGateway"`
	IngressDomain     string `json:"ingressDomain,omitempty"` // empty: that of the first
	Class             string `json:"class,omitempty"`         // what OME calls it in the status; nothing of ours has it
}

// NamespaceGateways are those of the services of one namespace.
type NamespaceGateways struct {
	Primary    *Gateway  `json:"primary,omitempty"`
	Additional []Gateway `json:"additional,omitempty"`
}

// Override says something of some services. It is for those that are in one of the namespaces, and have one of the names,
// and whose labels match; what is empty matches all.
type Override struct {
	Namespaces []string              `json:"namespaces,omitempty"`
	Names      []string              `json:"names,omitempty"`
	Selector   *metav1.LabelSelector `json:"selector,omitempty"`
	Values     `json:",inline"`

	Enabled *bool `json:"enabled,omitempty"`
}

// Document is the configuration of our own.
type Document struct {
	Values `json:",inline"`

	Enabled                  *bool                        `json:"enabled,omitempty"` // nil: true
	NamespaceIngressGateways map[string]NamespaceGateways `json:"namespaceIngressGateways,omitempty"`
	// AllowedDomains are, by namespace, the domains in which hosts may be; "*" stands for namespaces that are not named. An entry
	// may be a template with the field Namespace.
	AllowedDomains map[string][]string `json:"allowedDomains,omitempty"`
	Overrides      []Override          `json:"overrides,omitempty"`
	// HoldSeconds is how long objects stay after others have taken their place: clients may know old names. nil: 5 minutes.
	HoldSeconds *int64 `json:"holdSeconds,omitempty"`
}

const usualHold = 5 * time.Minute

// Hold returns how long objects stay after others have taken their place.
func (d *Document) Hold() time.Duration {
	if d.HoldSeconds == nil {
		return usualHold
	}
	return time.Duration(*d.HoldSeconds) * time.Second
}

// normalize leaves one spelling of each key.
func (v *Values) normalize() {
	if v.EnableGatewayAPI == nil {
		v.EnableGatewayAPI = v.EnableGatewayAPIOfKServe
	}
	v.EnableGatewayAPIOfKServe = nil
}

// over returns values where what v says wins.
func (v Values) over(base Values) Values {
	merged := reflect.ValueOf(&base).Elem()
	said := reflect.ValueOf(v)
	for i := range said.NumField() {
		if !said.Field(i).IsZero() {
			merged.Field(i).Set(said.Field(i))
		}
	}
	return base
}
