package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	openyurt "fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/hostname"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/istiogateway"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// maxRoutes is the maximum number of routes for one service. It allows eight domains at eight Gateways, with a path on each.
const maxRoutes = 128

// exposeComponent adds the exposures of one component. name is the name of the component in hosts and paths.
func (b *builder) exposeComponent(slot Slot, r isvc.Role, name string) {
	routes := b.collectExposures(slot, r, name)
	if n := len(b.plan.Exposures) + len(routes); n > maxRoutes {
		b.freezeSlots(slot)
		b.addReason(r, ReasonLimitExceeded, "the domains and Gateways of the service make %d routes: at most %d are allowed", n, maxRoutes)
		return
	}
	routes = b.removeClaimed(slot, r, routes)
	for i := range routes {
		c := routes[i].Claim()
		if _, found := b.slotByClaim[c]; !found {
			b.slotByClaim[c] = slot
			b.plan.WantedClaims = append(b.plan.WantedClaims, WantedClaim{Claim: c, Role: r})
		}
	}
	to, reason, message := b.findBackend(slot, r)
	if reason != "" {
		b.freezeSlots(slot)
		b.addReason(r, reason, "%s", message)
		return
	}
	b.warnOfNoPods(r, to)
	for _, e := range routes {
		e.Slot, e.Role, e.Backend, e.Timeout = slot, r, to, b.requestTimeout(r)
		b.checkProtocol(&e)
		b.plan.Exposures = append(b.plan.Exposures, e)
	}
}

// removeClaimed removes exposures that another slot of the service claims: a template without the name renders the same host for all
// components.
func (b *builder) removeClaimed(slot Slot, r isvc.Role, routes []Exposure) []Exposure {
	return slices.DeleteFunc(routes, func(e Exposure) bool {
		owner, found := b.slotByClaim[e.Claim()]
		conflicts := found && owner != slot
		if conflicts {
			b.addReason(r, ReasonHostConflict, "%s belongs to another component of this service", e.Claim())
		}
		return conflicts
	})
}

// findBackend returns the destination of requests for a component, or the reason why none is available yet.
func (b *builder) findBackend(slot Slot, r isvc.Role) (to Backend, reason, message string) {
	service, err := backend.FindService(b.Services, b.Service, r)
	to.Service = service
	if b.Knative[r] && b.plan.Strategy == settings.VirtualService {
		to.Knative = backend.ServiceName(b.Service.Name, r)
		err = nil // a Knative Service replaces OME's Service
	}
	switch {
	case err != nil:
		return to, missingReason(err), err.Error()
	case !b.isExposable(slot, r):
		return to, ReasonComponentNotReady, "the " + string(r) + " is not ready"
	case slot == Entry && b.Settings.Pool != nil:
		to.Pool, reason, message = b.choosePool()
	}
	return to, reason, message
}

// missingReason returns the reason for a component without a Service.
func missingReason(err error) string {
	if errors.Is(err, backend.ErrForeign) {
		return ReasonNameConflict
	}
	return ReasonServiceNotFound
}

// isExposable reports whether a slot may route to a component: the component is ready, or the slot already routes to it, or the
// components that the slot routes to no longer exist.
func (b *builder) isExposable(slot Slot, r isvc.Role) bool {
	live := b.Live[slot]
	return b.Service.IsReady(r) || slices.Contains(live, r) || len(live) > 0 && !slices.ContainsFunc(live, b.hasComponent)
}

// root is the path of a service with its own host.
const root = "/"

// collectExposures returns the exposures of a component, one for each host, path and Gateway, sorted.
func (b *builder) collectExposures(slot Slot, r isvc.Role, name string) []Exposure {
	c := &collector{builder: b, slot: slot, role: r, seen: map[identity]bool{}}
	for _, d := range b.serviceDomains() {
		c.addHost(name, d)
		if b.Settings.Path != nil {
			c.addPath(name, d)
		}
		if slot == Entry && b.Settings.ModelHeader != "" {
			c.addModel(name, d)
		}
	}
	if len(c.exposures) == 0 && c.unsupported { // keep routes of the previous strategy until the data plane supports this one
		b.freezeSlots(slot)
	}
	slices.SortFunc(c.exposures, func(x, y Exposure) int {
		return cmp.Or(cmp.Compare(x.Host, y.Host), cmp.Compare(x.Path, y.Path), cmp.Compare(x.Model.Name, y.Model.Name),
			compareRefs(x.Gateway, y.Gateway))
	})
	return c.exposures
}

