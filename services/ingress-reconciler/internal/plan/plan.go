// Package plan decides how an InferenceService is exposed: the hosts and paths of its components, the kind of routes, and the reason
// for each component that is not exposed.
//
// The same exposures can be rendered as HTTPRoutes, Ingresses or VirtualServices. Build is a pure function of its input.
//
//	components              entry                additional hosts (componentHosts)
//	engine                  engine               -
//	engine, decoder         engine, a warning    decoder
//	router, engine          router               engine
//	router, engine, decoder router               engine, decoder
//
// The entry depends on which components exist, not on their readiness: requests never bypass a router that is not ready. Readiness
// only delays the first routes to a component.
//
// Build considers one service. Package ownership resolves conflicts between services: RequestedClaims returns the claims to
// request, and RemoveRefused removes the exposures whose claims were refused.
package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/istiogateway"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// Reasons of conditions and Events.
const (
	ReasonDisabled               = "Disabled"
	ReasonOMEIngressEnabled      = "OMEIngressEnabled"
	ReasonVirtualDeployment      = "VirtualDeployment"
	ReasonClusterLocal           = "ClusterLocal"
	ReasonInvalidConfiguration   = "InvalidConfiguration"
	ReasonNoDomain               = "NoDomain"
	ReasonNoEntry                = "NoEntryComponent"
	ReasonServiceNotFound        = "ServiceNotFound"
	ReasonNameConflict           = "NameConflict"
	ReasonComponentNotReady      = "ComponentNotReady"
	ReasonInvalidHost            = "InvalidHost"
	ReasonHostNotAllowed         = "HostNotAllowed"
	ReasonPathNotAllowed         = "PathNotAllowed"
	ReasonLimitExceeded          = "LimitExceeded"
	ReasonHostConflict           = "HostConflict"
	ReasonNoGateway              = "NoGateway"
	ReasonAPIUnavailable         = "APIUnavailable"
	ReasonPathRewriteUnsupported = "PathRewriteUnsupported"
	ReasonHeaderMatchUnsupported = "HeaderMatchUnsupported"
	ReasonIngressClassNotFound   = "IngressClassNotFound"
	ReasonPoolNotFound           = "InferencePoolNotFound"
	ReasonPoolUnsupported        = "InferencePoolUnsupported"
	ReasonPoolMismatch           = "InferencePoolMismatch"
	ReasonPickerNotFound         = "EndpointPickerNotFound"
	ReasonWorkersSelected        = "WorkersSelected"
	ReasonAnnotationIgnored      = "AnnotationIgnored"
	ReasonNoPods                 = "NoPods"
	ReasonGRPCOnly               = "GRPCOnly"
	ReasonTimeoutUnsupported     = "TimeoutUnsupported"
	ReasonDecoderWithoutRouter   = "DecoderWithoutRouter"
)

// Slot identifies an exposed unit: the service as a whole, or one of its components. The component that receives the requests of the
// whole service can change; the hosts and paths of the slot stay the same.
type Slot string

// Entry is the slot of the service as a whole. The other slots are named after roles.
const Entry Slot = "entry"

// Slots are all slots.
var Slots = []Slot{Entry, Slot(isvc.Router), Slot(isvc.Engine), Slot(isvc.Decoder)}

// Input is the input of Build.
type Input struct {
	Service     *isvc.Service
	Settings    settings.Settings
	SettingsErr error // error in the settings of the service
	// Services that the InferenceService controls, and other Services with the names of its components
	Services []*corev1.Service
	Podless  map[string]bool            // names of Services that select no pods
	Knative  map[isvc.Role]bool         // components that are Knative Services
	Live     map[Slot][]isvc.Role       // components that existing routes point to
	Removed  map[isvc.Role]bool         // components that were removed from the specification
	Unserved map[settings.Strategy]bool // strategies whose kind is not available
	Gateways map[types.NamespacedName]gatewayapi.Gateway
	Istio    map[types.NamespacedName]*istiogateway.Gateway // the Istio Gateway that the settings name; nil: the kind is not served
	Labels   map[string]string                              // of the namespace; nil: unknown
	Classes  []*networkingv1.IngressClass
	Pools    map[string]*inferencev1.InferencePool // InferencePools that the settings name, by name; nil: the kind is not served
	Pickers  map[string]*corev1.Service            // Services of endpoint pickers, by name
	Routed   map[ownership.Claim]bool              // claims that existing routes serve

	// Foreign returns the Ingresses for a host that this program did not write. nil: there are none.
	Foreign func(host string) []*unstructured.Unstructured
}

// Plan describes how a service is exposed.
type Plan struct {
	Strategy     settings.Strategy // never auto; empty if nothing is exposed
	Exposures    []Exposure        // the entry first
	Pool         *Pool             // InferencePool to create; nil: none
	Fallback     *Fallback         // fallback Service to create; nil: none
	Reasons      []Reason          // why components are not exposed, or not as configured
	FrozenSlots  []Slot            // slots whose objects must not change because their desired state is unknown
	Disabled     bool              // the service must not be exposed
	HandedToOME  bool              // OME exposes the service; set only with Disabled
	WantedClaims []WantedClaim     // claims of the service, including components that are not ready
	RewriteHosts []string          // hosts whose foreign Ingresses decided whether a path can be rewritten
}

