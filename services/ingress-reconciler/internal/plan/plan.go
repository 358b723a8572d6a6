// Package plan decides how one InferenceService is exposed: under which hosts and paths its components are reached, by which
// kind of objects, and why some are not.
//
// A plan knows nothing of VirtualServices, Ingresses or HTTPRoutes: the same exposures are rendered as one or the other. It
// is a function of its input alone, and of the same input always the same.
//
//	components              the entry            hosts of their own, if asked for
//	engine                  engine               -
//	engine, decoder         engine, a warning    decoder
//	router, engine          router               engine
//	router, engine, decoder router               engine, decoder
//
// Who is the entry follows from which components there are, never from whether they are ready: a router that is down is not
// passed by. Readiness only holds back what was not there before.
package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/gateway"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
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
	ReasonTimeoutUnsupported     = "TimeoutUnsupported"
	ReasonDecoderWithoutRouter   = "DecoderWithoutRouter"
)

// Slot is what a way in is for: the service as a whole, or one of its components. What takes the requests of the whole may
// change, and its ways in stay the same.
type Slot string

// Entry is the slot of the service as a whole. The others have the names of roles.
const Entry Slot = "entry"

// Slots are all of them.
var Slots = []Slot{Entry, Slot(isvc.Router), Slot(isvc.Engine), Slot(isvc.Decoder)}

// Input is all that a plan follows from.
type Input struct {
	Service     *isvc.Service
	Settings    settings.Settings
	SettingsErr error                      // what is wrong with what is said of the service
	Services    []*corev1.Service          // of its namespace: those that it controls, and that have names of its components
	Knative     map[isvc.Role]bool         // components that are Knative Services
	Live        map[Slot][]isvc.Role       // what objects of ours point at now
	Serving     map[Slot][]Claim           // what they have, but for those that others have taken the place of
	Leaving     map[isvc.Role]bool         // components that the specification has just ceased to name
	Unserved    map[settings.Strategy]bool // kinds that the API server does not have
	Gateways    map[types.NamespacedName]gateway.Gateway
	Labels      map[string]string // of the namespace; nil: not known
	Classes     []*networkingv1.IngressClass
	Pools       map[string]*inferencev1.InferencePool // of its namespace, by name: those that the settings name; nil: the kind is not served
	Pickers     map[string]*corev1.Service            // Services of endpoint pickers in its namespace, by name
	Taken       map[Claim]Name                        // what older services have
}

// Plan is how a service is exposed.
type Plan struct {
	Strategy  settings.Strategy // never auto; empty if there is nothing to expose
	Exposures []Exposure        // those of the entry first
	Pool      *Pool             // to be made; nil: none
	Fallback  *Fallback         // to be made; nil: none
	Reasons   []Reason          // why something is not exposed, or not as one might expect
	Keep      []Slot            // slots whose objects stay as they are: what to have instead is not known now
	Withheld  bool              // somebody wants nothing to be exposed
	Handed    bool              // and that somebody else exposes it
	Claims    []Claim           // what the service stands for, be it ready or not; an older one may have it
}

// Exposure is one way in: what one object makes.
type Exposure struct {
	Slot    Slot
	Role    isvc.Role // that takes the requests
	Host    string
	Path    string // a prefix that ends in "/"; it is taken away before the backend sees it
	Model   Model
	Backend Backend
	Timeout time.Duration // 0: none

	Gateway    settings.GatewayRef     // of an HTTPRoute
	Attachment gateway.Attachment      // what the Gateway will make of it
	Timeouts   bool                    // the Gateway knows timeouts
	Controller ingressclass.Controller // of an Ingress
	TLSSecret  string                  // likewise; empty: none
	URL        string                  // where clients find it
}

// Model is what tells models apart that share a host: the zero Model is none.
type Model struct{ Header, Name string }

// Backend is where requests go: to a Service, or to the InferencePool of that name.
type Backend struct {
	backend.Service

	Pool    string
	Knative string // host of a Knative Service, by the gateway of Knative; empty: it is none
}

// Name is that of a service.
type Name = types.NamespacedName

// Reason says why a component is not exposed, or the whole if Role is empty. One that is a Warning says that it is exposed in
// another way than was asked for, or is not served as it should be.
type Reason struct {
	Role            isvc.Role
	Reason, Message string
	Warning         bool
}

// Build makes the plan of a service.
func Build(in *Input) Plan {
	own := *in // settings become those of the strategy
	b := &builder{Input: &own}
	b.build()
	b.stand()
	return b.plan
}

type builder struct {
	*Input

	plan Plan
}

