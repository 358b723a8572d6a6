package semantics

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

var atOurClass = Entrance{IngressClass: "ours"}

// class is IngressClass ours.
func class(controller string) string {
	return `{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: ours}, spec: {controller: ` + controller + `}}`
}

// ingress is an Ingress ns/name of the class, with annotations in braces and a specification of two spaces.
func ingress(name, annotations, spec string) string {
	if annotations == "" {
		annotations = "{}"
	}
	return `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: ns, name: ` + name + `, annotations: ` + annotations + `}
spec:
  ingressClassName: ours` + spec
}

// at is a path of an Ingress.
func at(kind, path, service string) string {
	return `{path: "` + path + `", pathType: ` + kind + `, backend: {service: {name: ` + service + `, port: {number: 80}}}}`
}

// onHost is the rules of an Ingress.
func onHost(host, paths string) string {
	return "\n  rules: [{host: \"" + host + "\", http: {paths: [" + paths + "]}}]"
}

// The table is the one of the Ingress concept in Kubernetes' documentation, for the controllers that keep to it.
func TestPathTypes(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, kind, path, give, want string }{
		{name: "prefix of all", kind: "Prefix", path: "/", give: "/any", want: "ns/s:80 /any"},
		{name: "exact", kind: "Exact", path: "/foo", give: "/foo", want: "ns/s:80 /foo"},
		{name: "another exact", kind: "Exact", path: "/foo", give: "/bar", want: "no route"},
		{name: "exact and a slash", kind: "Exact", path: "/foo", give: "/foo/", want: "no route"},
		{name: "exact without its slash", kind: "Exact", path: "/foo/", give: "/foo", want: "no route"},
		{name: "prefix", kind: "Prefix", path: "/foo", give: "/foo", want: "ns/s:80 /foo"},
		{name: "prefix and a slash", kind: "Prefix", path: "/foo", give: "/foo/", want: "ns/s:80 /foo/"},
		{name: "prefix with a slash", kind: "Prefix", path: "/foo/", give: "/foo/", want: "ns/s:80 /foo/"},
		{name: "prefix is of elements", kind: "Prefix", path: "/aaa/bb", give: "/aaa/bbb", want: "no route"},
		{name: "prefix, all of it", kind: "Prefix", path: "/aaa/bbb", give: "/aaa/bbb", want: "ns/s:80 /aaa/bbb"},
		{name: "prefix with a slash, without", kind: "Prefix", path: "/aaa/bbb/", give: "/aaa/bbb", want: "ns/s:80 /aaa/bbb"},
		{name: "prefix without, with a slash", kind: "Prefix", path: "/aaa/bbb", give: "/aaa/bbb/", want: "ns/s:80 /aaa/bbb/"},
		{name: "prefix and more", kind: "Prefix", path: "/aaa/bbb", give: "/aaa/bbb/ccc", want: "ns/s:80 /aaa/bbb/ccc"},
		{name: "prefix of letters", kind: "Prefix", path: "/aaa/bbb", give: "/aaa/bbbxyz", want: "no route"},
	}
	for _, tt := range tests {
		for _, controller := range []string{"haproxy.org/ingress-controller", "haproxy-ingress.github.io/controller"} {
			t.Run(tt.name+" "+controller, func(t *testing.T) {
				t.Parallel()
				w := world(t, class(controller), ingress("i", "", onHost("a.example.com", at(tt.kind, tt.path, "s"))))
				assert.Equal(t, tt.want, ask(t, w, get(atOurClass, "a.example.com"+tt.give)))
			})
		}
	}
}

