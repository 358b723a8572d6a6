// Package settings resolves how each InferenceService is exposed, from the configuration of this program, the annotations of the
// service, and OME's configuration for all other keys.
//
//	OME's ConfigMap, key ingress      JSON; read, never written
//	its namespaceIngressGateways
//	this program's configuration      YAML or JSON
//	its namespaceIngressGateways
//	annotations of the service        a change restarts the pods of the service
//	overrides in its configuration    by namespace, name or labels; a change restarts no pods
//
// Later entries of this list override earlier ones, key by key. The keys have OME's names. An invalid value in OME's configuration
// or in an annotation affects only the services that use it.
package settings

import (
	"encoding/json"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Strategy is the kind of objects that expose a service.
type Strategy string

// The strategies. Auto chooses by the deployment mode of the component that receives the requests.
const (
	Auto           Strategy = "auto"
	HTTPRoute      Strategy = "httproute"
	Ingress        Strategy = "ingress"
	VirtualService Strategy = "virtualservice"
)

// Values are the keys that every level can set. A nil or empty field is not set.
type Values struct {
	Strategy Strategy `json:"strategy,omitempty"`

	IngressDomain            *string   `json:"ingressDomain,omitempty"`
	AdditionalIngressDomains *[]string `json:"additionalIngressDomains,omitempty"`
	DomainTemplate           *string   `json:"domainTemplate,omitempty"`
	PathTemplate             *string   `json:"pathTemplate,omitempty"` // empty turns path routes off
	URLScheme                *string   `json:"urlScheme,omitempty"`
	URLPort                  *int64    `json:"urlPort,omitempty"` // of clients, if it is not the listener's; 0: not set
	PerISVCSubdomain         *bool     `json:"perISVCSubdomain,omitempty"`
	SharedHostPrefix         *string   `json:"sharedHostPrefix,omitempty"` // empty: the domain itself
	ComponentHosts           *bool     `json:"componentHosts,omitempty"`   // additional hosts, one for each component

	EnableGatewayAPI          *bool      `json:"enableGatewayAPI,omitempty"`
	EnableGatewayAPIOfKServe  *bool      `json:"enableGatewayApi,omitempty"`  // KServe's spelling; nil after parsing
	OMEIngressGateway         *string    `json:"omeIngressGateway,omitempty"` // namespace/name of a Gateway, or namespace/name/listener
	AdditionalIngressGateways *[]Gateway `json:"additionalIngressGateways,omitempty"`
	IngressGateway            *string    `json:"ingressGateway,omitempty"` // Istio Gateway
	DisableIstioVirtualHost   *bool      `json:"disableIstioVirtualHost,omitempty"`
	IngressClassName          *string    `json:"ingressClassName,omitempty"`           // empty: the cluster's default
	KnativeGatewayService     *string    `json:"knativeLocalGatewayService,omitempty"` // host that receives requests for Knative Services

	DefaultRouteTimeoutSeconds *int64 `json:"defaultRouteTimeoutSeconds,omitempty"` // 0: no timeout
	// omit timeouts from HTTPRoutes: some Gateways reject them
	DisableHTTPRouteTimeout *bool `json:"disableHTTPRouteTimeout,omitempty"`
	MaxRequestBodySize      *Size `json:"maxRequestBodySize,omitempty"` // 0: no limit
	BufferBodies            *bool `json:"bufferBodies,omitempty"`       // Ingress controllers buffer whole bodies

	// for Ingresses: a template with the fields of domainTemplate; default with an issuer: <host>-tls
	TLSSecretName *string `json:"tlsSecretName,omitempty"`
	TLSIssuer     *string `json:"tlsIssuer,omitempty"` // Issuer/<name> or ClusterIssuer/<name> of cert-manager

	InferencePool *InferencePool `json:"inferencePool,omitempty"`
	ModelHeader   *string        `json:"modelBasedRoutingHeaderName,omitempty"` // this header selects a model on the shared host
	// value of that header: a template with the fields of domainTemplate
	ModelNameTemplate *string `json:"modelNameTemplate,omitempty"`

	FallbackService *FallbackService `json:"fallbackService,omitempty"`

	Labels      *map[string]string `json:"labels,omitempty"`      // of all objects; override copied labels
	Annotations *map[string]string `json:"annotations,omitempty"` // of routes; override copied annotations
	// labels to copy from the InferenceService to all objects: see copy.go
	CopyLabels      *[]string `json:"copyLabels,omitempty"`
	CopyAnnotations *[]string `json:"copyAnnotations,omitempty"` // annotations to copy from the InferenceService to routes: see copy.go

	AnnotationPrefixes *[]string `json:"annotationPrefixes,omitempty"` // rejected: a key of earlier releases
}

// Size is a quantity: a string or a number of bytes.
type Size string

// UnmarshalJSON implements json.Unmarshaler.
func (s *Size) UnmarshalJSON(data []byte) error {
	var number json.Number // also accepts strings that contain a number
	if err := json.Unmarshal(data, &number); err == nil {
		*s = Size(number)
		return nil
	}
	return json.Unmarshal(data, (*string)(s))
}

// UnmarshalText implements encoding.TextUnmarshaler for YAML.
func (s *Size) UnmarshalText(text []byte) error {
	*s = Size(text)
	return nil
}

// InferencePool is the backend of the entry's HTTPRoutes instead of a Service: an existing InferencePool, or one that this
// controller creates.
type InferencePool struct {
	Name              string          `json:"name,omitempty"` // name of an existing pool
	EndpointPickerRef *EndpointPicker `json:"endpointPickerRef,omitempty"`
}

// EndpointPicker is the Service of the endpoint picker for a pool that this controller creates, in the namespace of the pool. Most
// pickers serve one pool, so the name is a template.
type EndpointPicker struct {
	Name        string `json:"name"`                  // a template with the fields of domainTemplate
	Port        int32  `json:"port,omitempty"`        // 0: 9002
	FailureMode string `json:"failureMode,omitempty"` // FailClose or FailOpen; empty: FailClose
}

// FallbackService is an additional Service for clients that cannot use routes.
type FallbackService struct {
	Enabled bool   `json:"enabled"`
	Suffix  string `json:"suffix,omitempty"` // suffix of its name; empty: -external
	Type    string `json:"type,omitempty"`   // ClusterIP, NodePort or LoadBalancer; empty: ClusterIP

	Annotations     map[string]string `json:"annotations,omitempty"`     // override copied annotations
	CopyAnnotations []string          `json:"copyAnnotations,omitempty"` // annotations to copy from the InferenceService; nil: see copy.go

	AnnotationPrefixes []string `json:"annotationPrefixes,omitempty"` // rejected: a key of earlier releases
}

// Gateway is a Gateway that HTTPRoutes attach to.
type Gateway struct {
	OMEIngressGateway string `json:"omeIngressGateway"`
	IngressDomain     string `json:"ingressDomain,omitempty"` // empty: the service's domain
	Class             string `json:"class,omitempty"`         // name in OME's status; this controller ignores it
}

// NamespaceGateways are the Gateways for the services of one namespace.
type NamespaceGateways struct {
	Primary    *Gateway  `json:"primary,omitempty"`
	Additional []Gateway `json:"additional,omitempty"`
}

// Override sets values for some services: those in one of the namespaces, with one of the names, and with matching labels. An
// empty criterion matches all services.
type Override struct {
	Namespaces []string              `json:"namespaces,omitempty"`
	Names      []string              `json:"names,omitempty"`
	Selector   *metav1.LabelSelector `json:"selector,omitempty"`
	Values     `json:",inline"`

	Enabled *bool `json:"enabled,omitempty"`
}

// Document is the configuration of this program.
type Document struct {
	Values `json:",inline"`

	Enabled                  *bool                        `json:"enabled,omitempty"` // nil: true
	NamespaceIngressGateways map[string]NamespaceGateways `json:"namespaceIngressGateways,omitempty"`
	// AllowedDomains are the domains that hosts may be in, by namespace. "*" applies to namespaces that are not listed. An entry
	// may be a template with the field Namespace.
	AllowedDomains map[string][]string `json:"allowedDomains,omitempty"`
	Overrides      []Override          `json:"overrides,omitempty"`
	// HoldSeconds is how long replaced objects are kept: clients may still use old host names. nil: 5 minutes.
	HoldSeconds *int64 `json:"holdSeconds,omitempty"`
}

const defaultHoldSeconds = 5 * 60

// HoldDuration returns how long replaced objects are kept.
func (d *Document) HoldDuration() time.Duration {
	return time.Duration(ptr.Deref(d.HoldSeconds, defaultHoldSeconds)) * time.Second
}

// normalize replaces alternative spellings of keys.
func (v *Values) normalize() {
	if v.EnableGatewayAPI == nil {
		v.EnableGatewayAPI = v.EnableGatewayAPIOfKServe
	}
	v.EnableGatewayAPIOfKServe = nil
}

// mergeOver returns the values of base, overridden by the values that v sets.
func (v Values) mergeOver(base Values) Values {
	merged := reflect.ValueOf(&base).Elem()
	overriding := reflect.ValueOf(v)
	for i := range overriding.NumField() {
		if !overriding.Field(i).IsZero() {
			merged.Field(i).Set(overriding.Field(i))
		}
	}
	return base
}
