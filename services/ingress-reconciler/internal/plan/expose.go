package plan

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/gateway"
	"fairlead.dev/services/ingress-reconciler/internal/hostname"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// expose adds the ways in to one component, which has that name in hosts and paths.
func (b *builder) expose(slot Slot, r isvc.Role, name string) {
	ways := b.distinct(r, b.ways(slot, r, name))
	for i := range ways {
		if c := ways[i].Claim(); !slices.Contains(b.plan.Claims, c) {
			b.plan.Claims = append(b.plan.Claims, c)
		}
	}
	to, reason, message := b.backend(slot, r)
	if reason != "" {
		b.keep(slot)
		b.say(r, reason, "%s", message)
		return
	}
	for _, e := range ways {
		e.Slot, e.Role, e.Backend, e.Timeout = slot, r, to, b.timeout(r)
		if winner, taken := b.Taken[e.Claim()]; taken {
			b.say(r, ReasonHostConflict, "%s is that of %s, which is older", e.Claim(), winner)
			continue
		}
		b.plan.Exposures = append(b.plan.Exposures, e)
	}
}

// distinct leaves out what another slot of the service has: a template without the name makes one host of all components.
func (b *builder) distinct(r isvc.Role, ways []Exposure) []Exposure {
	others := slices.Clone(b.plan.Claims)
	return slices.DeleteFunc(ways, func(e Exposure) bool {
		taken := slices.Contains(others, e.Claim())
		if taken {
			b.say(r, ReasonHostConflict, "%s is that of another component of this service", e.Claim())
		}
		return taken
	})
}

// Claim returns what the service stands for with a way in.
func (e *Exposure) Claim() Claim { return Claim{Host: e.Host, Path: e.Path, Model: e.Model} }

// backend returns where requests for a component go, or why they cannot for now.
func (b *builder) backend(slot Slot, r isvc.Role) (to Backend, reason, message string) {
	service, err := backend.Find(b.Services, b.Service, r)
	to.Service = service
	if b.Knative[r] && b.plan.Strategy == settings.VirtualService {
		to.Knative = backend.Name(b.Service.Name, r)
		err = nil // Knative's own Service is all that there is
	}
	switch {
	case err != nil:
		return to, missing(err), err.Error()
	case !b.exposable(slot, r):
		return to, ReasonComponentNotReady, string(r) + " is not ready"
	case slot == Entry && b.Settings.Pool != nil:
		to.Pool, reason, message = b.pool()
	}
	return to, reason, message
}

// missing returns the reason for a component without a Service.
func missing(err error) string {
	if errors.Is(err, backend.ErrForeign) {
		return ReasonNameConflict
	}
	return ReasonServiceNotFound
}

// exposable reports whether a slot may point at a component: it is ready, or was there before, or what was there before has
// gone.
func (b *builder) exposable(slot Slot, r isvc.Role) bool {
	live := b.Live[slot]
	return b.Service.Ready(r) || slices.Contains(live, r) || len(live) > 0 && !slices.ContainsFunc(live, b.present)
}

// root is the path of a host of its own.
const root = "/"

// ways returns the hosts and paths of a component, sorted, each once for each Gateway.
func (b *builder) ways(slot Slot, r isvc.Role, name string) []Exposure {
	w := &ways{builder: b, slot: slot, role: r}
	for _, d := range b.domains() {
		host, path, err := b.place(name, d.domain)
		if err == nil {
			err = hostname.Validate(host)
		}
		w.add(Exposure{Host: host, Path: path}, d, invalid{ReasonInvalidHost, "", err})
		if b.Settings.Path != nil {
			path, err := b.path(name, d.domain)
			w.add(Exposure{Host: d.domain, Path: path}, d, invalid{ReasonInvalidConfiguration, "pathTemplate: ", err})
		}
		if slot == Entry && b.Settings.ModelHeader != "" {
			model, err := b.model(name, d.domain)
			w.add(Exposure{Host: b.shared(d.domain), Path: root, Model: model}, d, invalid{ReasonInvalidConfiguration, "modelNameTemplate: ", err})
		}
	}
	if len(w.all) == 0 && w.unsupported { // what is there serves until it can be
		b.keep(slot)
	}
	slices.SortFunc(w.all, func(x, y Exposure) int {
		return cmp.Or(cmp.Compare(x.Host, y.Host), cmp.Compare(x.Path, y.Path), cmp.Compare(x.Model.Name, y.Model.Name), compareRefs(x.Gateway, y.Gateway))
	})
	return w.all
}

// invalid is why there is no such way in; err is nil if there is.
type invalid struct {
	reason, what string
	err          error
}

func compareRefs(x, y settings.GatewayRef) int {
	return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Listener, y.Listener))
}

// ways collects the ways in to one component.
type ways struct {
	*builder

	slot Slot
	role isvc.Role
	all  []Exposure

	unsupported bool // one is left out because what serves it cannot do it
}

// add adds a way in by each of the Gateways of a domain, or says why there is none. One whose name is wrong leaves what is
// there as it is.
func (w *ways) add(e Exposure, d domain, not invalid) {
	switch {
	case not.err != nil:
		w.keep(w.slot)
		w.say(w.role, not.reason, "%s%s", not.what, not.err)
		return
	case w.Settings.ClusterLocal(e.Host):
		w.say(w.role, ReasonClusterLocal, "host %s is the cluster's own", e.Host)
		return
	case !w.Settings.Allows(e.Host):
		w.say(w.role, ReasonHostNotAllowed, "host %s is not below a domain that namespace %s may use", e.Host, w.Service.Namespace)
		return
	case e.Model != Model{} && w.plan.Strategy == settings.Ingress:
		w.say(w.role, ReasonHeaderMatchUnsupported, "an Ingress cannot tell models apart by header %s", e.Model.Header)
		return
	}
	if w.plan.Strategy != settings.HTTPRoute {
		w.addOne(e)
		return
	}
	for _, p := range d.parents {
		e.Gateway = p.GatewayRef
		w.addOne(e)
	}
}

