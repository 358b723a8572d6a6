package semantics

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// What controllers of Ingresses make of paths, by spec.controller of the class.
//
//	controller                         Prefix /a gets  /ab   /a for "/a/"   which path wins               rewrites
//	k8s.io/ingress-nginx                               no    redirected     as nginx does                 rewrite-target
//	  with an expression on the host                   yes   no             the longest that is written
//	nginx.org/ingress-controller                       yes   redirected     as nginx does                 rewrites
//	traefik.io/ingress-controller                      yes   no             the longest rule with host    Middlewares
//	haproxy.org/ingress-controller                     no    yes            Exact, then the longest       path-rewrite
//	haproxy-ingress.github.io/controller               no    yes            Exact, then the longest       rewrite-target
//
// nginx takes an exact location before the longest of the others, and sends a client from "/a" to "/a/" if there is only the
// latter. The controllers of nginx and haproxy.org know only the paths of the most specific host; haproxy-ingress goes on to
// less specific ones; for Traefik they are all one list. Of nginx.org, without mergeable Ingresses, the oldest Ingress has the
// host to itself. Of two Ingresses with one path, ingress-nginx has the older, and others are ErrAmbiguous.
//
// All is as the controllers are by default: Traefik without strictPrefixMatching, haproxy-ingress without strict-host. Entry
// points, TLS and redirects to it are not modelled: a request has come in the right way. Timeouts and limits of annotations are
// between two reads of a connection and not of a request, so an answer has none.
var controllers = map[string]*controller{
	"k8s.io/ingress-nginx": {
		prefixes: []string{prefixIngressNginx}, modelled: []string{annotationUseRegex, annotationNginxTarget},
		inert: []string{
			prefixIngressNginx + "backend-protocol", prefixIngressNginx + "client-body-buffer-size",
			prefixIngressNginx + "force-ssl-redirect", prefixIngressNginx + "proxy-body-size",
			prefixIngressNginx + "proxy-buffering", prefixIngressNginx + "proxy-connect-timeout",
			prefixIngressNginx + "proxy-http-version", prefixIngressNginx + "proxy-read-timeout",
			prefixIngressNginx + "proxy-request-buffering", prefixIngressNginx + "proxy-send-timeout",
			prefixIngressNginx + "ssl-redirect",
		},
		choose: chooseIngressNginx, rewrite: rewriteIngressNginx, defaults: defaultsOfNoHost,
	},
	"nginx.org/ingress-controller": {
		prefixes: []string{prefixNginxOrg, "nginx.com/"}, modelled: []string{annotationNginxRewrites},
		inert: []string{
			prefixNginxOrg + "client-max-body-size", prefixNginxOrg + "proxy-buffering",
			prefixNginxOrg + "proxy-connect-timeout", prefixNginxOrg + "proxy-read-timeout",
			prefixNginxOrg + "proxy-send-timeout", prefixNginxOrg + "redirect-to-https",
		},
		choose: chooseNginxOrg, rewrite: rewriteNginxOrg, defaults: defaultsUnknown,
	},
	"traefik.io/ingress-controller": {
		prefixes: []string{prefixTraefik}, modelled: []string{annotationTraefikMiddlewares},
		inert: []string{
			prefixTraefik + "router.entrypoints", prefixTraefik + "router.tls", prefixTraefik + "router.tls.certresolver",
		},
		choose: chooseTraefik, rewrite: rewriteTraefik, defaults: defaultsOfAll,
	},
	"haproxy.org/ingress-controller": {
		prefixes: []string{prefixHAProxyOrg}, modelled: []string{annotationPathRewrite},
		inert: []string{
			prefixHAProxyOrg + "ssl-redirect", prefixHAProxyOrg + "timeout-connect",
			prefixHAProxyOrg + "timeout-server", prefixHAProxyOrg + "timeout-tunnel",
		},
		choose: chooseHAProxyOrg, rewrite: rewriteHAProxyOrg, defaults: defaultsOfAll,
	},
	"haproxy-ingress.github.io/controller": {
		prefixes: []string{prefixHAProxyIngress, "ingress.kubernetes.io/"}, modelled: []string{annotationHAProxyTarget},
		inert: []string{
			prefixHAProxyIngress + "ssl-redirect", prefixHAProxyIngress + "timeout-connect",
			prefixHAProxyIngress + "timeout-server", prefixHAProxyIngress + "timeout-tunnel",
		},
		choose: chooseHAProxyIngress, rewrite: rewriteHAProxyIngress, defaults: defaultsOfAll,
	},
}

// Prefixes of annotations, and the annotations that say how a path is matched and rewritten.
const (
	prefixIngressNginx   = "nginx.ingress.kubernetes.io/"
	prefixNginxOrg       = "nginx.org/"
	prefixTraefik        = "traefik.ingress.kubernetes.io/"
	prefixHAProxyOrg     = "haproxy.org/"
	prefixHAProxyIngress = "haproxy-ingress.github.io/"

	annotationUseRegex           = prefixIngressNginx + "use-regex"
	annotationNginxTarget        = prefixIngressNginx + "rewrite-target"
	annotationNginxRewrites      = prefixNginxOrg + "rewrites"
	annotationTraefikMiddlewares = prefixTraefik + "router.middlewares"
	annotationPathRewrite        = prefixHAProxyOrg + "path-rewrite"
	annotationHAProxyTarget      = prefixHAProxyIngress + "rewrite-target"
)

// controller is how one kind of controller reads Ingresses.
type controller struct {
	prefixes []string // of all annotations that it reads
	modelled []string
	inert    []string // annotations that change neither the backend nor the path

	// choose returns the location that takes a path, of those for the host; nil if none does.
	choose func(all []*location, path string) (*location, error)
	// rewrite changes the path; nil if the controller cannot.
	rewrite  func(w *World, l *location, a *answer) error
	defaults defaults
}

// defaults is what becomes of the default backend of an Ingress without rules.
type defaults int

const (
	defaultsUnknown  defaults = iota
	defaultsOfAll             // it gets what no path takes
	defaultsOfNoHost          // it gets hosts that no rule has
)

// checkAnnotations refuses annotations of the controller that say more than is known here.
func (c *controller) checkAnnotations(all []*location) error {
	for _, l := range all {
		for _, name := range sortedKeys(l.ingress.Annotations) {
			if c.reads(name) && !slices.Contains(c.modelled, name) && !slices.Contains(c.inert, name) {
				return fmt.Errorf("%s: annotation %s: %w", identity("Ingress", l.ingress), name, ErrUnsupported)
			}
		}
	}
	return nil
}

func (c *controller) reads(annotation string) bool {
	return slices.ContainsFunc(c.prefixes, func(p string) bool { return strings.HasPrefix(annotation, p) })
}

// annotated reports whether an Ingress has annotations that could change its answers.
func (c *controller) annotated(i *networkingv1.Ingress) bool {
	for name := range i.Annotations {
		if c.reads(name) && !slices.Contains(c.inert, name) {
			return true
		}
	}
	return false
}

// only returns the first of locations in an order. That another one has the same place in it is an error.
func only(all []*location, order func(a, b *location) int) (*location, error) {
	if len(all) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	first := slices.MinFunc(all, order)
	for _, l := range all {
		if l != first && order(first, l) == 0 {
			return nil, fmt.Errorf("path %s of %s and path %s of %s: %w",
				first.path, identity("Ingress", first.ingress), l.path, identity("Ingress", l.ingress), ErrAmbiguous)
		}
	}
	return first, nil
}
