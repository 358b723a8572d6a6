package render

import (
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	istioapi "istio.io/api/networking/v1beta1"
	istiov1beta1 "istio.io/client-go/pkg/apis/networking/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// knativePort is the port of the gateway of Knative Services.
const knativePort = 80

// virtualService returns the VirtualService of an exposure. It routes to the Service of the component, or to the gateway of
// Knative, which selects a Knative Service by its host.
func (r *renderer) virtualService(e *plan.Exposure) *istiov1beta1.VirtualService {
	host := func(service string) string {
		return service + "." + r.Service.Namespace + ".svc." + r.Settings.ClusterDomain
	}
	to, rewrite := &istioapi.Destination{Host: host(e.Backend.Name), Port: &istioapi.PortSelector{Number: uint32(e.Backend.Port)}}, &istioapi.HTTPRewrite{}
	if e.Backend.Knative != "" {
		to.Host, to.Port.Number = r.Settings.KnativeGateway, knativePort
		rewrite.Authority = host(e.Backend.Knative)
	}
	rule := &istioapi.HTTPRoute{
		Match:   uris(e),
		Route:   []*istioapi.HTTPRouteDestination{{Destination: to}},
		Headers: &istioapi.Headers{Request: &istioapi.Headers_HeaderOperations{Set: map[string]string{headerName: r.Service.Name, headerNamespace: r.Service.Namespace}}},
	}
	if e.Timeout > 0 { // Istio has no timeout by default, and its CRD refuses 0s
		rule.Timeout = durationpb.New(e.Timeout)
	}
	if e.Path != "/" {
		rewrite.Uri = "/"
	}
	if rewrite.Uri != "" || rewrite.Authority != "" {
		rule.Rewrite = rewrite
	}
	return &istiov1beta1.VirtualService{
		TypeMeta:   metav1.TypeMeta{APIVersion: VirtualServices.GroupVersion().String(), Kind: "VirtualService"},
		ObjectMeta: r.meta(r.name(settings.VirtualService, e), r.annotations()),
		Spec: istioapi.VirtualService{
			Hosts: []string{e.Host}, Gateways: []string{r.Settings.IstioGateway}, Http: []*istioapi.HTTPRoute{rule},
		},
	}
}

// uris matches a path and all paths below it. Istio compares a prefix character by character, so that "/a" matches "/ab": the
// path is matched exactly, and with a slash as a prefix. Istio wants header names in lower case.
func uris(e *plan.Exposure) []*istioapi.HTTPMatchRequest {
	match := func(uri *istioapi.StringMatch) *istioapi.HTTPMatchRequest {
		m := &istioapi.HTTPMatchRequest{Uri: uri}
		if e.Model.Header != "" {
			m.Headers = map[string]*istioapi.StringMatch{strings.ToLower(e.Model.Header): {MatchType: &istioapi.StringMatch_Exact{Exact: e.Model.Name}}}
		}
		return m
	}
	all := []*istioapi.HTTPMatchRequest{match(&istioapi.StringMatch{MatchType: &istioapi.StringMatch_Prefix{Prefix: e.Path}})}
	if e.Path != "/" {
		all = append(all, match(&istioapi.StringMatch{MatchType: &istioapi.StringMatch_Exact{Exact: prefix(e.Path)}}))
	}
	return all
}