// What the specification leaves open, or what a controller does in another way. The columns are those of the comment of the
// table of controllers.
func TestControllers(t *testing.T) {
	t.Parallel()
	const (
		nginx, org  = "k8s.io/ingress-nginx", "nginx.org/ingress-controller"
		traefik     = "traefik.io/ingress-controller"
		haproxy, hi = "haproxy.org/ingress-controller", "haproxy-ingress.github.io/controller"
	)
	root := at("Prefix", "/", "root")
	tests := []struct {
		name, paths, more, give string
		want                    map[string]string
	}{
		{
			name: "letters after a prefix", paths: at("Prefix", "/foo", "foo"), give: "/foobar",
			want: map[string]string{nginx: "no route", org: "ns/foo:80 /foobar", traefik: "ns/foo:80 /foobar", haproxy: "no route", hi: "no route"},
		},
		{
			name: "a prefix without its slash", paths: root + "," + at("Prefix", "/foo/", "foo"), give: "/foo",
			want: map[string]string{nginx: "redirected", org: "redirected", traefik: "ns/root:80 /foo", haproxy: "ns/foo:80 /foo", hi: "ns/foo:80 /foo"},
		},
		{
			name: "a prefix without its slash, and that exactly", paths: at("Exact", "/foo", "exact") + "," + at("Prefix", "/foo/", "foo"), give: "/foo",
			want: map[string]string{nginx: "ns/exact:80 /foo", org: "ns/exact:80 /foo", traefik: "ns/exact:80 /foo", haproxy: "ns/exact:80 /foo", hi: "ns/exact:80 /foo"},
		},
		{
			name: "a prefix without its slash, and that as another prefix", paths: at("Prefix", "/foo", "bare") + "," + at("Prefix", "/foo/", "foo"), give: "/foo",
			want: map[string]string{nginx: "ambiguous", org: "ns/bare:80 /foo", traefik: "ns/bare:80 /foo", haproxy: "ambiguous", hi: "ambiguous"},
		},
		{
			name: "the same path exactly and as a prefix", paths: at("Prefix", "/foo", "prefix") + "," + at("Exact", "/foo", "exact"), give: "/foo",
			want: map[string]string{nginx: "ns/exact:80 /foo", org: "ns/exact:80 /foo", traefik: "ns/prefix:80 /foo", haproxy: "ns/exact:80 /foo", hi: "ns/exact:80 /foo"},
		},
		{
			name: "below the same path", paths: at("Prefix", "/foo", "prefix") + "," + at("Exact", "/foo", "exact"), give: "/foo/x",
			want: map[string]string{nginx: "ns/prefix:80 /foo/x", org: "ns/prefix:80 /foo/x", traefik: "ns/prefix:80 /foo/x", haproxy: "ns/prefix:80 /foo/x", hi: "ns/prefix:80 /foo/x"},
		},
		{
			name: "the longest", paths: root + "," + at("Prefix", "/aaa", "three") + "," + at("Prefix", "/aaa/bbb", "six"), give: "/aaa/bbb",
			want: map[string]string{nginx: "ns/six:80 /aaa/bbb", org: "ns/six:80 /aaa/bbb", traefik: "ns/six:80 /aaa/bbb", haproxy: "ns/six:80 /aaa/bbb", hi: "ns/six:80 /aaa/bbb"},
		},
		{
			name: "another case", paths: at("ImplementationSpecific", "/foo", "foo"), give: "/Foo",
			want: map[string]string{nginx: "no route", org: "no route", traefik: "no route", haproxy: "no route", hi: "ns/foo:80 /Foo"},
		},
		{
			name: "as the controller likes, by letters", paths: at("ImplementationSpecific", "/foo", "foo"), give: "/foobar",
			want: map[string]string{nginx: "ns/foo:80 /foobar", org: "ns/foo:80 /foobar", traefik: "ns/foo:80 /foobar", haproxy: "ns/foo:80 /foobar", hi: "ns/foo:80 /foobar"},
		},
		{
			name: "a path of the wildcard's", paths: at("Prefix", "/foo", "foo"), more: ingress("wild", "", onHost("*.example.com", at("Prefix", "/", "wild"))), give: "/bar",
			want: map[string]string{nginx: "no route", org: "no route", traefik: "ns/wild:80 /bar", haproxy: "no route", hi: "ns/wild:80 /bar"},
		},
		{
			name: "a path of both hosts", paths: at("Prefix", "/foo", "foo"), more: ingress("wild", "", onHost("*.example.com", at("Prefix", "/", "wild"))), give: "/foo",
			want: map[string]string{nginx: "ns/foo:80 /foo", org: "ns/foo:80 /foo", traefik: "ns/foo:80 /foo", haproxy: "ns/foo:80 /foo", hi: "ns/foo:80 /foo"},
		},
		{
			name: "a longer path without a host", paths: at("Prefix", "/", "root"), more: ingress("any", "", onHost("", at("Prefix", "/0123456789/0123456789/0123456789", "any"))), give: "/0123456789/0123456789/0123456789",
			want: map[string]string{
				nginx: "ns/root:80 /0123456789/0123456789/0123456789", org: "ns/root:80 /0123456789/0123456789/0123456789",
				traefik: "ns/any:80 /0123456789/0123456789/0123456789",
				haproxy: "ns/root:80 /0123456789/0123456789/0123456789", hi: "ns/root:80 /0123456789/0123456789/0123456789",
			},
		},
		{
			name: "a path of two Ingresses", paths: root, more: ingress("j", "", onHost("a.example.com", at("Prefix", "/", "j"))), give: "/",
			want: map[string]string{nginx: "ns/root:80 /", org: "ambiguous", traefik: "ambiguous", haproxy: "ambiguous", hi: "ambiguous"},
		},
		{
			name: "a host of two Ingresses", paths: at("Prefix", "/foo", "foo"), more: ingress("j", "", onHost("a.example.com", at("Prefix", "/", "j"))), give: "/",
			want: map[string]string{nginx: "ns/j:80 /", org: "ambiguous", traefik: "ns/j:80 /", haproxy: "ns/j:80 /", hi: "ns/j:80 /"},
		},
		{
			name: "a default backend", paths: at("Prefix", "/foo", "foo"), more: ingress("d", "", "\n  defaultBackend: {service: {name: d, port: {number: 80}}}"), give: "/bar",
			want: map[string]string{nginx: "no route", org: "unsupported", traefik: "ns/d:80 /bar", haproxy: "ns/d:80 /bar", hi: "ns/d:80 /bar"},
		},
		{
			name: "an annotation", paths: root, more: ingress("j", "{nginx.ingress.kubernetes.io/canary: 'true', nginx.org/path-regex: exact, traefik.ingress.kubernetes.io/router.priority: '1', haproxy.org/route-acl: x, haproxy-ingress.github.io/path-type: regex}", onHost("a.example.com", at("Prefix", "/j", "j"))), give: "/",
			want: map[string]string{nginx: "unsupported", org: "unsupported", traefik: "unsupported", haproxy: "unsupported", hi: "unsupported"},
		},
	}
	for _, tt := range tests {
		for controller, want := range tt.want {
			t.Run(tt.name+" "+controller, func(t *testing.T) {
				t.Parallel()
				w := world(t, class(controller), ingress("i", "", onHost("a.example.com", tt.paths)), tt.more)
				assert.Equal(t, want, ask(t, w, get(atOurClass, "a.example.com"+tt.give)))
			})
		}
	}
}

