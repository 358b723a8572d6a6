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
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/hostname"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// Reasons of conditions and Events.
const (
	ReasonDisabled             = "Disabled"
	ReasonOMEIngressEnabled    = "OMEIngressEnabled"
	ReasonVirtualDeployment    = "VirtualDeployment"
	ReasonClusterLocal         = "ClusterLocal"
	ReasonInvalidConfiguration = "InvalidConfiguration"
	ReasonNoDomain             = "NoDomain"
	ReasonNoEntry              = "NoEntryComponent"
	ReasonServiceNotFound      = "ServiceNotFound"
	ReasonNameConflict         = "NameConflict"
	ReasonComponentNotReady    = "ComponentNotReady"
	ReasonInvalidHost          = "InvalidHost"
	ReasonHostNotAllowed       = "HostNotAllowed"
	ReasonNoGateway            = "NoGateway"
	ReasonDecoderWithoutRouter = "DecoderWithoutRouter"
)

// Input is all that a plan follows from.
type Input struct {
	Service     *isvc.Service
	Settings    settings.Settings
	SettingsErr error             // what is wrong with what is said of the service
	Services    []*corev1.Service // of its namespace: those that it controls, and that have names of its components
	Knative     map[isvc.Role]bool
	Exposed     map[isvc.Role]bool // components that have objects of ours already
}

// Plan is how a service is exposed.
type Plan struct {
	Strategy  settings.Strategy // never auto; empty if there is nothing to expose
	Exposures []Exposure        // those of the entry first
	Reasons   []Reason          // why something is not exposed, or not as one might expect
	Keep      []isvc.Role       // components whose objects stay as they are: what to have instead is not known now
}

// Exposure is one way in.
type Exposure struct {
	Role    isvc.Role
	Host    string
	Path    string // a prefix that ends in "/"; it is taken away before the backend sees it
	Backend backend.Service
	Timeout time.Duration     // 0: none
	Parents []settings.Parent // Gateways; empty where there are none
}

// Reason says why a component is not exposed, or the whole if Role is empty.
type Reason struct {
	Role            isvc.Role
	Reason, Message string
}

// Build makes the plan of a service.
func Build(in *Input) Plan {
	b := &builder{Input: in}
	b.build()
	return b.plan
}

type builder struct {
	*Input

	plan Plan
}

