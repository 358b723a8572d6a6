package ingressnginx

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// ingress returns an Ingress. The name is "namespace/name", each path is "type path service", and each annotation of ingress-nginx
// is "key=value".
func ingress(name, host, paths string, annotations ...string) *networkingv1.Ingress {
	in := &networkingv1.Ingress{}
	in.Namespace, in.Name, _ = strings.Cut(name, "/")
	for _, a := range annotations {
		key, value, _ := strings.Cut(a, "=")
		metav1.SetMetaDataAnnotation(&in.ObjectMeta, prefix+key, value)
	}
	rule := networkingv1.IngressRule{Host: host}
	rule.HTTP = &networkingv1.HTTPIngressRuleValue{}
	for p := range strings.SplitSeq(paths, ", ") {
		fields := strings.Fields(p)
		kind := networkingv1.PathType(fields[0])
		rule.HTTP.Paths = append(rule.HTTP.Paths, networkingv1.HTTPIngressPath{PathType: &kind, Path: fields[1], Backend: networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: fields[2], Port: networkingv1.ServiceBackendPort{Number: 80}},
		}})
	}
	in.Spec.Rules = []networkingv1.IngressRule{rule}
	return in
}

func TestCheck(t *testing.T) {
	t.Parallel()
	const host = "a.example.com"
	regex := []string{"use-regex=true", "rewrite-target=/$2"}
	one := ingress("ns/one", host, "Prefix / s")
	deleting := ingress("ns/two", host, "Prefix / s")
	deleting.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0)))
	tests := []struct {
		name   string
		give   *networkingv1.Ingress
		others []*networkingv1.Ingress
		want   string
	}{
		{name: "alone", give: one},
		{name: "itself", give: one, others: []*networkingv1.Ingress{ingress("ns/one", host, "Prefix / other")}},
		{name: "the same path", give: ingress("ns/two", host, "Prefix / s"), others: []*networkingv1.Ingress{one}, want: `host "a.example.com" and path "/" is already defined in ingress ns/one`},
		{name: "of another namespace", give: ingress("other/one", host, "Prefix / s"), others: []*networkingv1.Ingress{one}, want: `host "a.example.com" and path "/" is already defined in ingress ns/one`},
		{name: "of another type", give: ingress("ns/two", host, "Exact / s"), others: []*networkingv1.Ingress{one}, want: `host "a.example.com" and path "/" is already defined in ingress ns/one`},
		{name: "another host", give: ingress("ns/two", "b.example.com", "Prefix / s"), others: []*networkingv1.Ingress{one}},
		{name: "another path", give: ingress("ns/two", host, "Prefix /v1 s"), others: []*networkingv1.Ingress{one}},
		{name: "all hosts", give: ingress("ns/two", "", "Prefix /v1 s"), others: []*networkingv1.Ingress{ingress("ns/one", "", "Prefix /v1 s")}, want: `host "_" and path "/v1" is already defined in ingress ns/one`},
		{name: "a slash more", give: ingress("ns/two", host, "Prefix /v1/ s"), others: []*networkingv1.Ingress{ingress("ns/one", host, "Prefix /v1 s")}, want: `host "a.example.com" and path "/v1/" is already defined in ingress ns/one`},
		{name: "a slash less", give: ingress("ns/two", host, "Prefix /v1 s"), others: []*networkingv1.Ingress{ingress("ns/one", host, "Prefix /v1/ s")}},
		{name: "a slash more than an exact path", give: ingress("ns/two", host, "Prefix /v1/ s"), others: []*networkingv1.Ingress{ingress("ns/one", host, "Exact /v1 s")}},
		{
			name: "an expression", give: ingress("ns/two", host, "ImplementationSpecific /m/a(/|$)(.*) s", regex...),
			others: []*networkingv1.Ingress{ingress("ns/one", host, "ImplementationSpecific /m/a(/|$)(.*) s", regex...)},
			want:   `host "a.example.com" and path "/m/a(/|$)(.*)" is already defined in ingress ns/one`,
		},
		{
			name: "another expression", give: ingress("ns/two", host, "ImplementationSpecific /m/b(/|$)(.*) s", regex...),
			others: []*networkingv1.Ingress{one, ingress("ns/three", host, "ImplementationSpecific /m/a(/|$)(.*) s", regex...)},
		},
		{name: "an expression as a prefix", give: ingress("ns/two", host, "Prefix /m/a(/|$)(.*) s", regex...), want: "ingress contains invalid paths: path /m/a(/|$)(.*) cannot be used with pathType Prefix"},
		{name: "a canary", give: ingress("ns/two", host, "Prefix / canary", "canary=true"), others: []*networkingv1.Ingress{one}},
		{name: "beside a canary", give: one, others: []*networkingv1.Ingress{ingress("ns/two", host, "Prefix / canary", "canary=true")}},
		{
			name: "two canaries for the Service of another Ingress", give: ingress("ns/three", host, "Prefix / s", "canary=true"),
			others: []*networkingv1.Ingress{ingress("ns/zero", "other.example.com", "Prefix / s"), ingress("ns/two", host, "Prefix / s", "canary=true")},
		},
		{name: "annotated as no canary", give: ingress("ns/two", host, "Prefix / s", "canary=false"), others: []*networkingv1.Ingress{one}},
		{name: "the first of several paths", give: ingress("ns/two", host, "Prefix /a s, Prefix / s"), others: []*networkingv1.Ingress{one}, want: `host "a.example.com" and path "/" is already defined in ingress ns/one`},
		{name: "deleted", give: deleting, others: []*networkingv1.Ingress{one}},
		{name: "a snippet", give: ingress("ns/two", host, "Prefix / s", "configuration-snippet=x"), want: "nginx.ingress.kubernetes.io/configuration-snippet annotation cannot be used. Snippet directives are disabled by the Ingress administrator"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := Check(tt.give, tt.others)
			if tt.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.EqualError(t, err, tt.want)
		})
	}
}