func TestIngressClasses(t *testing.T) {
	t.Parallel()
	const (
		rest     = `, spec: {rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}}]}}`
		kind     = `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: ns, name: i`
		isDef    = `, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}}, spec: {controller: haproxy.org/ingress-controller}}`
		ours     = `{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: ours`
		other    = `{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: other`
		none     = kind + `}` + rest
		justOurs = ours + `}, spec: {controller: haproxy.org/ingress-controller}}`
	)
	named := func(class string) string {
		return kind + `}, spec: {ingressClassName: ` + class + `, rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}}]}}`
	}
	annotated := func(class string) string {
		return kind + `, annotations: {kubernetes.io/ingress.class: ` + class + `}}` + rest
	}
	tests := []struct {
		name string
		give []string
		want string
	}{
		{name: "by name", give: []string{justOurs, named("ours")}, want: "ns/s:80 /"},
		{name: "by another name", give: []string{justOurs, named("other")}, want: "no route"},
		{name: "by annotation", give: []string{justOurs, annotated("ours")}, want: "ns/s:80 /"},
		{name: "by another annotation", give: []string{ours + isDef, annotated("other")}, want: "no route"},
		{name: "by neither", give: []string{justOurs, none}, want: "no route"},
		{name: "by default", give: []string{ours + isDef, none}, want: "ns/s:80 /"},
		{name: "by another's default", give: []string{justOurs, other + isDef, none}, want: "no route"},
		{name: "by two defaults", give: []string{ours + isDef, other + isDef, none}, want: "ambiguous"},
		{name: "by name beside two defaults", give: []string{ours + isDef, other + isDef, named("ours")}, want: "ns/s:80 /"},
		{name: "a controller that is not known", give: []string{ours + `}, spec: {controller: example.com/x}}`, named("ours")}, want: "unsupported"},
		{name: "parameters", give: []string{ours + `}, spec: {controller: haproxy.org/ingress-controller, parameters: {kind: a, name: b}}}`, named("ours")}, want: "unsupported"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, ask(t, world(t, tt.give...), get(atOurClass, "a.example.com/")))
		})
	}
}