func (b *builder) say(r isvc.Role, reason, format string, args ...any) {
	b.plan.Reasons = append(b.plan.Reasons, Reason{Role: r, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func (b *builder) build() {
	if b.withheld() {
		return
	}
	entry, found := b.entry()
	if !found {
		b.plan.Keep = isvc.Roles
		b.say("", ReasonNoEntry, "there is neither a router nor an engine")
		return
	}
	if b.plan.Strategy = b.strategy(entry); b.plan.Strategy == settings.HTTPRoute && len(b.Settings.Gateways) == 0 {
		b.plan.Strategy = ""
		b.say("", ReasonNoGateway, "no Gateway is named: set omeIngressGateway")
		return
	}
	if entry == isvc.Engine && b.present(isvc.Decoder) {
		b.say(isvc.Engine, ReasonDecoderWithoutRouter, "requests go to the engine, which has to bring prompts to the decoder by itself")
	}
	b.expose(entry, b.Service.Name)
	if b.Settings.ComponentHosts {
		for _, r := range isvc.Roles {
			if r != entry && b.present(r) {
				b.expose(r, backend.Name(b.Service.Name, r))
			}
		}
	}
	if len(b.plan.Exposures) == 0 {
		b.plan.Strategy = ""
	}
}

// withheld reports whether nothing is to be exposed at all, and says why.
func (b *builder) withheld() bool {
	s := &b.Settings
	switch {
	case b.Service.Deleting: // what is ours goes with it
		b.plan.Keep = isvc.Roles
	case b.SettingsErr != nil:
		b.plan.Keep = isvc.Roles
		b.say("", ReasonInvalidConfiguration, "%s", strings.ReplaceAll(b.SettingsErr.Error(), "\n", "; "))
	case !s.Enabled:
		b.say("", ReasonDisabled, "routes are turned off for this service")
	case s.OMEActs:
		b.say("", ReasonOMEIngressEnabled, "OME makes routes for this service by itself: set its disableIngressCreation")
	case b.Service.Mode == isvc.VirtualDeployment:
		b.say("", ReasonVirtualDeployment, "the model is served elsewhere")
	case b.Service.ClusterLocal():
		b.say("", ReasonClusterLocal, "the service is for the cluster only")
	case s.Domain == "":
		b.say("", ReasonNoDomain, "no domain is configured: set ingressDomain")
	default:
		return false
	}
	return true
}

// present reports whether a service has a component: by its specification, its status, or a Service that OME has made. The
// runtime may bring components that the specification does not name.
func (b *builder) present(r isvc.Role) bool {
	if b.Service.Components[r] != nil || b.Service.Reported[r] {
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

// strategy returns what the configuration says, or what fits how the entry is run.
func (b *builder) strategy(entry isvc.Role) settings.Strategy {
	if b.Settings.Strategy != settings.Auto {
		return b.Settings.Strategy
	}
	mode := b.Service.ComponentMode(entry, isvc.Surroundings{Knative: b.Knative[entry], Decoder: b.present(isvc.Decoder)})
	switch {
	case mode == isvc.Serverless:
		return settings.VirtualService
	case b.Settings.GatewayAPI:
		return settings.HTTPRoute
	}
	return settings.Ingress
}

// expose adds the ways in to one component, which has that name in hosts and paths.
func (b *builder) expose(r isvc.Role, name string) {
	service, err := backend.Find(b.Services, b.Service, r)
	if reason, message := b.unavailable(r, err); reason != "" {
		b.plan.Keep = append(b.plan.Keep, r)
		b.say(r, reason, "%s", message)
		return
	}
	for _, w := range b.ways(r, name) {
		w.Role, w.Backend, w.Timeout = r, service, b.timeout(r)
		b.plan.Exposures = append(b.plan.Exposures, w)
	}
}

// unavailable says why a component cannot be exposed for now, given the error of finding its Service.
func (b *builder) unavailable(r isvc.Role, err error) (reason, message string) {
	switch {
	case errors.Is(err, backend.ErrForeign):
		return ReasonNameConflict, err.Error()
	case err != nil:
		return ReasonServiceNotFound, err.Error()
	case !b.Exposed[r] && !b.Service.Ready(r):
		return ReasonComponentNotReady, string(r) + " is not ready"
	}
	return "", ""
}

func (b *builder) timeout(r isvc.Role) time.Duration {
	if c := b.Service.Components[r]; c != nil && c.Timeout > 0 {
		return c.Timeout
	}
	return b.Settings.Timeout
}

// root is the path of a host of its own.
const root = "/"

// ways returns the hosts and paths of a component, sorted, each once.
func (b *builder) ways(r isvc.Role, name string) []Exposure {
	s := &b.Settings
	var all []Exposure
	add := func(host, path string, parents []settings.Parent) {
		switch err := hostname.Validate(host); {
		case err != nil:
			b.say(r, ReasonInvalidHost, "%s", err)
		case !s.Allows(host):
			b.say(r, ReasonHostNotAllowed, "host %s is not below a domain that namespace %s may use", host, b.Service.Namespace)
		default:
			all = with(all, Exposure{Host: host, Path: path, Parents: parents})
		}
	}
	for _, d := range b.domains() {
		host, path, err := b.place(name, d.domain)
		if err != nil {
			b.say(r, ReasonInvalidHost, "%s", err)
			continue
		}
		add(host, path, d.parents)
		if s.Path == nil {
			continue
		}
		if path, err = s.Path.Render(b.values(name, d.domain)); err != nil {
			b.say(r, ReasonInvalidHost, "%s", err)
			continue
		}
		add(d.domain, root+strings.Trim(path, root)+root, d.parents)
	}
	slices.SortFunc(all, func(x, y Exposure) int { return cmp.Or(cmp.Compare(x.Host, y.Host), cmp.Compare(x.Path, y.Path)) })
	return all
}

// with adds a way in. One that is there already has the Gateways of both.
func with(all []Exposure, more Exposure) []Exposure {
	i := slices.IndexFunc(all, func(e Exposure) bool { return e.Host == more.Host && e.Path == more.Path })
	if i < 0 {
		more.Parents = slices.Clone(more.Parents)
		return append(all, more)
	}
	for _, p := range more.Parents {
		if !slices.Contains(all[i].Parents, p) {
			all[i].Parents = append(all[i].Parents, p)
		}
	}
	return all
}

// domain is one of those below which a service has a host, and the Gateways that serve it.
type domain struct {
	domain  string
	parents []settings.Parent
}

// domains returns the domains of a service: its own, those of its Gateways, and the additional ones, which every Gateway
// serves.
func (b *builder) domains() []domain {
	s := &b.Settings
	var all []domain
	add := func(name string, parents ...settings.Parent) {
		i := slices.IndexFunc(all, func(d domain) bool { return d.domain == name })
		if i < 0 {
			i, all = len(all), append(all, domain{domain: name})
		}
		all[i].parents = append(all[i].parents, parents...)
	}
	if b.plan.Strategy != settings.HTTPRoute {
		for _, name := range append([]string{s.Domain}, s.AdditionalDomains...) {
			add(name)
		}
		return all
	}
	for _, p := range s.Gateways {
		add(p.Domain, p)
	}
	for _, name := range s.AdditionalDomains {
		add(name, s.Gateways...)
	}
	return all
}

func (b *builder) values(name, domain string) hostname.Values {
	s := b.Service
	return hostname.Values{Name: name, Namespace: s.Namespace, IngressDomain: domain, Annotations: s.Annotations, Labels: s.Labels}
}

// place returns where a component is below a domain: on a host of its own, or by a path on one that services share.
func (b *builder) place(name, domain string) (host, path string, err error) {
	if b.Settings.Subdomain {
		host, err = b.Settings.Host.Render(b.values(name, domain))
		return host, root, err //nolint:wrapcheck // it says all
	}
	host = domain
	if b.Settings.SharedHostPrefix != "" {
		host = b.Settings.SharedHostPrefix + "." + domain
	}
	return host, root + b.Service.Namespace + root + name + root, nil
}
