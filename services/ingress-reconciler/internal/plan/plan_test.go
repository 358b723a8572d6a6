package plan

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// input returns the input for a service with the given components, all of them ready, under a configuration.
func input(t *testing.T, config string, roles ...isvc.Role) *Input {
	t.Helper()
	in := &Input{
		Service: &isvc.Service{Namespace: "models", Name: "chat", UID: "uid", Components: map[isvc.Role]*isvc.Component{}},
		Knative: map[isvc.Role]bool{}, Live: map[Slot][]isvc.Role{},
	}
	yes := true
	for _, r := range roles {
		in.Service.Components[r] = &isvc.Component{}
		in.Service.Conditions = append(in.Service.Conditions, isvc.Condition{
			Type: strings.ToUpper(string(r[:1])) + string(r[1:]) + "Ready", Status: metav1.ConditionTrue,
		})
		in.Services = append(in.Services, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "models", Name: backend.ServiceName("chat", r), Labels: map[string]string{
					backend.LabelComponent: string(r), backend.LabelService: "chat",
				},
				OwnerReferences: []metav1.OwnerReference{{UID: "uid", Controller: &yes}},
			},
			Spec: corev1.ServiceSpec{
				ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Name: "http1", Port: 8080}},
				Selector: map[string]string{"app": backend.ServiceName("chat", r)},
			},
		})
	}
	d, err := settings.Parse([]byte(config))
	require.NoError(t, err)
	in.Settings, err = (&settings.Config{Document: d, ClusterDomain: "cluster.local"}).ResolveSettings(in.Service)
	require.NoError(t, err)
	return in
}

// build builds the plan twice and compares the results.
func build(t *testing.T, in *Input) Plan {
	t.Helper()
	p := Build(in)
	require.Equal(t, p, Build(in))
	return p
}

// lines describes the exposures of a plan: "host/path -> service:port".
func lines(p Plan) []string {
	out := []string{}
	for _, e := range p.Exposures {
		line := fmt.Sprintf("%s%s -> %s:%d", e.Host, e.Path, cmp.Or(e.Backend.Pool, e.Backend.Name), e.Backend.Port)
		if e.Gateway.Name != "" {
			line += fmt.Sprintf(" by %s/%s", e.Gateway.Namespace, e.Gateway.Name)
		}
		out = append(out, line)
	}
	return out
}

func reasons(p Plan) []string {
	out := []string{}
	for _, r := range p.Reasons {
		text := strings.Trim(string(r.Role)+" "+r.Reason, " ")
		if r.Warning {
			text += " (warning)"
		}
		out = append(out, text)
	}
	return out
}

const example = "ingressDomain: example.com\n"

func TestEntryComponent(t *testing.T) {
	t.Parallel()
	const e, d, r = isvc.Engine, isvc.Decoder, isvc.Router
	tests := []struct {
		name           string
		give           []isvc.Role
		entry          string
		hosts          []string // of components, with componentHosts
		reasons        []string
		exposesNothing bool
	}{
		{name: "engine", give: []isvc.Role{e}, entry: "chat-engine"},
		{
			name: "engine and decoder", give: []isvc.Role{e, d}, entry: "chat-engine", hosts: []string{"decoder"},
			reasons: []string{"engine DecoderWithoutRouter (warning)"},
		},
		{name: "router and engine", give: []isvc.Role{r, e}, entry: "chat-router", hosts: []string{"engine"}},
		{name: "router, engine and decoder", give: []isvc.Role{r, e, d}, entry: "chat-router", hosts: []string{"engine", "decoder"}},
		{name: "router alone", give: []isvc.Role{r}, entry: "chat-router"},
		{name: "decoder alone", give: []isvc.Role{d}, reasons: []string{ReasonNoEntry}, exposesNothing: true},
		{name: "nothing", reasons: []string{ReasonNoEntry}, exposesNothing: true},
	}
	for _, tt := range tests {
		for _, strategy := range []string{
			"auto", "ingress", "virtualservice\ningressGateway: istio/public", "httproute\nomeIngressGateway: gateways/public",
		} {
			t.Run(tt.name+" "+strategy, func(t *testing.T) {
				t.Parallel()
				config, by := example+"strategy: "+strategy+"\n", ""
				if strings.Contains(strategy, "gateways/public") {
					by = " by gateways/public"
				}
				var entry, all []string
				if tt.entry != "" {
					entry = []string{"chat.models.example.com/ -> " + tt.entry + ":8080" + by}
				}
				got := build(t, input(t, config, tt.give...))
				assert.ElementsMatch(t, entry, lines(got))
				assert.ElementsMatch(t, tt.reasons, reasons(got))
				assert.Equal(t, tt.exposesNothing, got.Strategy == "")

				all = entry
				for _, host := range tt.hosts {
					all = append(all, fmt.Sprintf("chat-%[1]s.models.example.com/ -> chat-%[1]s:8080%[2]s", host, by))
				}
				assert.ElementsMatch(t, all, lines(build(t, input(t, config+"componentHosts: true\n", tt.give...))))
			})
		}
	}
}

