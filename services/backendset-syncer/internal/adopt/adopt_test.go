package adopt

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

const loadBalancer = "ocid1.loadbalancer.oc1.iad.a"

// upstreamShaped is a Gateway with two routes, and a load balancer as oke-gateway-api v0.8.0 leaves it, with objects of Terraform beside.
func upstreamShaped() *Input {
	gateway := &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "models", Name: "inference",
			Annotations: map[string]string{annotationCertificates: "models-tls-rev-7, models-tls-rev-3"},
		},
		Spec: gatewayv1.GatewaySpec{Listeners: []gatewayv1.Listener{
			{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType},
			{Name: "other", Port: 8444, Protocol: gatewayv1.HTTPSProtocolType},
			{
				Name: "https", Port: 443, Protocol: gatewayv1.HTTPSProtocolType,
				TLS: &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "tls"}}},
			},
		}},
	}
	route := func(name, rules string, services ...string) *gatewayv1.HTTPRoute {
		r := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{
			Namespace: "models", Name: name, Annotations: map[string]string{annotationRules: rules},
		}}
		r.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "inference"}}
		for _, s := range services {
			rule := gatewayv1.HTTPRouteRule{}
			for _, one := range strings.Split(s, "+") {
				ref := gatewayv1.HTTPBackendRef{}
				ref.Name = gatewayv1.ObjectName(one)
				rule.BackendRefs = append(rule.BackendRefs, ref)
			}
			r.Spec.Rules = append(r.Spec.Rules, rule)
		}
		return r
	}
	chat := route("chat", "http/p0000_1a2b3c4d_models_chat,http/p0001_1a2b3c4d_models_chat,https/p0000_1a2b3c4d_models_chat", "chat",
		"embed")
	canary := route("canary", "http/p0000_deadbeef_models_canary", "blue+green")
	rule := func(name, set string) plan.Rule { return plan.Rule{Name: name, Condition: "c", Set: set} }
	return &Input{
		LoadBalancer: loadBalancer,
		Gateways:     []*gatewayv1.Gateway{gateway},
		Routes:       []*gatewayv1.HTTPRoute{canary, chat},
		Secrets: map[types.NamespacedName]*corev1.Secret{
			{Namespace: "models", Name: "tls"}: {ObjectMeta: metav1.ObjectMeta{Namespace: "models", Name: "tls", ResourceVersion: "7"}},
		},
		Live: &lblayout.Live{
			Listeners: map[string]lblayout.Listener{
				"http": {Name: "http", Port: 80, Protocol: "HTTP", Policy: "http_policy", DefaultSet: "inference-default"},
				"https": {Name: "https", Port: 443, Protocol: "HTTP", Policy: "https_policy", DefaultSet: "inference-default",
					TLS: &lblayout.TLS{Certificate: "models-tls-rev-7"}},
				"other": {Name: "other", Port: 8444, Protocol: "HTTP", DefaultSet: "inference-default",
					TLS: &lblayout.TLS{Certificate: "models-tls-rev-3"}},
				"terraform": {Name: "terraform", Port: 8443, Protocol: "HTTP", Policy: "terraform_policy", DefaultSet: "terraform"},
			},
			Policies: map[string]lblayout.Policy{
				"http_policy": {Name: "http_policy", Rules: []plan.Rule{
					rule("by_hand", "terraform"), rule("p0000_1a2b3c4d_models_chat", "models-chat-80"),
					rule("p0001_1a2b3c4d_models_chat", "models-embed-80"),
					rule("p0000_deadbeef_models_canary", "models-blue-80"), rule(catchAll, "inference-default"),
				}},
				"https_policy": {Name: "https_policy", Rules: []plan.Rule{
					rule("p0000_1a2b3c4d_models_chat", "models-chat-80"), rule(catchAll, "inference-default"),
				}},
				"terraform_policy": {Name: "terraform_policy", Rules: []plan.Rule{rule("special", "models-embed-80")}},
			},
			Uses: map[lblayout.Ref]bool{
				{Kind: lbrecord.Certificate, Name: "models-tls-rev-3"}: true, {Kind: lbrecord.Certificate, Name: "models-tls-rev-7"}: true,
			},
			Certificates: map[string]bool{"models-tls-rev-7": true, "models-tls-rev-3": true, "terraform": true},
			Sets: map[string]int{
				"models-chat-80": 2, "models-embed-80": 1, "models-blue-80": 1, "models-green-80": 1, "inference-default": 0,
				"terraform": 3,
			},
		},
		Keys: Keys{
			Listener: func(_ *gatewayv1.Gateway, l *gatewayv1.Listener) string { return "own-" + string(l.Name) },
			Policy:   func(_ types.NamespacedName, listener string) string { return "p_own_" + listener },
			PolicyKey: func(gateway types.NamespacedName, listener string) string {
				return "policy " + gateway.String() + "/" + listener
			},
			Set: func(r *gatewayv1.HTTPRoute, rule int) string {
				refs := r.Spec.Rules[rule].BackendRefs
				if len(refs) != 1 {
					return ""
				}
				return fmt.Sprintf("set Service/%s/%s", r.Namespace, refs[0].Name)
			},
			DefaultSet:  "set",
			Certificate: func(s *corev1.Secret) string { return "certificate " + s.Namespace + "/" + s.Name + " now" },
		},
	}
}

