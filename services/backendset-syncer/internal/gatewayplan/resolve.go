package gatewayplan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan/routing"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/observe"
	"fairlead.dev/services/backendset-syncer/internal/plan"
	"fairlead.dev/services/backendset-syncer/internal/policy"
)

// Controller names of GatewayClasses.
const (
	ControllerName = "fairlead.dev/oci-load-balancer"
	// OKEName is the name of oke-gateway-api for application load balancers.
	OKEName = "oke-gateway-api.gemyago.github.io/oke-alb-gateway-controller"
)

// Planner reads a snapshot of the cluster.
type Planner struct {
	caches        informers.Caches
	observer      *observe.Observer
	configuration policy.Source
	names         []string // controller names
	fallback      *routing.Fallback
}

// Options configure a Planner.
type Options struct {
	// OKE accepts GatewayClasses of oke-gateway-api, too.
	OKE bool
	// Responder is the Service whose ports 404 and 500 answer requests without a backend. Empty: nothing does.
	Responder cache.ObjectName
}

// Ports of the Service of the responder: the status codes of its answers.
const (
	portNotFound   = 404
	portNoBackends = 500
)

// newFallback returns the backends for requests without one, or nil.
func (o *Options) newFallback() *routing.Fallback {
	if o.Responder.Name == "" {
		return nil
	}
	port := func(n int32) routing.Backend {
		return routing.Backend{Kind: kindService, Namespace: o.Responder.Namespace, Name: o.Responder.Name, Port: n}
	}
	return &routing.Fallback{NotFound: port(portNotFound), NoBackends: port(portNoBackends)}
}

// NewPlanner returns a Planner.
func NewPlanner(c informers.Caches, configuration policy.Source, o Options) *Planner {
	names := []string{ControllerName}
	if o.OKE {
		names = append(names, OKEName)
	}
	return &Planner{caches: c, observer: observe.New(c), configuration: configuration, names: names, fallback: o.newFallback()}
}

// IsReady reports whether all kinds are known without which a plan would take objects for deleted.
func (p *Planner) IsReady() bool {
	return p.caches.GatewayClasses.Listed() && p.caches.Gateways.Listed() && p.caches.Routes.Listed() && p.caches.Services.Listed() &&
		p.caches.EndpointSlices.Listed() &&
		p.caches.Namespaces.Listed()
}

// ResolvedGateway is a Gateway with its load balancer.
type ResolvedGateway struct {
	*gatewayv1.Gateway

	Controller string // controllerName of its class
	Parameters Parameters
	Limits     policy.GatewayLimits
}

func (a *ResolvedGateway) gatewayName() types.NamespacedName {
	return types.NamespacedName{Namespace: a.Namespace, Name: a.Name}
}

// Resolution has all Gateways of the program.
type Resolution struct {
	Balancers map[string][]*ResolvedGateway // by OCID, the oldest first
	// Unprogrammable are the program's Gateways without a load balancer that they may program.
	Unprogrammable []UnprogrammableGateway
	// Unknown are Gateways, as namespace/name, whose class does not exist, or is one of oke-gateway-api without the alias: they may be of
	// this program.
	Unknown map[string]bool

	document *policy.Document // nil without a configuration
	invalid  string           // the problem of the last text of the configuration
	bindings []*v1alpha1.BackendSetBinding
}

// NewInput returns the input of a plan of a load balancer with the configuration and the bindings that the Gateways were resolved with: a
// plan must not take its limits from one document, and its pod ranges from another.
func (r *Resolution) NewInput(loadBalancer string) *Input {
	return &Input{LoadBalancer: loadBalancer, Document: r.document, Bindings: r.bindings}
}

// UnprogrammableGateway is a Gateway that cannot be programmed.
type UnprogrammableGateway struct {
	*gatewayv1.Gateway

	Controller string
	Problem    plan.Problem
}

// isFrozen reports whether a Gateway that was programmed stays as it is, because it cannot be resolved.
func (r *Resolution) isFrozen(name string) bool {
	return r.Unknown[name] ||
		slices.ContainsFunc(r.Unprogrammable, func(u UnprogrammableGateway) bool { return u.Namespace+"/"+u.Name == name })
}