func compareRefs(x, y settings.GatewayRef) int {
	return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Listener, y.Listener))
}

// collector collects the exposures of one component.
type collector struct {
	*builder

	slot      Slot
	role      isvc.Role
	exposures []Exposure
	seen      map[identity]bool

	unsupported bool // an exposure is omitted because the data plane cannot serve it
}

// identity distinguishes the exposures of one component.
type identity struct {
	claim   ownership.Claim
	gateway settings.GatewayRef
}

// tenantChoice records which parts of an exposure a tenant chose.
type tenantChoice struct{ host, path bool }

// addHost adds the host of a component below a domain, or its path on the shared host.
func (c *collector) addHost(name string, d domain) {
	tenant := &c.Settings.FromTenant
	if !c.Settings.Subdomain {
		path := root + c.Service.Namespace + root + name + root
		c.addHostPath(c.sharedHost(d.name), path, d, tenantChoice{host: d.fromTenant || tenant.SharedHost})
		return
	}
	host, err := c.Settings.Host.Render(c.templateValues(backend.TruncateName(name), d.name)) // OME truncates the name
	if err != nil {
		c.addInvalid(ReasonInvalidHost, "domainTemplate: ", err)
		return
	}
	c.addHostPath(host, root, d, tenantChoice{host: d.fromTenant || tenant.Host})
}

// addHostPath adds a host and path, if the host is valid.
func (c *collector) addHostPath(host, path string, d domain, by tenantChoice) {
	if err := hostname.Validate(host); err != nil {
		c.addInvalid(ReasonInvalidHost, "", err)
		return
	}
	c.addExposure(Exposure{Host: host, Path: path}, d, by)
}

// addPath adds the path of a component on the domain itself.
func (c *collector) addPath(name string, d domain) {
	path, err := c.renderPath(name, d.name)
	if err != nil {
		c.addInvalid(ReasonInvalidConfiguration, "pathTemplate: ", err)
		return
	}
	c.addExposure(Exposure{Host: d.name, Path: path}, d, tenantChoice{host: d.fromTenant, path: c.Settings.FromTenant.Path})
}

// addModel adds the model of the service on the shared host.
func (c *collector) addModel(name string, d domain) {
	model, err := c.renderModel(name, d.name)
	if err != nil {
		c.addInvalid(ReasonInvalidConfiguration, "modelNameTemplate: ", err)
		return
	}
	choice := tenantChoice{host: d.fromTenant || c.Settings.FromTenant.SharedHost}
	c.addExposure(Exposure{Host: c.sharedHost(d.name), Path: root, Model: model}, d, choice)
}

// addInvalid adds the reason why an exposure cannot be computed, and keeps existing objects.
func (c *collector) addInvalid(reason, key string, err error) {
	c.freezeSlots(c.slot)
	c.addReason(c.role, reason, "%s%s", key, err)
}

// addExposure adds an exposure at each of the Gateways of a domain, or the reason why it must not exist.
func (c *collector) addExposure(e Exposure, d domain, by tenantChoice) {
	if !c.checkAllowed(&e, by) {
		return
	}
	e.Unordered = c.plan.Strategy == settings.VirtualService && e.Model.Header != "" // Istio orders routes of one host by age
	if c.plan.Strategy != settings.HTTPRoute {
		c.addUnique(e)
		return
	}
	for _, p := range d.parents {
		e.Gateway = p.GatewayRef
		c.addUnique(e)
	}
}