// objects returns the objects of a record as "kind name = key".
func objects(r *lbrecord.Record) []string {
	var all []string
	for _, o := range r.Objects {
		text := fmt.Sprintf("%s %s = %s", o.Kind, o.Name, o.Key)
		if o.Owner != "" {
			text += " of " + o.Owner
		}
		all = append(all, text)
	}
	return all
}

func TestBuild(t *testing.T) {
	t.Parallel()
	r, findings := Build(upstreamShaped())
	require.NotNil(t, r, "%v", findings)
	assert.Equal(t, loadBalancer, r.LoadBalancer)
	assert.Equal(t, []string{"models/inference"}, r.Gateways)
	assert.Equal(t, []string{
		"backendSets inference-default = set",
		"backendSets models-blue-80 = earlier models-blue-80", // a set of its own for blue and green takes its place
		"backendSets models-chat-80 = set Service/models/chat",
		"certificates models-tls-rev-3 = earlier models-tls-rev-3",
		"certificates models-tls-rev-7 = certificate models/tls now",
		"listeners http = listener 80  of models/inference",
		"listeners https = listener 443  of models/inference",
		"listeners other = listener 8444  of models/inference",
		"routingPolicies http_policy = policy models/inference/http",
		"routingPolicies https_policy = policy models/inference/https",
	}, objects(r), "%v", findings)
	policy := r.FindByKey(lbrecord.RoutingPolicy, "policy models/inference/http")
	require.NotNil(t, policy)
	assert.Equal(t, []string{catchAll, "p0000_1a2b3c4d_models_chat", "p0000_deadbeef_models_canary", "p0001_1a2b3c4d_models_chat"},
		policy.AdoptedRules)
	again, _ := Build(upstreamShaped())
	assert.Equal(t, r.Encode(), again.Encode())
	parsed, err := lbrecord.Parse(r.Encode())
	require.NoError(t, err)
	assert.Equal(t, objects(r), objects(parsed))
}