// IsOwnController reports whether a controllerName is one of the program's.
func (p *Planner) IsOwnController(c gatewayv1.GatewayController) bool {
	return slices.Contains(p.names, string(c))
}

// ListClasses returns the GatewayClasses of the program, each with the problem of its parameters.
func (p *Planner) ListClasses() map[*gatewayv1.GatewayClass]plan.Problem {
	problems := map[*gatewayv1.GatewayClass]plan.Problem{}
	for _, c := range informers.ListAll[gatewayv1.GatewayClass](p.caches.GatewayClasses) {
		if !p.IsOwnController(c.Spec.ControllerName) {
			continue
		}
		_, err := p.classParameters(c)
		problems[c] = plan.Problem{}
		if err != nil {
			problems[c] = plan.Problem{Reason: string(gatewayv1.GatewayClassReasonInvalidParameters), Message: err.Error()}
		}
	}
	return problems
}

// ResolveGateways returns the Gateways of the program. It reads the configuration and the bindings once, for itself and for the plans of
// the load balancers.
func (p *Planner) ResolveGateways() *Resolution {
	r := &Resolution{
		Balancers: map[string][]*ResolvedGateway{}, Unknown: map[string]bool{},
		bindings: informers.ListAll[v1alpha1.BackendSetBinding](p.caches.Bindings),
	}
	r.document, r.invalid = p.configuration()
	for _, g := range informers.ListAll[gatewayv1.Gateway](p.caches.Gateways) {
		class := informers.FindObject[gatewayv1.GatewayClass](p.caches.GatewayClasses,
			cache.ObjectName{Name: string(g.Spec.GatewayClassName)})
		switch {
		case class == nil:
			r.Unknown[g.Namespace+"/"+g.Name] = true
		case p.IsOwnController(class.Spec.ControllerName) && g.DeletionTimestamp == nil:
			p.attachGateway(r, g, class)
		case class.Spec.ControllerName == OKEName && !p.IsOwnController(OKEName):
			r.Unknown[g.Namespace+"/"+g.Name] = true // the alias was turned off: this must not delete what was adopted
		}
	}
	for _, gateways := range r.Balancers {
		slices.SortFunc(gateways, ownership.CompareAge)
	}
	slices.SortFunc(r.Unprogrammable, func(a, b UnprogrammableGateway) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return r
}

// attachGateway adds a Gateway of the program.
func (p *Planner) attachGateway(r *Resolution, g *gatewayv1.Gateway, class *gatewayv1.GatewayClass) {
	controller := string(class.Spec.ControllerName)
	refuse := func(reason, message string) {
		r.Unprogrammable = append(r.Unprogrammable,
			UnprogrammableGateway{Gateway: g, Controller: controller, Problem: plan.Problem{Reason: reason, Message: message}})
	}
	parameters, err := p.readParameters(g, class)
	if err != nil {
		refuse(string(gatewayv1.GatewayReasonInvalidParameters), err.Error())
		return
	}
	limits, err := r.document.PermitGateway(g.Namespace, parameters.LoadBalancerID)
	if err != nil {
		if r.invalid != "" {
			err = fmt.Errorf("%w (%s)", err, r.invalid)
		}
		refuse(reasonNotAllowed, err.Error())
		return
	}
	if problem := unsupportedFields(&g.Spec); problem.IsSet() {
		refuse(problem.Reason, problem.Message)
		return
	}
	r.Balancers[parameters.LoadBalancerID] = append(r.Balancers[parameters.LoadBalancerID],
		&ResolvedGateway{Gateway: g, Controller: controller, Parameters: parameters, Limits: limits})
}

// unsupportedFields returns the problem of a field that a load balancer cannot obey.
func unsupportedFields(s *gatewayv1.GatewaySpec) plan.Problem {
	switch {
	case len(s.Addresses) > 0:
		return plan.NewProblem(gatewayv1.GatewayReasonUnsupportedAddress, "spec.addresses: the addresses are those of the load balancer")
	case s.DefaultScope != "" && s.DefaultScope != gatewayv1.GatewayDefaultScopeNone:
		return plan.Problem{Reason: reasonUnsupported, Message: "spec.defaultScope: routes must name their Gateways"}
	case s.TLS == nil:
		return plan.Problem{}
	case s.TLS.Backend != nil:
		return plan.Problem{Reason: reasonUnsupported, Message: "spec.tls.backend: the program does not configure TLS to backends"}
	}
	if f := s.TLS.Frontend; f != nil &&
		(f.Default.Validation != nil || slices.ContainsFunc(f.PerPort,
			func(p gatewayv1.TLSPortConfig) bool { return p.TLS.Validation != nil })) {
		return plan.Problem{
			Reason:  reasonUnsupported,
			Message: "spec.tls.frontend: the program does not let load balancers verify clients, and they would admit all",
		}
	}
	return plan.Problem{}
}

// readParameters returns the parameters of a Gateway and its class.
func (p *Planner) readParameters(g *gatewayv1.Gateway, class *gatewayv1.GatewayClass) (Parameters, error) {
	parameters, err := p.classParameters(class)
	if err != nil {
		return parameters, fmt.Errorf("parametersRef of GatewayClass %s: %w", class.Name, err)
	}
	if i := g.Spec.Infrastructure; i != nil {
		if len(i.Labels) > 0 || len(i.Annotations) > 0 {
			return parameters, fmt.Errorf("spec.infrastructure: load balancers get no labels and annotations")
		}
		if r := i.ParametersRef; r != nil {
			own, err := p.readObject(string(r.Group), string(r.Kind), cache.ObjectName{Namespace: g.Namespace, Name: r.Name})
			if err != nil {
				return parameters, fmt.Errorf("spec.infrastructure.parametersRef: %w", err)
			}
			parameters = own.withDefaults(parameters)
		}
	}
	if parameters.LoadBalancerID == "" {
		return parameters, fmt.Errorf(
			"no parameters name a load balancer: set spec.infrastructure.parametersRef to a ConfigMap with %s, or to a GatewayConfig",
			keyLoadBalancer)
	}
	return parameters, nil
}

func (p *Planner) classParameters(class *gatewayv1.GatewayClass) (Parameters, error) {
	r := class.Spec.ParametersRef
	if r == nil {
		return Parameters{}, nil
	}
	return p.readObject(string(r.Group), string(r.Kind), cache.ObjectName{Namespace: string(ptr.Deref(r.Namespace, "")), Name: r.Name})
}

// readObject reads an object with parameters.
func (p *Planner) readObject(group, kind string, name cache.ObjectName) (Parameters, error) {
	switch {
	case group == "" && kind == "ConfigMap":
		c := informers.FindObject[corev1.ConfigMap](p.caches.ConfigMaps, name)
		if c == nil || c.Labels[lbrecord.Label] != lbrecord.LabelParameters {
			return Parameters{}, fmt.Errorf("no ConfigMap %s with the label %s=%s", name, lbrecord.Label, lbrecord.LabelParameters)
		}
		parameters, err := parseParameters(c.Data)
		if err != nil {
			return Parameters{}, fmt.Errorf("ConfigMap %s: %w", name, err)
		}
		return parameters, nil
	case group == informers.ConfigGroup && kind == "GatewayConfig":
		c := informers.FindObject[informers.GatewayConfig](p.caches.GatewayConfigs, name)
		if c == nil {
			return Parameters{}, fmt.Errorf("no GatewayConfig %s", name)
		}
		return parseParameters(map[string]string{keyLoadBalancer: c.Spec.LoadBalancerID})
	}
	return Parameters{}, fmt.Errorf("%.60s %.60s: parameters are a ConfigMap or a GatewayConfig of %s", group, kind, informers.ConfigGroup)
}

// podFilter returns the function that reports whether an address may be that of a pod.
func podFilter(document *policy.Document) func(netip.Addr) bool {
	if document == nil {
		return func(netip.Addr) bool { return false }
	}
	return document.IsPod
}
