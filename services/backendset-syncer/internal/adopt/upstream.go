package adopt

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Names that oke-gateway-api gives to objects of the cluster and of load balancers.
const (
	upstreamGroup          = "oke-gateway-api.gemyago.github.io"
	annotationRules        = upstreamGroup + "/http-route-programmed-lb-policy-rules"
	annotationCertificates = upstreamGroup + "/gateway-programmed-certificates"

	// catchAll is the last rule of each policy. It matches everything, and sends it to the default set.
	catchAll = "default_catch_all"
)

// upstreamPolicy matches the names of policies that do not follow from the name of their listener alone.
var upstreamPolicy = regexp.MustCompile(`^p_[0-9a-f]{16}_`)

// upstreamRule matches the names of rules: the index in the route comes first.
var upstreamRule = regexp.MustCompile(`^p(\d{4,})_[0-9a-f]{1,8}_`)

// isUpstreamPolicy reports whether a policy has a name that oke-gateway-api gives to the policy of a listener.
func isUpstreamPolicy(policy, listener string) bool {
	return policy == strings.ReplaceAll(listener, "-", "_")+"_policy" || policy == listener+"_policy" || upstreamPolicy.MatchString(policy)
}

// ruleIndex returns the index of the rule of a route that a rule of a policy is for.
func ruleIndex(name string) (int, bool) {
	groups := upstreamRule.FindStringSubmatch(name)
	if groups == nil {
		return 0, false
	}
	n, err := strconv.Atoi(groups[1])
	return n, err == nil
}

// maxRules limits the rules in an annotation: a policy has at most 200 conditions, and a route has 16 rules on up to 16 listeners.
const maxRules = 512

// annotatedRules returns the rules that an HTTPRoute has programmed, by listener.
func annotatedRules(r *gatewayv1.HTTPRoute) map[string][]string {
	rules := map[string][]string{}
	for i, entry := range strings.Split(r.Annotations[annotationRules], ",") {
		listener, rule, ok := strings.Cut(strings.TrimSpace(entry), "/")
		if ok && i < maxRules && listener != "" && rule != "" {
			rules[listener] = append(rules[listener], rule)
		}
	}
	return rules
}

// annotatedCertificates returns the names of the certificates that a Gateway has programmed.
func annotatedCertificates(g *gatewayv1.Gateway) map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.Split(g.Annotations[annotationCertificates], ",") {
		if name = strings.TrimSpace(name); name != "" {
			names[name] = true
		}
	}
	return names
}

// upstreamCertificate returns the name of the certificate of a version of a Secret.
func upstreamCertificate(namespace, secret, resourceVersion string) string {
	return fmt.Sprintf("%s-%s-rev-%s", namespace, secret, resourceVersion)
}