// TestBuildLeavesOthersAlone changes the load balancer in a way that makes an object one of others, or not one that oke-gateway-api made.
func TestBuildLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(in *Input)
		absent string // name of an object that is not adopted
		says   string
	}{
		{
			name: "a rule by hand", change: func(*Input) {}, absent: "by_hand",
			says: "routing policy http_policy: rule by_hand is of no HTTPRoute: it stays",
		},
		{
			name: "a set that a policy of Terraform uses", change: func(*Input) {}, absent: "models-embed-80",
			says: "backend set models-embed-80: others use it, too",
		},
		{name: "a set that no rule uses", change: func(*Input) {}, absent: "models-green-80"},
		{
			name: "a set of a path route", change: func(in *Input) { in.PathRouted = map[string]bool{"models-chat-80": true} },
			absent: "models-chat-80", says: "others use it, too",
		},
		{
			name: "a rule that no route has", absent: "models-chat-80",
			change: func(in *Input) { in.Routes = nil },
			says:   "rule p0000_1a2b3c4d_models_chat is of no HTTPRoute: it stays",
		},
		{
			name: "a certificate that a listener of Terraform uses", absent: "models-tls-rev-3",
			says: "a listener that is not adopted uses it",
			change: func(in *Input) {
				l := in.Live.Listeners["terraform"]
				l.TLS = &lblayout.TLS{Certificate: "models-tls-rev-3"}
				in.Live.Listeners["terraform"] = l
			},
		},
		{
			name: "a default set that a rule by hand uses", absent: "inference-default",
			says:   "backend set inference-default: others use it, too",
			change: func(in *Input) { in.Live.Policies["terraform_policy"].Rules[0].Set = "inference-default" },
		},
		{
			name: "a listener that the load balancer does not have", absent: "http",
			change: func(in *Input) { delete(in.Live.Listeners, "http") }, says: "the load balancer does not have it",
		},
		{
			name: "a certificate that nothing uses", absent: "models-tls-rev-3", says: "nothing uses it: it stays",
			change: func(in *Input) { in.Live.Uses = nil },
		},
		{
			name: "an annotation of nothing", absent: "models-tls-rev-3",
			change: func(in *Input) { delete(in.Live.Certificates, "models-tls-rev-3") }, says: "the load balancer does not have it",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := upstreamShaped()
			tt.change(in)
			r, findings := Build(in)
			require.NotNil(t, r, "%v", findings)
			for _, o := range r.Objects {
				assert.NotEqual(t, tt.absent, o.Name)
				assert.NotContains(t, o.Name, "terraform")
			}
			assert.Contains(t, fmt.Sprint(findings), tt.says)
		})
	}
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	listener := func(in *Input, name string, change func(l *lblayout.Listener)) {
		l := in.Live.Listeners[name]
		change(&l)
		in.Live.Listeners[name] = l
	}
	tests := []struct {
		name   string
		change func(in *Input)
		want   string
	}{
		{
			name: "another port", want: "listener http: it has port 8080, and Gateway models/inference wants port 80",
			change: func(in *Input) { listener(in, "http", func(l *lblayout.Listener) { l.Port = 8080 }) },
		},
		{
			name: "another protocol", want: "listener http: it has protocol TCP",
			change: func(in *Input) { listener(in, "http", func(l *lblayout.Listener) { l.Protocol = "TCP" }) },
		},
		{
			name: "a policy by hand", want: "routing policy mine: listener http uses it, and neither",
			change: func(in *Input) {
				in.Live.Policies["mine"] = lblayout.Policy{Name: "mine"}
				listener(in, "http", func(l *lblayout.Listener) { l.Policy = "mine" })
			},
		},
		{
			name: "a policy of two listeners", want: "listener terraform uses it, which belongs to no adopted Gateway",
			change: func(in *Input) { listener(in, "terraform", func(l *lblayout.Listener) { l.Policy = "http_policy" }) },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := upstreamShaped()
			tt.change(in)
			r, findings := Build(in)
			assert.Nil(t, r)
			assert.Contains(t, fmt.Sprint(findings), tt.want)
		})
	}
}

// TestBuildOfALostRecord finds objects by the names that the program chooses without a record.
func TestBuildOfALostRecord(t *testing.T) {
	t.Parallel()
	in := upstreamShaped()
	in.Routes = nil
	in.Live = &lblayout.Live{
		Listeners: map[string]lblayout.Listener{
			"own-http": {
				Name: "own-http", Port: 80, Protocol: "HTTP", Policy: "p_own_http", DefaultSet: "own-default",
				Hostnames: []string{"own-host"},
			},
			"http": {Name: "http", Port: 8080, Protocol: "HTTP", DefaultSet: "terraform"},
		},
		Policies: map[string]lblayout.Policy{"p_own_http": {
			Name: "p_own_http", Rules: []plan.Rule{{Name: "r000_models_chat", Set: "own-chat"}},
		}},
		Hostnames: map[string]lblayout.Hostname{"own-host": {Name: "own-host", Hostname: "chat.example.com"}},
		Sets:      map[string]int{"own-default": 0, "own-chat": 1, "terraform": 1, "unused": 0},
	}
	in.Keys.Own = []lbrecord.Object{
		{Kind: lbrecord.BackendSet, Name: "own-default", Key: "set"},
		{Kind: lbrecord.BackendSet, Name: "own-chat", Key: "set Service/models/chat"},
		{Kind: lbrecord.BackendSet, Name: "own-gone", Key: "set Service/models/gone"},
	}
	r, findings := Build(in)
	require.NotNil(t, r, "%v", findings)
	assert.Equal(t, []string{
		"backendSets own-chat = set Service/models/chat", "backendSets own-default = set", "hostnames own-host = hostname chat.example.com",
		"listeners own-http = listener 80  of models/inference", "routingPolicies p_own_http = policy models/inference/http",
	}, objects(r))
}