// Exposure is one host and path at one Gateway. Each exposure is rendered as one route.
type Exposure struct {
	Slot    Slot
	Role    isvc.Role // the component that receives the requests
	Host    string
	Path    string // a prefix that ends in "/"; it is removed before the request reaches the backend
	Model   Model
	Backend Backend
	Timeout time.Duration // 0: no timeout

	Gateway     settings.GatewayRef   // of an HTTPRoute
	ParentKind  string                // of the Gateway: Gateway or ListenerSet
	OwnListener bool                  // the Gateway has a listener for exactly the host, which routes without hostnames have, too
	Attachment  gatewayapi.Attachment // whether the Gateway is expected to accept it
	Timeouts    bool                  // the Gateway supports timeouts, and the settings do not disable them
	Class       ingressclass.Class    // of an Ingress
	TLSSecret   string                // of an Ingress; empty: none
	URL         string                // for clients

	// Unordered means that the data plane may prefer a match of the model's header to a longer path.
	Unordered bool
}

// Model selects one of several models on a shared host by a request header. The zero Model selects nothing.
type Model struct{ Header, Name string }

// Backend is the destination of requests: a Service, or an InferencePool.
type Backend struct {
	backend.Service

	Pool    string
	Knative string // name of a Knative Service, reached through Knative's gateway; empty: none
}

// Reason explains why a component is not exposed. An empty Role means the whole service. A Warning means that the component is
// exposed, but not as configured.
type Reason struct {
	Role            isvc.Role
	Reason, Message string
	Warning         bool
}

// Build returns the plan for a service.
func Build(in *Input) Plan {
	own := *in // b.Settings changes
	b := &builder{Input: &own, slotByClaim: map[ownership.Claim]Slot{}}
	b.buildPlan()
	return b.plan
}

type builder struct {
	*Input

	plan        Plan
	slotByClaim map[ownership.Claim]Slot // the claims in plan.WantedClaims
}