// checkAllowed reports whether the service may have a host and path, and adds the reason if not.
func (c *collector) checkAllowed(e *Exposure, by tenantChoice) bool {
	s := &c.Settings
	switch {
	case s.ClusterLocal(e.Host):
		c.addReason(c.role, ReasonClusterLocal, "host %s is inside the cluster domain", e.Host)
	case (by.host || s.Restricted) && !s.Domains.Contain(e.Host):
		c.addReason(c.role, ReasonHostNotAllowed,
			"host %s is outside the domains of namespace %s (%s): an administrator can add it to allowedDomains", e.Host,
			c.Service.Namespace, cmp.Or(strings.Join(s.Domains, ", "), "none"))
	case by.path && ownership.FirstElement(e.Path) != c.Service.Namespace:
		c.addReason(c.role, ReasonPathNotAllowed, "path %s does not begin with /%s/: only an administrator can configure other paths",
			e.Path, c.Service.Namespace)
	case e.Model != Model{} && c.plan.Strategy == settings.Ingress:
		c.addReason(c.role, ReasonHeaderMatchUnsupported, "an Ingress cannot select models by header %s: use HTTPRoutes", e.Model.Header)
	default:
		return true
	}
	return false
}

// addUnique adds an exposure, unless it is a duplicate or the data plane cannot serve it.
func (c *collector) addUnique(e Exposure) {
	id := identity{claim: e.Claim(), gateway: e.Gateway}
	if c.seen[id] {
		return
	}
	c.seen[id] = true
	var rewrites bool
	switch c.plan.Strategy {
	case settings.HTTPRoute:
		rewrites = c.attachGateway(&e)
	case settings.Ingress:
		var err error
		if rewrites, err = c.attachIngress(&e); err != nil { // the host must not be served without its TLS settings
			c.addInvalid(ReasonInvalidConfiguration, "tlsSecretName: ", err)
			return
		}
	default:
		rewrites = true
		c.attachIstio(&e)
	}
	if e.Path != root && !rewrites {
		c.addReason(c.role, ReasonPathRewriteUnsupported, "%s cannot rewrite path %s on host %s: %s", c.dataPlane(&e), e.Path, e.Host,
			c.pathRemedy())
		c.unsupported = true
		return
	}
	if e.Path != root && !c.mayRewritePath(&e) {
		c.unsupported = true
		return
	}
	if t := c.requestTimeout(c.role); t > 0 && c.plan.Strategy == settings.HTTPRoute && !e.Timeouts {
		c.addWarning(c.role, ReasonTimeoutUnsupported, "%s: the timeout of %s has no effect", c.noTimeoutReason(e.Gateway), t)
	}
	c.exposures = append(c.exposures, e)
}

// pathRemedy explains how to expose a service without a path.
func (c *collector) pathRemedy() string {
	if c.Settings.Subdomain {
		return "remove pathTemplate"
	}
	return "set perISVCSubdomain: true"
}

// noTimeoutReason explains why routes at a Gateway have no timeouts.
func (c *collector) noTimeoutReason(g settings.GatewayRef) string {
	if c.Settings.NoRouteTimeouts {
		return "disableHTTPRouteTimeout is set"
	}
	return fmt.Sprintf("Gateway %s does not support timeouts", g)
}

// dataPlane names the Gateway or IngressClass of an exposure.
func (c *collector) dataPlane(e *Exposure) string {
	switch {
	case c.plan.Strategy == settings.HTTPRoute:
		return "Gateway " + e.Gateway.String()
	case c.Settings.IngressClass != nil:
		return "IngressClass " + *c.Settings.IngressClass
	}
	return "the default IngressClass"
}