func TestIngressHosts(t *testing.T) {
	t.Parallel()
	tests := []struct{ host, give, want string }{
		{host: "a.example.com", give: "a.example.com/", want: "ns/s:80 /"},
		{host: "a.example.com", give: "b.example.com/", want: "no route"},
		{host: "*.example.com", give: "a.example.com/", want: "ns/s:80 /"},
		{host: "*.example.com", give: "a.b.example.com/", want: "no route"},
		{host: "*.example.com", give: "example.com/", want: "no route"},
		{host: "", give: "a.example.com/", want: "ns/s:80 /"},
	}
	for _, tt := range tests {
		for controller := range controllers {
			t.Run(tt.host+" "+tt.give+controller, func(t *testing.T) {
				t.Parallel()
				w := world(t, class(controller), ingress("i", "", onHost(tt.host, at("Prefix", "/", "s"))))
				assert.Equal(t, tt.want, ask(t, w, get(atOurClass, tt.give)))
			})
		}
	}
}

func TestIngressesThatSayMore(t *testing.T) {
	t.Parallel()
	const haproxy, nginx = "haproxy.org/ingress-controller", "k8s.io/ingress-nginx"
	tests := []struct {
		name, controller, spec, more, want string
	}{
		{name: "a resource", controller: haproxy, spec: onHost("", `{path: /, pathType: Prefix, backend: {resource: {kind: a, name: b}}}`), want: "unsupported"},
		{name: "nothing", controller: haproxy, spec: onHost("", `{path: /, pathType: Prefix, backend: {}}`), want: "invalid"},
		{name: "the name of a port", controller: haproxy, spec: onHost("", `{path: /, pathType: Prefix, backend: {service: {name: s, port: {name: http}}}}`), want: "unsupported"},
		{name: "no type", controller: haproxy, spec: onHost("", `{path: /, backend: {service: {name: s, port: {number: 80}}}}`), want: "invalid"},
		{name: "no path", controller: haproxy, spec: onHost("", at("ImplementationSpecific", "", "s")), want: "unsupported"},
		{name: "a host without paths", controller: haproxy, spec: "\n  rules: [{host: a.example.com}]", want: "unsupported"},
		{name: "what another host says", controller: haproxy, spec: onHost("", at("Prefix", "/", "s")), more: ingress("j", "{haproxy.org/route-acl: x}", "\n  rules: [{host: b.example.com}]"), want: "ns/s:80 /"},
		{name: "a default beside rules", controller: haproxy, spec: onHost("a.example.com", at("Prefix", "/x", "s")) + "\n  defaultBackend: {service: {name: d, port: {number: 80}}}", want: "unsupported"},
		{name: "a default beside the rules of another host", controller: haproxy, spec: onHost("b.example.com", at("Prefix", "/", "s")) + "\n  defaultBackend: {service: {name: d, port: {number: 80}}}", want: "no route"},
		{name: "a default beside a rule that fits", controller: haproxy, spec: onHost("a.example.com", at("Prefix", "/", "s")) + "\n  defaultBackend: {service: {name: d, port: {number: 80}}}", want: "ns/s:80 /"},
		{name: "two defaults", controller: haproxy, spec: "\n  defaultBackend: {service: {name: d, port: {number: 80}}}", more: ingress("j", "", "\n  defaultBackend: {service: {name: e, port: {number: 80}}}"), want: "ambiguous"},
		{name: "a default with a rewrite", controller: haproxy, spec: onHost("b.example.com", at("Prefix", "/", "s")), more: ingress("j", "{haproxy.org/path-rewrite: /}", "\n  defaultBackend: {service: {name: e, port: {number: 80}}}"), want: "unsupported"},
		{name: "a default for a host of nobody", controller: nginx, spec: "\n  defaultBackend: {service: {name: d, port: {number: 80}}}", want: "ns/d:80 /"},
		{name: "a default that is a resource", controller: nginx, spec: "\n  defaultBackend: {resource: {kind: a, name: b}}", want: "unsupported"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world(t, class(tt.controller), ingress("i", "", tt.spec), tt.more)
			assert.Equal(t, tt.want, ask(t, w, get(atOurClass, "a.example.com/")))
		})
	}
}
