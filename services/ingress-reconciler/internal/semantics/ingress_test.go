package semantics

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
)

var atOurClass = Entrance{IngressClass: "ours"}

// class returns IngressClass ours.
func class(controller string) string {
	return `{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: ours}, spec: {controller: ` + controller + `}}`
}

// ingress returns Ingress ns/name of class ours. annotations is a YAML map in braces, and spec is indented by two spaces.
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

// at returns a path of an Ingress.
func at(kind, path, service string) string {
	return `{path: "` + path + `", pathType: ` + kind + `, backend: {service: {name: ` + service + `, port: {number: 80}}}}`
}

// onHost returns the rules of an Ingress.
func onHost(host, paths string) string {
	return "\n  rules: [{host: \"" + host + "\", http: {paths: [" + paths + "]}}]"
}

// TestControllers tests behavior that the specification leaves open, and differences between controllers.
func TestControllers(t *testing.T) {
	t.Parallel()
	const nginx, traefik = "k8s.io/ingress-nginx", "traefik.io/ingress-controller"
	root := at("Prefix", "/", "root")
	const long = "/0123456789/0123456789/0123456789"
	tests := []struct {
		name, paths, more, give string
		nginx, traefik          string
	}{
		{name: "prefix of all", paths: root, give: "/any", nginx: "ns/root:80 /any", traefik: "ns/root:80 /any"},
		{name: "exact", paths: at("Exact", "/foo", "foo"), give: "/foo", nginx: "ns/foo:80 /foo", traefik: "ns/foo:80 /foo"},
		{name: "exact and a slash", paths: at("Exact", "/foo", "foo"), give: "/foo/", nginx: "no route", traefik: "no route"},
		{name: "exact without its slash", paths: at("Exact", "/foo/", "foo"), give: "/foo", nginx: "no route", traefik: "no route"},
		{name: "prefix", paths: at("Prefix", "/foo", "foo"), give: "/foo", nginx: "ns/foo:80 /foo", traefik: "ns/foo:80 /foo"},
		{
			name: "prefix and a slash", paths: at("Prefix", "/foo", "foo"), give: "/foo/", nginx: "ns/foo:80 /foo/",
			traefik: "ns/foo:80 /foo/",
		},
		{name: "characters after a prefix", paths: at("Prefix", "/foo", "foo"), give: "/foobar", nginx: "no route", traefik: "ambiguous"},
		{
			name: "a prefix without its slash", paths: root + "," + at("Prefix", "/foo/", "foo"), give: "/foo", nginx: "ambiguous",
			traefik: "ambiguous",
		},
		{
			name: "a prefix without its slash, and that exactly", paths: at("Exact", "/foo", "exact") + "," + at("Prefix", "/foo/", "foo"),
			give: "/foo", nginx: "ambiguous", traefik: "ambiguous",
		},
		{
			name: "the same path exactly and as a prefix", paths: at("Prefix", "/foo", "prefix") + "," + at("Exact", "/foo", "exact"),
			give: "/foo", nginx: "ambiguous", traefik: "ns/prefix:80 /foo",
		},
		{
			name: "an exact path and a shorter prefix", paths: at("Prefix", "/foo", "prefix") + "," + at("Exact", "/foo/x", "exact"),
			give: "/foo/x", nginx: "ambiguous", traefik: "ns/prefix:80 /foo/x",
		},
		{
			name: "below the same path", paths: at("Prefix", "/foo", "prefix") + "," + at("Exact", "/foo", "exact"), give: "/foo/x",
			nginx: "ns/prefix:80 /foo/x", traefik: "ns/prefix:80 /foo/x",
		},
		{
			name: "the longest", paths: root + "," + at("Prefix", "/aaa", "three") + "," + at("Prefix", "/aaa/bbb", "six"),
			give: "/aaa/bbb", nginx: "ns/six:80 /aaa/bbb", traefik: "ns/six:80 /aaa/bbb",
		},
		{name: "another case", paths: at("ImplementationSpecific", "/foo", "foo"), give: "/Foo", nginx: "no route", traefik: "no route"},
		{
			name: "as the controller likes", paths: at("ImplementationSpecific", "/foo", "foo"), give: "/foobar", nginx: "no route",
			traefik: "ambiguous",
		},
		{
			name: "a path of the wildcard's", paths: at("Prefix", "/foo", "foo"), more: ingress("wild", "", onHost("*.example.com", root)),
			give: "/bar", nginx: "ambiguous", traefik: "ns/root:80 /bar",
		},
		{
			name: "a path of both hosts", paths: at("Prefix", "/foo", "foo"), more: ingress("wild", "", onHost("*.example.com", root)),
			give: "/foo", nginx: "ns/foo:80 /foo", traefik: "ns/foo:80 /foo",
		},
		{
			name: "a longer path without a host", paths: root, more: ingress("any", "", onHost("", at("Prefix", long, "any"))), give: long,
			nginx: "ambiguous", traefik: "ns/any:80 " + long,
		},
		{
			name: "a path of two Ingresses", paths: root, more: ingress("j", "", onHost("a.example.com", at("Prefix", "/", "j"))),
			give: "/", nginx: "ambiguous", traefik: "ambiguous",
		},
		{
			name: "a path of two Ingresses that agree", paths: root, more: ingress("j", "", onHost("a.example.com", root)), give: "/",
			nginx: "ns/root:80 /", traefik: "ns/root:80 /",
		},
		{
			name: "a host of two Ingresses", paths: at("Prefix", "/foo", "foo"), more: ingress("j", "", onHost("a.example.com", root)),
			give: "/", nginx: "ns/root:80 /", traefik: "ns/root:80 /",
		},
		{
			name: "a default backend", paths: at("Prefix", "/foo", "foo"),
			more: ingress("d", "", "\n  defaultBackend: {service: {name: d, port: {number: 80}}}"), give: "/bar", nginx: "no route",
			traefik: "ns/d:80 /bar",
		},
		{
			name: "an annotation", paths: root,
			more: ingress("j",
				"{nginx.ingress.kubernetes.io/canary: 'true', traefik.ingress.kubernetes.io/router.pathmatcher: PathRegexp}",
				onHost("a.example.com", at("Prefix", "/j", "j"))),
			give: "/", nginx: "not modeled", traefik: "not modeled",
		},
		{
			name: "a priority", paths: at("Prefix", "/foo/bar", "foo"),
			more: ingress("j", "{traefik.ingress.kubernetes.io/router.priority: '1000'}", onHost("", root)), give: "/foo/bar",
			nginx: "ns/foo:80 /foo/bar", traefik: "ns/root:80 /foo/bar",
		},
		{
			name: "a priority of no number", paths: root,
			more: ingress("j", "{traefik.ingress.kubernetes.io/router.priority: high}", onHost("a.example.com", at("Prefix", "/j", "j"))),
			give: "/j", nginx: "ns/j:80 /j", traefik: "invalid",
		},
	}
	for _, tt := range tests {
		for controller, want := range map[string]string{nginx: tt.nginx, traefik: tt.traefik} {
			t.Run(tt.name+" "+controller, func(t *testing.T) {
				t.Parallel()
				f := world(t, class(controller), ingress("i", "", onHost("a.example.com", tt.paths)), tt.more)
				assert.Equal(t, want, ask(t, f, get(atOurClass, "a.example.com"+tt.give)))
			})
		}
	}
}

