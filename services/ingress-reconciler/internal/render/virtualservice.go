package render

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	istioapi "istio.io/api/networking/v1beta1"
	istiov1beta1 "istio.io/client-go/pkg/apis/networking/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// knativePort is the port of the Knative gateway.
const knativePort = 80

// virtualService returns the VirtualService of an exposure.
//
// Istio evaluates the VirtualServices of a host in the order of their age, not of their paths. So each VirtualService contains, before
// its own rule, the rules of the service's more specific exposures: routing does not depend on the age.
func (r *renderer) virtualService(p *plan.Plan, e *plan.Exposure) *istiov1beta1.VirtualService {
	var rules []*istioapi.HTTPRoute
	for _, x := range moreSpecific(p, e) {
		rules = append(rules, r.istioRule(x, e.Model))
	}
	return &istiov1beta1.VirtualService{
		TypeMeta:   metav1.TypeMeta{APIVersion: VirtualServices.GroupVersion().String(), Kind: "VirtualService"},
		ObjectMeta: r.objectMeta(r.objectName(settings.VirtualService, e), r.routeAnnotations()),
		Spec: istioapi.VirtualService{
			Hosts: []string{e.Host}, Gateways: []string{r.Settings.IstioGateway}, Http: append(rules, r.istioRule(e, e.Model)),
		},
	}
}

// moreSpecific returns the exposures of a plan with a longer path inside the path of e, longest path first. An exposure of a whole host
// needs none, because Istio evaluates such rules last.
func moreSpecific(p *plan.Plan, e *plan.Exposure) []*plan.Exposure {
	if e.Path == "/" && e.Model.Header == "" {
		return nil
	}
	var exposures []*plan.Exposure
	for i := range p.Exposures {
		x := &p.Exposures[i]
		if x.Host == e.Host && len(x.Path) > len(e.Path) && strings.HasPrefix(x.Path, e.Path) && x.Model.Header == "" {
			exposures = append(exposures, x)
		}
	}
	slices.SortStableFunc(exposures, func(a, b *plan.Exposure) int { return cmp.Compare(len(b.Path), len(a.Path)) })
	return exposures
}

// istioRule returns the rule of an exposure for requests of a model. It routes to the Service of the component, or to the
// Knative gateway, which selects a Knative Service by its host.
func (r *renderer) istioRule(e *plan.Exposure, model plan.Model) *istioapi.HTTPRoute {
	host := func(service string) string {
		return service + "." + r.Service.Namespace + ".svc." + r.Settings.ClusterDomain
	}
	to, rewrite := &istioapi.Destination{
		Host: host(e.Backend.Name), Port: &istioapi.PortSelector{Number: uint32(e.Backend.Port)},
	}, &istioapi.HTTPRewrite{}
	if e.Backend.Knative != "" {
		to.Host, to.Port.Number = r.Settings.KnativeGateway, knativePort
		rewrite.Authority = host(e.Backend.Knative)
	}
	rule := &istioapi.HTTPRoute{
		Match: uriMatches(e.Path, model),
		Route: []*istioapi.HTTPRouteDestination{{Destination: to}},
		Headers: &istioapi.Headers{
			Request: &istioapi.Headers_HeaderOperations{
				Set: map[string]string{headerName: r.Service.Name, headerNamespace: r.Service.Namespace},
			},
		},
	}
	if e.Timeout > 0 { // Istio has no timeout by default, and its CRD rejects 0s
		rule.Timeout = durationpb.New(e.Timeout)
	}
	if e.Path != "/" {
		rewrite.Uri = "/"
	}
	if rewrite.Uri != "" || rewrite.Authority != "" {
		rule.Rewrite = rewrite
	}
	return rule
}

// uriMatches returns matches for a path and all paths below it. Istio compares prefixes by character, so "/a" would match "/ab". The result
// therefore has an exact match for "/a" and a prefix match for "/a/". Istio requires header names in lower case.
func uriMatches(path string, model plan.Model) []*istioapi.HTTPMatchRequest {
	match := func(uri *istioapi.StringMatch) *istioapi.HTTPMatchRequest {
		m := &istioapi.HTTPMatchRequest{Uri: uri}
		if model.Header != "" {
			m.Headers = map[string]*istioapi.StringMatch{
				strings.ToLower(model.Header): {MatchType: &istioapi.StringMatch_Exact{Exact: model.Name}},
			}
		}
		return m
	}
	matches := []*istioapi.HTTPMatchRequest{match(&istioapi.StringMatch{MatchType: &istioapi.StringMatch_Prefix{Prefix: path}})}
	if path != "/" {
		matches = append(matches, match(&istioapi.StringMatch{MatchType: &istioapi.StringMatch_Exact{Exact: trimSlash(path)}}))
	}
	return matches
}