// attachGateway predicts whether a Gateway accepts an exposure, and reports whether it can rewrite paths.
func (c *collector) attachGateway(e *Exposure) (rewrites bool) {
	g := c.Gateways[types.NamespacedName{Namespace: e.Gateway.Namespace, Name: e.Gateway.Name}]
	e.Attachment = g.Attach(gatewayapi.Route{Namespace: c.Service.Namespace, Labels: c.Labels, Host: e.Host, Listener: e.Gateway.Listener})
	e.ParentKind = g.Kind()
	e.OwnListener = g.Names(e.Host)
	e.Timeouts = !c.Settings.NoRouteTimeouts && g.Supports(gatewayapi.FeatureRequestTimeout)
	e.URL = c.clientURL(e)
	return g.Supports(gatewayapi.FeaturePathRewrite)
}

// attachIstio predicts whether the Istio Gateway serves an exposure. Sidecars serve every host.
func (c *collector) attachIstio(e *Exposure) {
	namespace, name := istiogateway.ParseName(c.Settings.IstioGateway, c.Service.Namespace)
	if c.Istio != nil && c.Settings.IstioGateway != istiogateway.Mesh {
		e.Attachment = c.Istio[types.NamespacedName{Namespace: namespace, Name: name}].PredictAttachment(c.Service.Namespace, e.Host)
	}
	e.URL = c.clientURL(e)
}

// clientURL returns the URL of an exposure for clients. The configured scheme and port win over those of the listener: TLS can end before
// the Gateway.
func (c *collector) clientURL(e *Exposure) string {
	a, s := e.Attachment, &c.Settings
	switch {
	case s.SchemeSet:
		a.Scheme, a.Port = s.URLScheme, s.URLPort
	case s.URLPort != 0:
		a.Port = s.URLPort
	}
	a.Scheme = cmp.Or(a.Scheme, s.URLScheme)
	return a.URL(e.Host, e.Path)
}

// attachIngress sets the class, TLS Secret and URL of an Ingress, and reports whether its controller can rewrite paths.
func (c *collector) attachIngress(e *Exposure) (rewrites bool, err error) {
	e.Class = ingressclass.ResolveClass(c.Classes, c.Settings.IngressClass)
	if e.TLSSecret, err = c.tlsSecretName(e.Host); err != nil {
		return false, err
	}
	if e.TLSSecret != "" {
		e.Attachment.Scheme = "https"
	}
	e.URL = c.clientURL(e)
	if reads := e.Class.MayLackGroup(); e.Path != root && reads != "" {
		c.addWarning(c.role, ReasonPathRewriteUnsupported,
			"%s does not say whether its controller reads %s: if it does not, requests for path %s get 404. Annotate the IngressClass "+
				"with %s: %s, or none",
			c.dataPlane(e), reads, e.Path, openyurt.AnnotationServed, reads)
	}
	return e.Class.StripsPrefixes(), nil
}

// labelSolver marks the Ingress that cert-manager creates while it proves that a host is its own. Its path is no less exact as an
// expression.
const labelSolver = "acme.cert-manager.io/http01-solver"

// mayRewritePath reports whether an Ingress may rewrite its path. If the rewrite changes how the controller matches all paths of the host,
// no other Ingress may use the host. An existing route stays: otherwise any Ingress for the host could remove it.
func (c *collector) mayRewritePath(e *Exposure) bool {
	if c.plan.Strategy != settings.Ingress || c.Foreign == nil || !e.Class.Controller.RewritesHost() {
		return true
	}
	c.plan.RewriteHosts = append(c.plan.RewriteHosts, e.Host)
	for _, other := range c.Foreign(e.Host) {
		if other.GetLabels()[labelSolver] != "" || ingressclass.ClassOfIngress(c.Classes, other).Identity() != e.Class.Identity() {
			continue
		}
		const text = "a rewrite of path %s makes %s match all paths of host %s as regular expressions, and Ingress %s/%s has paths there: "
		args := []any{e.Path, e.Class.Controller.Name, e.Host, other.GetNamespace(), other.GetName()}
		if c.Routed[e.Claim()] {
			c.addWarning(c.role, ReasonPathRewriteUnsupported, text+"move one of them to another host", args...)
			return true
		}
		c.addReason(c.role, ReasonPathRewriteUnsupported, text+c.pathRemedy()+", or choose another host", args...)
		return false
	}
	return true
}