// addOne adds a way in that is not there yet.
func (w *ways) addOne(e Exposure) {
	if slices.ContainsFunc(w.all, func(x Exposure) bool { return x.Claim() == e.Claim() && x.Gateway == e.Gateway }) {
		return
	}
	var rewrites bool
	switch w.plan.Strategy {
	case settings.HTTPRoute:
		rewrites = w.attach(&e)
	case settings.Ingress:
		var err error
		if rewrites, err = w.ingress(&e); err != nil { // what ended TLS must not do without
			w.keep(w.slot)
			w.say(w.role, ReasonInvalidConfiguration, "tlsSecretName: %s", err)
			return
		}
	default:
		rewrites = true
		e.URL = w.Settings.URLScheme + "://" + e.Host + e.Path
	}
	if e.Path != root && !rewrites {
		w.say(w.role, ReasonPathRewriteUnsupported, "%s%s: what serves it cannot take a path away; give the service a host of its own", e.Host, e.Path)
		w.unsupported = true
		return
	}
	if t := w.timeout(w.role); t > 0 && w.plan.Strategy == settings.HTTPRoute && !e.Timeouts {
		w.say(w.role, ReasonTimeoutUnsupported, "Gateway %s knows no timeouts: %s is left out", e.Gateway, t)
	}
	w.all = append(w.all, e)
}

// attach foresees what a Gateway makes of a way in, and reports whether it can rewrite paths.
func (w *ways) attach(e *Exposure) (rewrites bool) {
	g := w.Gateways[types.NamespacedName{Namespace: e.Gateway.Namespace, Name: e.Gateway.Name}]
	e.Attachment = g.Attach(gateway.Route{Namespace: w.Service.Namespace, Labels: w.Labels, Host: e.Host, Listener: e.Gateway.Listener})
	e.Timeouts = g.Supports(gateway.FeatureRequestTimeout)
	if e.Attachment.Scheme == "" {
		e.URL = w.Settings.URLScheme + "://" + e.Host + e.Path
	} else {
		e.URL = e.Attachment.URL(e.Host, e.Path)
	}
	return g.Supports(gateway.FeaturePathRewrite)
}

// ingress takes what an Ingress says beyond hosts and paths, and reports whether who reads it can rewrite paths.
func (w *ways) ingress(e *Exposure) (rewrites bool, err error) {
	if class := ingressclass.Find(w.Classes, w.Settings.IngressClass); class != nil {
		e.Controller = ingressclass.Known(class.Spec.Controller)
	}
	scheme := w.Settings.URLScheme
	if e.TLSSecret, err = w.secret(e.Host); err != nil {
		return false, err
	}
	if e.TLSSecret != "" {
		scheme = "https"
	}
	e.URL = scheme + "://" + e.Host + e.Path
	return e.Controller.Rewrites(), nil
}

// secret returns the Secret with the certificate of a host, empty for none. Of those that an issuer fills each host has its
// own: of two Ingresses that want one of other hosts, cert-manager serves the first.
func (w *ways) secret(host string) (name string, err error) {
	tls := &w.Settings.TLS
	switch {
	case tls.Secret != nil:
		if name, err = tls.Secret.Render(w.values(w.Service.Name, w.Settings.Domain)); err != nil {
			return "", err
		}
	case tls.Issuer != "":
		name = host + "-tls"
	default:
		return "", nil
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", fmt.Errorf("%q: %s", name, problems[0])
	}
	return name, nil
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
		host, err = b.Settings.Host.Render(b.values(backend.Truncate(name), domain)) // as OME does
		return host, root, err
	}
	return b.shared(domain), root + b.Service.Namespace + root + name + root, nil
}

// segments are what a path may be: all kinds take them, and none reads more into them.
var segments = regexp.MustCompile(`^/([A-Za-z0-9_~-][A-Za-z0-9._~-]*/)+$`)

// path returns the path of a component on the domain itself.
func (b *builder) path(name, domain string) (string, error) {
	text, err := b.Settings.Path.Render(b.values(name, domain))
	if err != nil {
		return "", err
	}
	path := root + strings.Trim(text, root) + root
	if !segments.MatchString(path) {
		return "", fmt.Errorf("path %q: want elements of letters, digits and ._~- that begin with no dot", text)
	}
	return path, nil
}

// model returns what a component's model is called on a host that models share.
func (b *builder) model(name, domain string) (Model, error) {
	text, err := b.Settings.ModelName.Render(b.values(name, domain))
	if err != nil {
		return Model{}, err
	}
	if !visible.MatchString(text) {
		return Model{}, fmt.Errorf("name %q: want visible characters alone", text)
	}
	return Model{Header: b.Settings.ModelHeader, Name: text}, nil
}

// visible is what the value of a header may be without anybody changing it on its way.
var visible = regexp.MustCompile(`^[!-~]+$`)

// shared returns the host that services share below a domain.
func (b *builder) shared(domain string) string {
	if b.Settings.SharedHostPrefix == "" {
		return domain
	}
	return b.Settings.SharedHostPrefix + "." + domain
}