// TestBuildOfALostRecordWithRulesOfOthers has sets with the program's names that a rule of others in an adopted policy uses, too, and one
// that only a listener of another program uses.
func TestBuildOfALostRecordWithRulesOfOthers(t *testing.T) {
	t.Parallel()
	in := upstreamShaped()
	in.Routes = nil
	in.Live = &lblayout.Live{
		Listeners: map[string]lblayout.Listener{
			"own-http": {Name: "own-http", Port: 80, Protocol: "HTTP", Policy: "p_own_http", DefaultSet: "own-default"},
			"foreign":  {Name: "foreign", Port: 81, Protocol: "HTTP", DefaultSet: "own-other"},
			"shared":   {Name: "shared", Port: 82, Protocol: "HTTP", DefaultSet: "own-default"},
		},
		Policies: map[string]lblayout.Policy{"p_own_http": {
			Name: "p_own_http", Rules: []plan.Rule{{Name: "terraform", Set: "own-chat"}, {Name: "r000_models_chat", Set: "own-chat"}},
		}},
		Sets: map[string]int{"own-default": 0, "own-chat": 1, "own-other": 1},
	}
	in.Keys.Own = []lbrecord.Object{
		{Kind: lbrecord.BackendSet, Name: "own-default", Key: "set"},
		{Kind: lbrecord.BackendSet, Name: "own-chat", Key: "set Service/models/chat"},
		{Kind: lbrecord.BackendSet, Name: "own-other", Key: "set Service/models/other"},
	}
	r, findings := Build(in)
	require.NotNil(t, r, "%v", findings)
	assert.Equal(t, []string{
		"backendSets own-chat = set Service/models/chat", "backendSets own-default = set",
		"listeners own-http = listener 80  of models/inference", "routingPolicies p_own_http = policy models/inference/http",
	}, objects(r), "%v", findings)
}

// TestHostileAnnotations lets a tenant write annotations of any size and content: nothing but the rules of adopted policies follows.
func TestHostileAnnotations(t *testing.T) {
	t.Parallel()
	in := upstreamShaped()
	in.Routes[0].Annotations[annotationRules] = strings.Repeat("http/special,", 100_000) + "terraform/special,//,http/,/x, http/by_hand"
	in.Gateways[0].Annotations[annotationCertificates] = "terraform," + strings.Repeat(",", 100_000)
	r, findings := Build(in)
	require.NotNil(t, r, "%v", findings)
	names := map[string]bool{}
	for _, o := range r.Objects {
		names[o.Name] = true
	}
	assert.False(t, names["terraform_policy"], "a policy follows from a listener, not from an annotation")
	assert.LessOrEqual(t, len(annotatedRules(in.Routes[0])["http"]), maxRules)
	assert.Empty(t, slices.DeleteFunc(slices.Collect(maps.Keys(names)), func(n string) bool { return n != "terraform_policy" }))
}

func TestUpstreamNames(t *testing.T) {
	t.Parallel()
	assert.True(t, isUpstreamPolicy("http_policy", "http"))
	assert.True(t, isUpstreamPolicy("my_http_policy", "my-http"))
	assert.True(t, isUpstreamPolicy("p_0123456789abcdef_my_listener", "my.listener"))
	assert.False(t, isUpstreamPolicy("http_policy", "https"))
	assert.False(t, isUpstreamPolicy("p_http", "http"))
	for name, want := range map[string]int{
		"p0000_1a2b3c4d_a_b": 0, "p0012_1a2b3c4d_a_b_rule": 12, "p12_1a2b_a": -1, "default_catch_all": -1, "r000_a_b": -1,
	} {
		index, ok := ruleIndex(name)
		assert.Equal(t, want >= 0, ok, name)
		if ok {
			assert.Equal(t, want, index, name)
		}
	}
}