func (b *builder) addReason(r isvc.Role, reason, format string, args ...any) {
	b.appendReason(Reason{Role: r, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func (b *builder) addWarning(r isvc.Role, reason, format string, args ...any) {
	b.appendReason(Reason{Role: r, Reason: reason, Message: fmt.Sprintf(format, args...), Warning: true})
}

func (b *builder) appendReason(next Reason) {
	if !slices.Contains(b.plan.Reasons, next) {
		b.plan.Reasons = append(b.plan.Reasons, next)
	}
}

// freezeSlots adds slots whose objects must not change.
func (b *builder) freezeSlots(slots ...Slot) {
	for _, s := range slots {
		if !slices.Contains(b.plan.FrozenSlots, s) {
			b.plan.FrozenSlots = append(b.plan.FrozenSlots, s)
		}
	}
}

func (b *builder) buildPlan() {
	if b.checkDisabled() {
		return
	}
	entry, found := b.entryRole()
	if !found {
		b.freezeSlots(Slots...)
		b.addReason("", ReasonNoEntry, "the service has neither a router nor an engine")
		return
	}
	b.plan.Strategy = b.chooseStrategy(entry)
	b.Settings = b.Settings.ForStrategy(b.plan.Strategy)
	if !b.checkStrategy() {
		b.plan.Strategy = ""
		return
	}
	b.addNotices(entry)
	b.exposeComponent(Entry, entry, b.Service.Name)
	if b.Settings.ComponentHosts {
		for _, r := range isvc.Roles {
			if r != entry && b.hasComponent(r) {
				b.exposeComponent(Slot(r), r, backend.ServiceName(b.Service.Name, r))
			}
		}
	}
	b.planFallback(entry)
	b.warnOfWorkers()
	if len(b.plan.Exposures) == 0 {
		b.plan.Strategy = ""
	}
}

// addNotices adds reasons that do not depend on routes.
func (b *builder) addNotices(entry isvc.Role) {
	if entry == isvc.Engine && b.hasComponent(isvc.Decoder) {
		b.addWarning(isvc.Engine, ReasonDecoderWithoutRouter,
			"there is no router: requests go to the engine, which must reach the decoder by itself")
	}
	for _, text := range b.Settings.Ignored {
		b.addWarning("", ReasonAnnotationIgnored, "%s", text)
	}
	if b.Settings.CopyProblem != "" {
		b.addReason("", ReasonLimitExceeded, "%s", b.Settings.CopyProblem)
	}
}

// checkDisabled reports whether nothing is exposed at all, and adds the reason.
func (b *builder) checkDisabled() bool {
	s := &b.Settings
	b.plan.Disabled = true
	switch {
	case b.Service.Deleting: // the garbage collector removes its objects
		b.freezeSlots(Slots...)
	case s.Private: // also with settings that are invalid: a service that its owner marked as private is never public
		b.addReason("", ReasonDisabled, `the owner of the service set the annotation ome.io/disable-ingress: "true"`)
	case b.Service.ClusterLocal():
		b.addReason("", ReasonClusterLocal, "the service has the visibility label cluster-local")
	case b.Service.Mode == isvc.VirtualDeployment:
		b.addReason("", ReasonVirtualDeployment, "the deployment mode is VirtualDeployment: the model is served outside the cluster")
	case b.SettingsErr != nil:
		b.plan.Disabled = false
		b.freezeSlots(Slots...)
		b.addReason("", settingsReason(b.SettingsErr), "%s", strings.ReplaceAll(b.SettingsErr.Error(), "\n", "; "))
	case !s.Enabled:
		b.addReason("", ReasonDisabled, "the configuration sets enabled: false for this service")
	case s.OMEActs:
		b.plan.HandedToOME = true
		b.addReason("", ReasonOMEIngressEnabled,
			"OME creates routes for this service: set disableIngressCreation: true in OME's configuration to use this controller")
	case s.Domain == "":
		b.plan.Disabled = false
		b.freezeSlots(Slots...)
		b.addReason("", ReasonNoDomain, "no domain is configured: set ingressDomain")
	default:
		b.plan.Disabled = false
		return false
	}
	return true
}

// settingsReason returns the reason for settings that cannot be used.
func settingsReason(err error) string {
	if limit := (*settings.LimitError)(nil); errors.As(err, &limit) {
		return ReasonLimitExceeded
	}
	return ReasonInvalidConfiguration
}

// checkStrategy reports whether routes of the strategy can be created, and adds the reason if not.
func (b *builder) checkStrategy() bool {
	switch s := b.plan.Strategy; {
	case b.Settings.Domain == "": // OME configures a domain for HTTPRoutes only
		b.freezeSlots(Slots...)
		b.addReason("", ReasonNoDomain, "no domain is configured: set ingressDomain")
	case s == settings.HTTPRoute && len(b.Settings.Gateways) == 0:
		b.freezeSlots(Slots...)
		b.addReason("", ReasonNoGateway, "no Gateway is configured: set omeIngressGateway")
	case s == settings.VirtualService && b.Settings.IstioOff:
		b.plan.Disabled = true
		b.addReason("", ReasonDisabled, "disableIstioVirtualHost is set: no VirtualServices are created")
	case s == settings.VirtualService && b.Settings.IstioGateway == "":
		b.freezeSlots(Slots...)
		b.addReason("", ReasonNoGateway, "no Istio Gateway is configured: set ingressGateway")
	case b.Unserved[s]:
		b.freezeSlots(Slots...)
		b.addReason("", ReasonAPIUnavailable, "the kind of strategy %s is not available: install its CRD, or add it to --kinds", s)
	case s == settings.Ingress && b.Settings.IngressClass != nil && !ingressclass.ResolveClass(b.Classes, b.Settings.IngressClass).Exists():
		b.addWarning("", ReasonIngressClassNotFound, "IngressClass %s does not exist", *b.Settings.IngressClass)
		return true // a controller may serve a class name without an IngressClass
	default:
		return true
	}
	return false
}

// hasComponent reports whether a service has a component, from its specification, its status, or a Service that OME created: a serving
// runtime can add components that the specification does not name. A component that was removed from the specification keeps its
// Service until OME reconciles: routes must stop using the Service before OME deletes it.
func (b *builder) hasComponent(r isvc.Role) bool {
	if b.Service.Components[r] != nil {
		return true
	}
	if b.Removed[r] {
		return false
	}
	if b.Service.Reported[r] {
		return true
	}
	_, err := backend.FindService(b.Services, b.Service, r)
	return err == nil
}

// entryRole returns the component that receives client requests.
func (b *builder) entryRole() (isvc.Role, bool) {
	for _, r := range []isvc.Role{isvc.Router, isvc.Engine} {
		if b.hasComponent(r) {
			return r, true
		}
	}
	return "", false
}

// componentMode infers the deployment mode of a component.
func (b *builder) componentMode(r isvc.Role) isvc.Mode {
	return b.Service.ComponentMode(r, isvc.ModeContext{Knative: b.Knative[r], Decoder: b.hasComponent(isvc.Decoder)})
}

// chooseStrategy returns the configured strategy. Auto depends on the deployment mode of the entry.
func (b *builder) chooseStrategy(entry isvc.Role) settings.Strategy {
	switch {
	case b.Settings.Strategy != settings.Auto:
		return b.Settings.Strategy
	case b.componentMode(entry) == isvc.Serverless:
		return settings.VirtualService
	case b.Settings.GatewayAPI:
		return settings.HTTPRoute
	}
	return settings.Ingress
}

func (b *builder) requestTimeout(r isvc.Role) time.Duration {
	var timeout time.Duration
	if c := b.Service.Components[r]; c != nil {
		timeout = c.Timeout
	}
	return cmp.Or(timeout, b.Settings.Timeout)
}