func TestStrategy(t *testing.T) {
	t.Parallel()
	zero := int64(0)
	tests := []struct {
		name, config string
		change       func(in *Input)
		want         settings.Strategy
	}{
		{name: "pods", want: settings.Ingress},
		{name: "pods, and a Gateway", config: "omeIngressGateway: a/b", want: settings.HTTPRoute},
		{
			name: "pods of several nodes", change: func(in *Input) { in.Service.Components[isvc.Engine].Nodes = true },
			want: settings.Ingress,
		},
		{name: "Knative", config: "omeIngressGateway: a/b\ningressGateway: istio/public", change: func(in *Input) {
			in.Service.Components[isvc.Engine].MinReplicas, in.Knative[isvc.Engine] = &zero, true
		}, want: settings.VirtualService},
		{name: "no Knative", change: func(in *Input) { in.Service.Components[isvc.Engine].MinReplicas = &zero }, want: settings.Ingress},
		{
			name: "as configured", config: "strategy: virtualservice\ningressGateway: istio/public\nomeIngressGateway: a/b",
			want: settings.VirtualService,
		},
		{name: "Gateway API without a Gateway", config: "enableGatewayAPI: true", want: ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := input(t, example+tt.config, isvc.Engine)
			if tt.change != nil {
				tt.change(in)
			}
			assert.Equal(t, tt.want, build(t, in).Strategy)
		})
	}
}

func TestNotExposed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, config string
		change       func(in *Input)
		want         []string // reasons
		keep         []Slot
	}{
		{name: "deleted", change: func(in *Input) { in.Service.Deleting = true }, want: []string{}, keep: Slots},
		{
			name: "wrong", change: func(in *Input) { in.SettingsErr = errors.New("template") }, want: []string{ReasonInvalidConfiguration},
			keep: Slots,
		},
		{name: "off", config: "enabled: false", want: []string{ReasonDisabled}},
		{name: "OME's", change: func(in *Input) { in.Settings.OMEActs = true }, want: []string{ReasonOMEIngressEnabled}},
		{name: "virtual", change: func(in *Input) { in.Service.Mode = isvc.VirtualDeployment }, want: []string{ReasonVirtualDeployment}},
		{name: "local", change: func(in *Input) {
			in.Service.Labels = map[string]string{"networking.knative.dev/visibility": "cluster-local"}
		}, want: []string{ReasonClusterLocal}},
		{name: "no domain", change: func(in *Input) { in.Settings.Domain = "" }, want: []string{ReasonNoDomain}, keep: Slots},
		{
			name: "not ready", change: func(in *Input) { in.Service.Conditions = nil }, want: []string{"router ComponentNotReady"},
			keep: []Slot{Entry},
		},
		{
			name: "no Service", change: func(in *Input) { in.Services = in.Services[1:] }, want: []string{"router ServiceNotFound"},
			keep: []Slot{Entry},
		},
		{
			name: "a foreign Service", change: func(in *Input) { in.Services[0].OwnerReferences = nil },
			want: []string{"router NameConflict"}, keep: []Slot{Entry},
		},
		{
			name: "a host too long", config: "domainTemplate: '" + strings.Repeat("a", 64) + ".{{ .IngressDomain }}'",
			want: []string{"router InvalidHost"}, keep: []Slot{Entry},
		},
		{
			name: "a label that is missing", config: "domainTemplate: '{{ .Labels.team }}.{{ .IngressDomain }}'",
			want: []string{"router InvalidHost"}, keep: []Slot{Entry},
		},
		{
			name: "a host of the cluster's own", change: func(in *Input) { in.Settings.Domain = "svc.cluster.local" },
			want: []string{"router ClusterLocal"},
		},
		{name: "not allowed", config: "allowedDomains: {models: [example.org]}", want: []string{"router HostNotAllowed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := input(t, example+tt.config, isvc.Router, isvc.Engine)
			if tt.change != nil {
				tt.change(in)
			}
			got := build(t, in)
			assert.Empty(t, lines(got))
			assert.Empty(t, got.Strategy)
			assert.Equal(t, tt.want, reasons(got))
			assert.Equal(t, tt.keep, got.FrozenSlots)
			for _, r := range got.Reasons {
				assert.NotEmpty(t, r.Message)
			}
		})
	}
}

func TestReadinessDelaysOnlyNewExposures(t *testing.T) {
	t.Parallel()
	in := input(t, example, isvc.Router, isvc.Engine)
	in.Service.Conditions, in.Live[Entry] = nil, []isvc.Role{isvc.Router}
	assert.Equal(t, []string{"chat.models.example.com/ -> chat-router:8080"}, lines(build(t, in)))
}

