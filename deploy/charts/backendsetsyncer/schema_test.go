package backendsetsyncer_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/deploy/charts/internal/helm"
)

// TestSchemaRefuses checks mistakes that would otherwise show at run time, or never.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	config := func(key string, value any) helm.Values { return helm.Values{"config": helm.Values{key: value}} }
	balancer := func(key string, value any) helm.Values {
		return config("loadBalancers", []any{helm.Values{"id": "ocid1.loadbalancer.oc1.iad.aaaa", key: value}})
	}
	oci := func(values helm.Values) helm.Values { return helm.Values{"oci": values} }
	for _, tt := range []struct {
		name string
		give helm.Values
		want string // in the message
	}{
		{name: "value that does not exist", give: helm.Values{"replicaCount": 1}, want: "replicaCount"},
		{name: "duration", give: helm.Values{"verifyInterval": "5 minutes"}, want: "/verifyInterval"},
		{name: "misspelled key of config", give: config("loadbalancers", []any{}), want: "loadbalancers"},
		{name: "network load balancer", give: config("loadBalancers", []any{helm.Values{"id": "ocid1.networkloadbalancer.oc1.iad.aaaa"}}), want: "/config/loadBalancers/0/id"},
		{name: "load balancer without OCID", give: config("loadBalancers", []any{helm.Values{"namespaces": []string{"models"}}}), want: "/config/loadBalancers/0"},
		{name: "key of a load balancer", give: balancer("name", "a"), want: "/config/loadBalancers/0"},
		{name: "namespaces that are no list", give: balancer("namespaces", "models"), want: "/config/loadBalancers/0/namespaces"},
		{name: "name of a namespace", give: balancer("namespaces", []string{"team-a-*"}), want: "/config/loadBalancers/0/namespaces/0"},
		{name: "empty pattern", give: balancer("backendSets", []string{""}), want: "/config/loadBalancers/0/backendSets/0"},
		{name: "key of limits", give: balancer("limits", helm.Values{"backendPerSet": 1}), want: "backendPerSet"},
		{name: "negative limit", give: balancer("limits", helm.Values{"backends": -1}), want: "/config/loadBalancers/0/limits/backends"},
		{name: "reserve", give: balancer("limits", helm.Values{"reservedBackends": -2}), want: "/config/loadBalancers/0/limits/reservedBackends"},
		{name: "limit of a pattern of namespaces", give: config("namespaces", helm.Values{"team-*": helm.Values{"bindings": 1}}), want: "/config/namespaces"},
		{name: "key of a namespace", give: config("namespaces", helm.Values{"models": helm.Values{"backends": 1}}), want: "/config/namespaces/models"},
		{name: "address that is no range", give: config("podRanges", []string{"10.0.0.1"}), want: "/config/podRanges/0"},
		{name: "config and configMap", give: helm.Values{"config": configured(), "configMap": helm.Values{"name": "lbs"}}, want: "set only one"},
		{name: "authentication", give: oci(helm.Values{"auth": "instance"}), want: "/oci/auth"},
		{name: "endpoint with a path", give: oci(helm.Values{"endpoint": "https://iaas.us-ashburn-1.oraclecloud.com/20170115"}), want: "/oci/endpoint"},
		{name: "rate", give: oci(helm.Values{"requestsPerSecond": 0.1}), want: "/oci/requestsPerSecond"},
		{name: "key in the values", give: oci(helm.Values{"privateKey": "secret"}), want: "/oci"},
		{name: "API key without a Secret", give: oci(helm.Values{"auth": "api-key"}), want: "set oci.apiKeySecret to the name of a Secret with the keys tenancy, user, region, fingerprint, key.pem"},
		{name: "API key for other credentials", give: oci(helm.Values{"apiKeySecret": "key"}), want: "oci.apiKeySecret: it has an effect only with oci.auth api-key"},
		{name: "configuration file without a Secret", give: oci(helm.Values{"auth": "config-file"}), want: "set oci.configSecret"},
		{name: "configuration file for other credentials", give: oci(helm.Values{"configSecret": "file"}), want: "oci.configSecret: it has an effect only with oci.auth config-file"},
		{name: "workload identity without a region", give: oci(helm.Values{"auth": "workload-identity"}), want: "set oci.region"},
		{name: "webhook without gates", give: helm.Values{"readinessGates": helm.Values{"webhook": helm.Values{"enabled": true}}}, want: "set readinessGates.enabled"},
		{name: "certificate without its authority", give: webhook(helm.Values{"certificateSecret": "tls"}), want: "set readinessGates.webhook.caBundle"},
		{name: "authority without a certificate", give: webhook(helm.Values{"caBundle": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"}), want: "only with readinessGates.webhook.certificateSecret"},
		{name: "authority in base64", give: webhook(helm.Values{"certificateSecret": "tls", "caBundle": "TUlJQg=="}), want: "/readinessGates/webhook/caBundle"},
		{name: "timeout of the webhook", give: webhook(helm.Values{"timeoutSeconds": 60}), want: "/readinessGates/webhook/timeoutSeconds"},
		{name: "failure policy", give: webhook(helm.Values{"failurePolicy": "Fail"}), want: "/readinessGates/webhook"},
		{name: "alert that does not exist", give: helm.Values{"prometheusRule": helm.Values{"enabled": true, "disabledAlerts": []string{"Down"}}}, want: "there is no alert Down"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := helm.Template(chart, tt.give)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}