func (b *builder) say(r isvc.Role, reason, format string, args ...any) {
	b.add(Reason{Role: r, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func (b *builder) warn(r isvc.Role, reason, format string, args ...any) {
	b.add(Reason{Role: r, Reason: reason, Message: fmt.Sprintf(format, args...), Warning: true})
}

func (b *builder) add(said Reason) {
	if !slices.Contains(b.plan.Reasons, said) {
		b.plan.Reasons = append(b.plan.Reasons, said)
	}
}

func (b *builder) keep(slots ...Slot) {
	for _, s := range slots {
		if !slices.Contains(b.plan.Keep, s) {
			b.plan.Keep = append(b.plan.Keep, s)
		}
	}
}

func (b *builder) build() {
	if b.withheld() {
		return
	}
	entry, found := b.entry()
	if !found {
		b.keep(Slots...)
		b.say("", ReasonNoEntry, "there is neither a router nor an engine")
		return
	}
	b.plan.Strategy = b.strategy(entry)
	b.Settings = b.Settings.For(b.plan.Strategy)
	if !b.possible() {
		b.plan.Strategy = ""
		return
	}
	if entry == isvc.Engine && b.present(isvc.Decoder) {
		b.say(isvc.Engine, ReasonDecoderWithoutRouter, "requests go to the engine, which has to bring prompts to the decoder by itself")
	}
	b.expose(Entry, entry, b.Service.Name)
	if b.Settings.ComponentHosts {
		for _, r := range isvc.Roles {
			if r != entry && b.present(r) {
				b.expose(Slot(r), r, backend.Name(b.Service.Name, r))
			}
		}
	}
	b.fallback(entry)
	b.warnOfWorkers()
	if len(b.plan.Exposures) == 0 {
		b.plan.Strategy = ""
	}
}

// withheld reports whether nothing is to be exposed at all, and says why.
func (b *builder) withheld() bool {
	s := &b.Settings
	b.plan.Withheld = true
	switch {
	case b.Service.Deleting: // what is ours goes with it
		b.keep(Slots...)
	case b.SettingsErr != nil:
		b.plan.Withheld = false
		b.keep(Slots...)
		b.say("", ReasonInvalidConfiguration, "%s", strings.ReplaceAll(b.SettingsErr.Error(), "\n", "; "))
	case !s.Enabled:
		b.say("", ReasonDisabled, "routes are turned off for this service")
	case s.OMEActs:
		b.plan.Handed = true
		b.say("", ReasonOMEIngressEnabled, "OME makes routes for this service by itself: set its disableIngressCreation")
	case b.Service.Mode == isvc.VirtualDeployment:
		b.say("", ReasonVirtualDeployment, "the model is served elsewhere")
	case b.Service.ClusterLocal():
		b.say("", ReasonClusterLocal, "the service is for the cluster only")
	case s.Domain == "":
		b.plan.Withheld = false
		b.keep(Slots...)
		b.say("", ReasonNoDomain, "no domain is configured: set ingressDomain")
	default:
		b.plan.Withheld = false
		return false
	}
	return true
}

// possible reports whether objects of the strategy can be made, and says why not.
func (b *builder) possible() bool {
	switch s := b.plan.Strategy; {
	case b.Settings.Domain == "": // OME's is for HTTPRoutes only
		b.keep(Slots...)
		b.say("", ReasonNoDomain, "no domain is configured: set ingressDomain")
	case s == settings.HTTPRoute && len(b.Settings.Gateways) == 0:
		b.keep(Slots...)
		b.say("", ReasonNoGateway, "no Gateway is named: set omeIngressGateway")
	case s == settings.VirtualService && b.Settings.IstioOff:
		b.plan.Withheld = true
		b.say("", ReasonDisabled, "VirtualServices are turned off: see disableIstioVirtualHost")
	case s == settings.VirtualService && b.Settings.IstioGateway == "":
		b.keep(Slots...)
		b.say("", ReasonNoGateway, "no Gateway of Istio is named: set ingressGateway")
	case b.Unserved[s]:
		b.keep(Slots...)
		b.say("", ReasonAPIUnavailable, "the API server has no kind for strategy %s", s)
	case s == settings.Ingress && b.Settings.IngressClass != nil && ingressclass.Find(b.Classes, b.Settings.IngressClass) == nil:
		b.say("", ReasonIngressClassNotFound, "there is no IngressClass %s", *b.Settings.IngressClass)
		return true // a controller may answer to the name all the same
	default:
		return true
	}
	return false
}

// present reports whether a service has a component: by its specification, its status, or a Service that OME has made. The
// runtime may bring components that the specification does not name. One that is leaving still has all of that, and loses it
// at any moment: requests are to be elsewhere by then.
func (b *builder) present(r isvc.Role) bool {
	if b.Service.Components[r] != nil {
		return true
	}
	if b.Leaving[r] {
		return false
	}
	if b.Service.Reported[r] {
		return true
	}
	_, err := backend.Find(b.Services, b.Service, r)
	return err == nil
}

// entry returns the component that takes clients' requests.
func (b *builder) entry() (isvc.Role, bool) {
	for _, r := range []isvc.Role{isvc.Router, isvc.Engine} {
		if b.present(r) {
			return r, true
		}
	}
	return "", false
}

// mode infers how a component is run.
func (b *builder) mode(r isvc.Role) isvc.Mode {
	return b.Service.ComponentMode(r, isvc.Surroundings{Knative: b.Knative[r], Decoder: b.present(isvc.Decoder)})
}

// strategy returns what the configuration says, or what fits how the entry is run.
func (b *builder) strategy(entry isvc.Role) settings.Strategy {
	switch {
	case b.Settings.Strategy != settings.Auto:
		return b.Settings.Strategy
	case b.mode(entry) == isvc.Serverless:
		return settings.VirtualService
	case b.Settings.GatewayAPI:
		return settings.HTTPRoute
	}
	return settings.Ingress
}

func (b *builder) timeout(r isvc.Role) time.Duration {
	var own time.Duration
	if c := b.Service.Components[r]; c != nil {
		own = c.Timeout
	}
	return cmp.Or(own, b.Settings.Timeout)
}
