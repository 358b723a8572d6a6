package variantautoscaler_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/deploy/charts/internal/helm"
)

// TestSchemaRefuses checks mistakes that would otherwise show at run time, or never.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	price := func(values helm.Values) helm.Values {
		return with(helm.Values{"acceleratorUnitCosts": helm.Values{"H100": values}})
	}
	class := func(values helm.Values) helm.Values {
		return with(helm.Values{"serviceClasses": helm.Values{"premium.yaml": values}})
	}
	item := func(values helm.Values) helm.Values { return class(helm.Values{"data": []any{values}}) }
	limit := func(values helm.Values) helm.Values { return with(helm.Values{"limits": helm.Values{"key": values}}) }
	plan := func(values helm.Values) helm.Values { return with(helm.Values{"plan": values}) }
	scaler := func(values helm.Values) helm.Values { return with(helm.Values{"externalScaler": values}) }
	for _, tt := range []struct {
		name string
		give helm.Values
		want string // in the message
	}{
		{name: "value that does not exist", give: with(helm.Values{"replicaCount": 1}), want: "replicaCount"},
		{name: "no address", give: nil, want: "set prometheus.url"},
		{name: "address that is none", give: prometheus(helm.Values{"url": "prometheus:9090"}), want: "/prometheus/url"},
		{name: "address with a password", give: prometheus(helm.Values{"url": "https://user:secret@prometheus"}), want: "/prometheus/url"},
		{name: "address without TLS", give: prometheus(helm.Values{"url": "http://prometheus"}), want: "prometheus.url: it is not encrypted"},
		{name: "token in the values", give: prometheus(helm.Values{"bearerToken": "secret"}), want: "/prometheus"},
		{name: "token as the name of a Secret", give: prometheus(helm.Values{"token": helm.Values{"secret": "eyJhbGciOiJSUzI1NiJ9.e30.A_b"}}), want: "/prometheus/token/secret"},
		{name: "two lists of authorities", give: prometheus(helm.Values{"ca": helm.Values{"secret": "a", "configMap": "b"}}), want: "prometheus.ca.secret and prometheus.ca.configMap"},
		{name: "two tokens", give: prometheus(helm.Values{"token": helm.Values{"secret": "a", "serviceAccount": true}}), want: "prometheus.token.secret and prometheus.token.serviceAccount"},
		{name: "window", give: prometheus(helm.Values{"metricsWindow": "1 minute"}), want: "/prometheus/metricsWindow"},
		{name: "interval", give: with(helm.Values{"optimization": helm.Values{"interval": "60"}}), want: "/optimization/interval"},
		{name: "key of Prometheus in optimization", give: with(helm.Values{"optimization": helm.Values{"PROMETHEUS_BEARER_TOKEN": "secret"}}), want: "/optimization"},
		{name: "price that is a number", give: price(helm.Values{"cost": 40}), want: "/acceleratorUnitCosts/H100/cost"},
		{name: "price in words", give: price(helm.Values{"cost": "40 cents"}), want: "/acceleratorUnitCosts/H100/cost"},
		{name: "price that is too high", give: price(helm.Values{"cost": "1000001"}), want: "/acceleratorUnitCosts/H100/cost"},
		{name: "accelerator without a price", give: with(helm.Values{"acceleratorUnitCosts": helm.Values{"B200": helm.Values{"device": "NVIDIA-B200"}}}), want: "/acceleratorUnitCosts/B200"},
		{name: "name of an accelerator", give: with(helm.Values{"acceleratorUnitCosts": helm.Values{"H100 SXM": helm.Values{"cost": "1"}}}), want: "H100 SXM"},
		{name: "key of a price", give: price(helm.Values{"cost": "1", "price": "1"}), want: "/acceleratorUnitCosts/H100"},
		{name: "class without models", give: class(helm.Values{"priority": 1}), want: "/serviceClasses/premium.yaml"},
		{name: "priority", give: class(helm.Values{"priority": 0, "data": []any{}}), want: "/serviceClasses/premium.yaml/priority"},
		{name: "item without a model", give: item(helm.Values{"slo-ttft": 500}), want: "/serviceClasses/premium.yaml/data/0"},
		{name: "item without targets", give: item(helm.Values{"model": "llama"}), want: "/serviceClasses/premium.yaml/data/0"},
		{name: "target in seconds", give: item(helm.Values{"model": "llama", "slo-ttft": "1s"}), want: "/serviceClasses/premium.yaml/data/0/slo-ttft"},
		{name: "target of a week", give: item(helm.Values{"model": "llama", "slo-ttft": 604800000}), want: "/serviceClasses/premium.yaml/data/0/slo-ttft"},
		{name: "key of scaleToZero", give: with(helm.Values{"scaleToZero": helm.Values{"key": helm.Values{"enabled": true}}}), want: "/scaleToZero/key"},
		{name: "retention", give: with(helm.Values{"scaleToZero": helm.Values{"key": helm.Values{"retentionPeriod": 600}}}), want: "/scaleToZero/key/retentionPeriod"},
		{name: "threshold in percent", give: with(helm.Values{"saturation": helm.Values{"default": helm.Values{"kvCacheThreshold": 80}}}), want: "/saturation/default/kvCacheThreshold"},
		{name: "negative limit", give: limit(helm.Values{"cards": -1}), want: "/limits/key/cards"},
		{name: "limit of cost that is a number", give: limit(helm.Values{"cost": 100}), want: "/limits/key/cost"},
		{name: "pattern of namespaces", give: limit(helm.Values{"namespace": "team-*", "cards": 1}), want: "/limits/key/namespace"},
		{name: "actuator", give: with(helm.Values{"actuator": "Scale"}), want: "/actuator"},
		{name: "split", give: plan(helm.Values{"split": "even"}), want: "/plan/split"},
		{name: "headroom", give: plan(helm.Values{"headroomPercent": 1001}), want: "/plan/headroomPercent"},
		{name: "saving", give: plan(helm.Values{"savingPercent": 101}), want: "/plan/savingPercent"},
		{name: "percentile", give: plan(helm.Values{"ttftPercentile": 100}), want: "/plan/ttftPercentile"},
		{name: "instance", give: with(helm.Values{"controllerInstance": "a b"}), want: "/controllerInstance"},
		{name: "ConfigMap of nothing", give: with(helm.Values{"configMaps": helm.Values{"classes": "a"}}), want: "/configMaps"},
		{name: "ConfigMap without a name", give: with(helm.Values{"configMaps": helm.Values{"serviceClasses": "a/b"}}), want: "/configMaps/serviceClasses"},
		{name: "namespace of ConfigMaps", give: with(helm.Values{"configNamespace": "a/b"}), want: "/configNamespace"},
		{name: "targets of all kinds", give: with(helm.Values{"scaleTargets": []any{helm.Values{"apiGroup": "*", "resource": "*"}}}), want: "/scaleTargets/0"},
		{name: "holds that are off", give: with(helm.Values{"holds": helm.Values{"enabled": false, "caSecret": "ca"}}), want: "set holds.enabled"},
		{name: "a token for anybody", give: with(helm.Values{"holds": helm.Values{"token": true}}), want: "set holds.caSecret"},
		{name: "scaler that is off", give: scaler(helm.Values{"certificateSecret": "tls"}), want: "set externalScaler.enabled"},
		{name: "authorities without TLS", give: scaler(helm.Values{"enabled": true, "clientCASecret": "ca"}), want: "set externalScaler.certificateSecret too"},
		{name: "names without authorities", give: scaler(helm.Values{"enabled": true, "certificateSecret": "tls", "clientNames": []string{"keda"}}), want: "set externalScaler.clientCASecret"},
		{name: "two names in one", give: scaler(helm.Values{"enabled": true, "clientNames": []string{"a,b"}}), want: "/externalScaler/clientNames/0"},
		{name: "port of Prometheus that is not known", give: helm.Values{"optimization": nil, "networkPolicy": helm.Values{"enabled": true}}, want: "networkPolicy.prometheus.ports"},
		{name: "alert that does not exist", give: with(helm.Values{"prometheusRule": helm.Values{"enabled": true, "disabledAlerts": []string{"Down"}}}), want: "there is no alert Down"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := helm.Template(chart, tt.give)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}