// For each known controller, the answer is modeled, or the result is ErrNotModeled.
func TestControllersThatAreNotModeled(t *testing.T) {
	t.Parallel()
	for _, c := range ingressclass.Controllers() {
		f := world(t,
			class(strings.TrimSuffix(c.SpecControllers[0], "/")+map[bool]string{true: "/x"}[strings.HasSuffix(c.SpecControllers[0], "/")]),
			ingress("i", "", onHost("", at("Prefix", "/", "s"))))
		want := "not modeled"
		if c == &ingressclass.IngressNGINX || c == &ingressclass.Traefik {
			want = "ns/s:80 /"
		}
		assert.Equal(t, want, ask(t, f, get(atOurClass, "a.example.com/")), c.Name)
	}
}

func TestIngressClasses(t *testing.T) {
	t.Parallel()
	const (
		rest  = `, spec: {rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}}]}}`
		kind  = `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: ns, name: i`
		isDef = `, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}}, spec: {controller: ` +
			`traefik.io/ingress-controller}}`
		ours     = `{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: ours`
		other    = `{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: other`
		none     = kind + `}` + rest
		justOurs = ours + `}, spec: {controller: traefik.io/ingress-controller}}`
	)
	named := func(class string) string {
		return kind + `}, spec: {ingressClassName: ` + class +
			`, rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}}]}}`
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
		{
			name: "by two defaults, of which the API server takes the first by name", give: []string{ours + isDef, other + isDef, none},
			want: "no route",
		},
		{name: "by name beside two defaults", give: []string{ours + isDef, other + isDef, named("ours")}, want: "ns/s:80 /"},
		{
			name: "a controller that is not known", give: []string{ours + `}, spec: {controller: example.com/x}}`, named("ours")},
			want: "not modeled",
		},
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
		for _, controller := range []string{"k8s.io/ingress-nginx", "traefik.io/ingress-controller"} {
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
	const traefik, nginx = "traefik.io/ingress-controller", "k8s.io/ingress-nginx"
	tests := []struct {
		name, controller, spec, more, want string
	}{
		{
			name: "a resource", controller: traefik,
			spec: onHost("", `{path: /, pathType: Prefix, backend: {resource: {kind: a, name: b}}}`), want: "not modeled",
		},
		{name: "nothing", controller: traefik, spec: onHost("", `{path: /, pathType: Prefix, backend: {}}`), want: "invalid"},
		{
			name: "the name of a port", controller: traefik,
			spec: onHost("", `{path: /, pathType: Prefix, backend: {service: {name: s, port: {name: http}}}}`), want: "not modeled",
		},
		{
			name: "no type", controller: traefik, spec: onHost("", `{path: /, backend: {service: {name: s, port: {number: 80}}}}`),
			want: "invalid",
		},
		{name: "no path", controller: traefik, spec: onHost("", at("ImplementationSpecific", "", "s")), want: "not modeled"},
		{name: "a host without paths", controller: traefik, spec: "\n  rules: [{host: a.example.com}]", want: "not modeled"},
		{
			name: "what another host says", controller: traefik, spec: onHost("", at("Prefix", "/", "s")),
			more: ingress("j", "{traefik.ingress.kubernetes.io/router.pathmatcher: Path}", "\n  rules: [{host: b.example.com}]"),
			want: "ns/s:80 /",
		},
		{
			name: "a default beside rules", controller: traefik,
			spec: onHost("a.example.com", at("Prefix", "/x", "s")) + "\n  defaultBackend: {service: {name: d, port: {number: 80}}}",
			want: "not modeled",
		},
		{
			name: "a default beside the rules of another host", controller: traefik,
			spec: onHost("b.example.com", at("Prefix", "/", "s")) + "\n  defaultBackend: {service: {name: d, port: {number: 80}}}",
			want: "no route",
		},
		{
			name: "a default beside a rule that fits", controller: traefik,
			spec: onHost("a.example.com", at("Prefix", "/", "s")) + "\n  defaultBackend: {service: {name: d, port: {number: 80}}}",
			want: "ns/s:80 /",
		},
		{
			name: "two defaults", controller: traefik, spec: "\n  defaultBackend: {service: {name: d, port: {number: 80}}}",
			more: ingress("j", "", "\n  defaultBackend: {service: {name: e, port: {number: 80}}}"), want: "ambiguous",
		},
		{
			name: "a default with a rewrite", controller: traefik, spec: onHost("b.example.com", at("Prefix", "/", "s")),
			more: ingress("j", "{traefik.ingress.kubernetes.io/router.middlewares: a@file}",
				"\n  defaultBackend: {service: {name: e, port: {number: 80}}}"),
			want: "not modeled",
		},
		{
			name: "a default for a host of nobody", controller: nginx,
			spec: "\n  defaultBackend: {service: {name: d, port: {number: 80}}}", want: "ns/d:80 /",
		},
		{
			name: "a default that is a resource", controller: nginx, spec: "\n  defaultBackend: {resource: {kind: a, name: b}}",
			want: "not modeled",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := world(t, class(tt.controller), ingress("i", "", tt.spec), tt.more)
			assert.Equal(t, tt.want, ask(t, w, get(atOurClass, "a.example.com/")))
		})
	}
}

// One Ingress with a regular expression makes all paths of its host expressions with ingress-nginx, Exact ones too.
func TestExpressionsChangeTheirHost(t *testing.T) {
	t.Parallel()
	const annotations = `{nginx.ingress.kubernetes.io/use-regex: "true", nginx.ingress.kubernetes.io/rewrite-target: /$2}`
	portal := ingress("portal", "",
		onHost("a.example.com",
			at("Exact", "/login", "portal")+","+at("Exact", "/models/chat", "portal")+","+at("Prefix", "/Docs", "docs")))
	ours := ingress("ours", annotations, onHost("a.example.com", at("ImplementationSpecific", "/models/chat(/|$)(.*)", "chat")))
	tests := []struct{ path, alone, beside string }{
		{"/login", "ns/portal:80 /login", "ns/portal:80 /login"},
		{"/login/deeper", "no route", "ns/portal:80 /login/deeper"},
		{"/loginX", "no route", "ns/portal:80 /loginX"},
		{"/LOGIN", "no route", "ns/portal:80 /LOGIN"},
		{"/docs/x", "no route", "ns/docs:80 /docs/x"},
		{"/models/chat", "ns/portal:80 /models/chat", "ns/chat:80 /"},
		{"/models/chat/v1/models", "no route", "ns/chat:80 /v1/models"},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.alone, ask(t, world(t, class("k8s.io/ingress-nginx"), portal), get(atOurClass, "a.example.com"+tt.path)),
			tt.path)
		assert.Equal(t, tt.beside, ask(t, world(t, class("k8s.io/ingress-nginx"), portal, ours), get(atOurClass, "a.example.com"+tt.path)),
			tt.path)
	}
}
