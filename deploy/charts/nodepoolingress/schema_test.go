package nodepoolingress_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/deploy/charts/internal/helm"
)

// TestSchemaRefuses checks mistakes that would otherwise show at run time, or never.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	profiles := func(values helm.Values) helm.Values { return helm.Values{"profiles": values} }
	exposures := func(values helm.Values) helm.Values { return helm.Values{"exposures": values} }
	for _, tt := range []struct {
		name string
		give helm.Values
		want string // in the message
	}{
		{name: "value that does not exist", give: helm.Values{"replicaCount": 1}, want: "replicaCount"},
		{name: "duration", give: helm.Values{"discoveryInterval": "5 minutes"}, want: "/discoveryInterval"},
		{name: "no label", give: helm.Values{"poolLabelKeys": []string{}}, want: "/poolLabelKeys"},
		{name: "label", give: helm.Values{"poolLabelKeys": []string{"a b"}}, want: "/poolLabelKeys/0"},
		{name: "class in upper case", give: helm.Values{"ingressClassPrefix": "Edge-"}, want: "/ingressClassPrefix"},
		{name: "profile", give: profiles(helm.Values{"default": "nginx"}), want: "/profiles/default"},
		{name: "profile that is not enabled", give: profiles(helm.Values{"default": "nginx-f5"}), want: "profiles.default nginx-f5: add it to profiles.enabled"},
		{name: "image of an unknown profile", give: profiles(helm.Values{"images": helm.Values{"nginx": "nginx:1"}}), want: "invalid propertyName 'nginx'"},
		{name: "image of a profile that is not enabled", give: profiles(helm.Values{"images": helm.Values{"nginx-f5": "nginx:1"}}), want: "profiles.images.nginx-f5: add the profile"},
		{name: "repository without its registry", give: profiles(helm.Values{"allowedImages": []string{"traefik"}}), want: "/profiles/allowedImages/0"},
		{name: "repository with a tag", give: profiles(helm.Values{"allowedImages": []string{"docker.io/library/traefik:v3"}}), want: "/profiles/allowedImages/0"},
		{name: "roles without custom manifests", give: profiles(helm.Values{"customClusterRoles": []string{"caddy"}}), want: "only with custom in profiles.enabled"},
		{name: "exposure", give: exposures(helm.Values{"allowed": []string{"Ingress"}}), want: "/exposures/allowed/0"},
		{name: "external addresses without ranges", give: exposures(helm.Values{"allowed": []string{"ExternalIPs"}}), want: "list the addresses that pools may have"},
		{name: "ranges without external addresses", give: exposures(helm.Values{"externalIPRanges": []string{"192.0.2.0/24"}}), want: "only with ExternalIPs in exposures.allowed"},
		{name: "address that is no range", give: exposures(helm.Values{"externalIPRanges": []string{"192.0.2.1"}}), want: "/exposures/externalIPRanges/0"},
		{name: "class of load balancers", give: exposures(helm.Values{"loadBalancerClasses": []string{"metallb io"}}), want: "/exposures/loadBalancerClasses/0"},
		{name: "address of a load balancer that is no range", give: exposures(helm.Values{"loadBalancerIPRanges": []string{"198.51.100.1"}}), want: "/exposures/loadBalancerIPRanges/0"},
		{name: "classes without load balancers", give: exposures(helm.Values{"allowed": []string{"NodePort"}, "loadBalancerClasses": []string{"metallb.io/edge"}}), want: "only with LoadBalancer"},
		{name: "ports without exposures on hosts", give: exposures(helm.Values{"allowed": []string{"NodePort"}, "hostPorts": []any{80}}), want: "only with HostPort or HostNetwork"},
		{name: "port", give: exposures(helm.Values{"hostPorts": []any{"http"}}), want: "/exposures/hostPorts/0"},
		{name: "API server without TLS", give: helm.Values{"cache": helm.Values{"upstreamServer": "http://192.0.2.1"}}, want: "/cache/upstreamServer"},
		{name: "pull secret as an object", give: helm.Values{"controllers": helm.Values{"imagePullSecrets": []any{helm.Values{"name": "a"}}}}, want: "/controllers/imagePullSecrets/0"},
		{name: "alert that does not exist", give: helm.Values{"prometheusRule": helm.Values{"enabled": true, "disabledAlerts": []string{"Down"}}}, want: "there is no alert Down"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := helm.Template(chart, tt.give)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}