func TestHostsAndPaths(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, config string
		want         []string
	}{
		{
			name: "a template", config: example + "domainTemplate: '{{ .Name }}-{{ .Namespace }}.{{ .IngressDomain }}'",
			want: []string{"chat-models.example.com/"},
		},
		{name: "shared", config: example + "perISVCSubdomain: false", want: []string{"llm.example.com/models/chat/"}},
		{
			name: "shared, without a prefix", config: example + "perISVCSubdomain: false\nsharedHostPrefix: ''",
			want: []string{"example.com/models/chat/"},
		},
		{
			name: "a host and a path", config: example + "pathTemplate: '/serving/{{ .Namespace }}/{{ .Name }}'",
			want: []string{"chat.models.example.com/", "example.com/serving/models/chat/"},
		},
		{
			name: "more domains", config: example + "additionalIngressDomains: [example.org, example.com]",
			want: []string{"chat.models.example.com/", "chat.models.example.org/"},
		},
		{
			name:   "one host for all domains",
			config: example + "additionalIngressDomains: [example.org]\ndomainTemplate: chat.example.net",
			want:   []string{"chat.example.net/"},
		},
		{
			name: "Gateways",
			config: example +
				"omeIngressGateway: a/b\nadditionalIngressGateways: [{omeIngressGateway: c/d}, {omeIngressGateway: e/f, ingressDomain: " +
				"example.org}]",
			want: []string{
				"chat.models.example.com/ by a/b", "chat.models.example.com/ by c/d", "chat.models.example.org/ by e/f",
			},
		},
		{
			name: "Gateways, one host",
			config: "omeIngressGateway: a/b\nadditionalIngressGateways: [{omeIngressGateway: e/f, ingressDomain: " +
				"example.org}]\ndomainTemplate: chat.example.net\n" + example,
			want: []string{
				"chat.example.net/ by a/b", "chat.example.net/ by e/f",
			},
		},
		{
			name: "Gateways and more domains", config: example + "omeIngressGateway: a/b\nadditionalIngressDomains: [example.org]",
			want: []string{"chat.models.example.com/ by a/b", "chat.models.example.org/ by a/b"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := input(t, tt.config, isvc.Engine)
			in.Classes = []*networkingv1.IngressClass{class("k8s.io/ingress-nginx")}
			got := build(t, in)
			var ways []string
			for _, line := range lines(got) {
				ways = append(ways, strings.Replace(line, " -> chat-engine:8080", "", 1))
			}
			assert.Equal(t, tt.want, ways)
			assert.Empty(t, got.Reasons)
		})
	}
}

// class is the cluster's default IngressClass.
func class(controller string) *networkingv1.IngressClass {
	return &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: "default", Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"},
		},
		Spec: networkingv1.IngressClassSpec{Controller: controller},
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	in := input(t, example+"defaultRouteTimeoutSeconds: 30\ncomponentHosts: true", isvc.Router, isvc.Engine)
	in.Service.Components[isvc.Engine].Timeout = time.Minute
	got := build(t, in)
	require.Len(t, got.Exposures, 2)
	assert.Equal(t, 30*time.Second, got.Exposures[0].Timeout, "the router has the configured timeout")
	assert.Equal(t, time.Minute, got.Exposures[1].Timeout, "the engine has its own timeout")
}

func TestComponentsThatTheRuntimeBrings(t *testing.T) {
	t.Parallel()
	in := input(t, example, isvc.Router, isvc.Engine)
	in.Service.Components = map[isvc.Role]*isvc.Component{}
	assert.Equal(t, []string{"chat.models.example.com/ -> chat-router:8080"}, lines(build(t, in)), "Services show which components exist")
	in.Services = in.Services[1:]
	assert.Equal(t, []string{"chat.models.example.com/ -> chat-engine:8080"}, lines(build(t, in)), "the service has no router")
	in.Service.Reported = map[isvc.Role]bool{isvc.Router: true}
	assert.Empty(t, lines(build(t, in)), "the status reports a router, which has no Service yet")
}

func TestComponentsThatLeave(t *testing.T) {
	t.Parallel()
	in := input(t, example+"componentHosts: true", isvc.Router, isvc.Engine)
	in.Live = map[Slot][]isvc.Role{Entry: {isvc.Router}}
	in.Service.Reported = map[isvc.Role]bool{isvc.Router: true}
	in.Removed = map[isvc.Role]bool{isvc.Router: true}
	assert.Contains(t, lines(build(t, in)), "chat.models.example.com/ -> chat-router:8080", "the specification names the router")
	delete(in.Service.Components, isvc.Router)
	assert.Equal(t, []string{"chat.models.example.com/ -> chat-engine:8080"}, lines(build(t, in)), "the removed router is ignored")
}
