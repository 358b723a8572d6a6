package ingressreconciler_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/deploy/charts/internal/helm"
)

// TestSchemaRefuses checks mistakes that would otherwise show at run time, or never.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	config := func(key string, value any) helm.Values { return helm.Values{"config": helm.Values{key: value}} }
	for _, tt := range []struct {
		name string
		give helm.Values
		want string // the path in the message
	}{
		{name: "value that does not exist", give: helm.Values{"replicaCount": 1}, want: "replicaCount"},
		{name: "kind that does not exist", give: helm.Values{"kinds": []string{"httproute"}}, want: "/kinds/0"},
		{name: "no kinds", give: helm.Values{"kinds": []string{}}, want: "/kinds"},
		{name: "kind twice", give: helm.Values{"kinds": []string{"ingresses", "ingresses"}}, want: "/kinds"},
		{name: "former knob of Services", give: helm.Values{"rbac": helm.Values{"services": true}}, want: "/rbac"},
		{name: "duration", give: helm.Values{"maxRetryDelay": "1 minute"}, want: "/maxRetryDelay"},
		{name: "digest", give: helm.Values{"image": helm.Values{"digest": "sha256:abc"}}, want: "/image/digest"},
		{name: "enabled", give: helm.Values{"enabled": "yes"}, want: "/enabled"},
		{name: "misspelled key of config", give: config("ingresDomain", "example.com"), want: "ingresDomain"},
		{name: "type of a key", give: config("componentHosts", "true"), want: "/config/componentHosts"},
		{name: "strategy", give: config("strategy", "gateway"), want: "/config/strategy"},
		{name: "Gateway without namespace", give: config("omeIngressGateway", "public"), want: "/config/omeIngressGateway"},
		{name: "timeout", give: config("defaultRouteTimeoutSeconds", -1), want: "/config/defaultRouteTimeoutSeconds"},
		{name: "issuer", give: config("tlsIssuer", "letsencrypt"), want: "/config/tlsIssuer"},
		{name: "key of a pool", give: config("inferencePool", helm.Values{"picker": "x"}), want: "/config/inferencePool"},
		{name: "failure mode", give: config("inferencePool", helm.Values{"endpointPickerRef": helm.Values{"name": "p", "failureMode": "Open"}}), want: "failureMode"},
		{name: "key of an override", give: config("overrides", []any{helm.Values{"namespace": "research"}}), want: "/config/overrides/0"},
		{name: "holdSeconds in an override", give: config("overrides", []any{helm.Values{"holdSeconds": 1}}), want: "/config/overrides/0"},
		{name: "operator", give: config("overrides", []any{helm.Values{"selector": helm.Values{"matchExpressions": []any{helm.Values{"key": "a", "operator": "Is"}}}}}), want: "operator"},
		{name: "Gateway of a namespace", give: config("namespaceIngressGateways", helm.Values{"research": helm.Values{"primary": helm.Values{}}}), want: "omeIngressGateway"},
		{name: "domains that are no list", give: config("allowedDomains", helm.Values{"*": "example.com"}), want: "/config/allowedDomains"},
		{name: "alert that does not exist", give: helm.Values{"prometheusRule": helm.Values{"enabled": true, "disabledAlerts": []string{"Down"}}}, want: "there is no alert Down"},
		{name: "config and configMap", give: helm.Values{"config": helm.Values{"holdSeconds": 1}, "configMap": helm.Values{"name": "routes"}}, want: "set only one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := helm.Template(chart, tt.give)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}