// TestCheckNamesTheOldest tests the message if two existing Ingresses have the path, as after a change of the controller. It names
// the older one, or the last by name if both have the same age.
func TestCheckNamesTheOldest(t *testing.T) {
	t.Parallel()
	at := func(name string, second int64) *networkingv1.Ingress {
		in := ingress(name, "a.example.com", "Prefix / s")
		in.CreationTimestamp = metav1.NewTime(time.Unix(second, 0))
		return in
	}
	younger, older, sameAge := at("ns/a", 3), at("ns/b", 2), at("ns/c", 2)
	for _, others := range [][]*networkingv1.Ingress{{younger, older, sameAge}, {sameAge, older, younger}} {
		require.EqualError(t, Check(at("ns/new", 4), others), `host "a.example.com" and path "/" is already defined in ingress ns/c`)
	}
}

func TestServes(t *testing.T) {
	t.Parallel()
	classes := []networkingv1.IngressClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "inner"}, Spec: networkingv1.IngressClassSpec{Controller: "k8s.io/ingress-nginx"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "traefik"}, Spec: networkingv1.IngressClassSpec{Controller: "traefik.io/ingress-controller"}},
	}
	tests := []struct {
		name, give string
		want       bool
	}{
		{name: "a class of the controller", give: "spec: {ingressClassName: inner}", want: true},
		{name: "a class of another controller", give: "spec: {ingressClassName: traefik}"},
		{name: "a missing class", give: "spec: {ingressClassName: nginx}"},
		{name: "none", give: "spec: {}"},
		{name: "the annotation", give: "metadata: {annotations: {kubernetes.io/ingress.class: nginx}}", want: true},
		{name: "the annotation of another", give: "metadata: {annotations: {kubernetes.io/ingress.class: inner}}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := &networkingv1.Ingress{}
			require.NoError(t, yaml.UnmarshalStrict([]byte(tt.give), in))
			assert.Equal(t, tt.want, serves(classes, in))
		})
	}
}
