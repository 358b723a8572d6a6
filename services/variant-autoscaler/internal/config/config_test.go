package config

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/settings"
)

func nothing(string) string { return "" }

func parse(t *testing.T, args ...string) *Config {
	t.Helper()
	c := Default(nothing)
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.AddFlags(fs)
	require.NoError(t, fs.Parse(args))
	return c
}

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	require.NoError(t, parse(t).Validate())
	assert.Equal(t, "workload-variant-autoscaler-system", parse(t).Namespace)
	c := Default(func(name string) string {
		return map[string]string{"POD_NAMESPACE": "fairlead", "CONTROLLER_INSTANCE": "blue"}[name]
	})
	assert.Equal(t, "fairlead", c.Namespace)
	assert.Equal(t, "blue", c.Instance)
	assert.True(t, c.Plan.Trials)
	assert.Equal(t, ActuatorMetrics, c.Actuator)
	assert.Equal(t, "mine", parse(t, "--config-map=classes=mine").Settings(nil).Names[settings.Classes])
	assert.False(t, parse(t, "--trials=false").Plan.Trials)
}

func TestValidate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		args []string
		want string // part of the error; empty: none
	}{
		{[]string{"--split=capacity", "--headroom-percent=0", "--saving-percent=100", "--ttft-percentile=0"}, ""},
		{[]string{"--actuator=scale"}, ""},
		{[]string{"--actuator=Scale"}, `--actuator "Scale" is not one of metrics, scale: give scale to let this program write replicas`},
		{[]string{"--actuator="}, `--actuator "" is not one of metrics, scale`},
		{[]string{"--split=half"}, `--split "half" is not one of observed, capacity, equal`},
		{[]string{"--headroom-percent=-1"}, "--headroom-percent -1 is out of range"},
		{[]string{"--headroom-percent=1001"}, "--headroom-percent 1001 is out of range"},
		{[]string{"--saving-percent=-1"}, "--saving-percent -1 is out of range"},
		{[]string{"--saving-percent=101"}, "--saving-percent 101 is out of range"},
		{[]string{"--ttft-percentile=100"}, "--ttft-percentile 100 is out of range"},
		{[]string{"--ttft-percentile=NaN"}, "--ttft-percentile NaN is out of range"},
		{[]string{"--stabilization-window=0s"}, ""},
		{[]string{"--stabilization-window=-1s"}, "--stabilization-window -1s is out of range"},
		{[]string{"--stabilization-window=25h"}, "--stabilization-window 25h0m0s is out of range"},
		{[]string{"--metrics-window=9s"}, "--metrics-window 9s is out of range"},
		{[]string{"--discovery-interval=0s"}, "--discovery-interval 0s is out of range"},
		{[]string{"--config-namespace=A"}, `--config-namespace "A" is not the name of a namespace`},
		{[]string{"--config-namespace="}, `--config-namespace "" is not the name of a namespace`},
		{[]string{"--config-map=prices=x"}, `--config-map: "prices" is not one of optimization, accelerators, classes, scale-to-zero, saturation, limits`},
		{[]string{"--config-map=classes=a/b"}, `--config-map: "a/b" is not the name of a ConfigMap`},
		{[]string{"--controller-instance=-a"}, `--controller-instance "-a" is not the value of a label`},
		{[]string{"--scaler-bind-address=:9443", "--scaler-certificates=/c", "--scaler-client-ca-file=/ca", "--scaler-client-name=keda"}, ""},
		{[]string{"--scaler-bind-address=9443"}, `--scaler-bind-address "9443" is not host:port`},
		{[]string{"--scaler-certificates=/c"}, "require --scaler-bind-address"},
		{[]string{"--scaler-bind-address=:1", "--scaler-client-ca-file=/ca"}, "--scaler-client-ca-file requires --scaler-certificates"},
		{[]string{"--scaler-bind-address=:1", "--scaler-client-name=keda"}, "--scaler-client-name requires --scaler-client-ca-file"},
		{[]string{"--holds-ca-file=/ca", "--holds-token-file=/token"}, ""},
		{[]string{"--holds-token-file=/token"}, "--holds-token-file requires --holds-ca-file"},
		{[]string{"--follow-holds=false", "--holds-ca-file=/ca"}, "require --follow-holds"},
		{[]string{"--kube-api-qps=0"}, "--kube-api-qps"},
		{[]string{"--metrics-bind-address=x"}, "--metrics-bind-address"},
		{[]string{"--log-level=loud"}, "--log-level"},
		{[]string{"--leader-election-lease-duration=1ms"}, "--leader-election"},
	}
	for _, tt := range tests {
		err := parse(t, tt.args...).Validate()
		if tt.want == "" {
			require.NoError(t, err, tt.args)
			continue
		}
		require.ErrorContains(t, err, tt.want, tt.args)
	}
}

// TestValidateNamesAll: several mistakes are one message.
func TestValidateNamesAll(t *testing.T) {
	t.Parallel()
	err := parse(t, "--split=half", "--saving-percent=101", "--metrics-window=1s").Validate()
	for _, want := range []string{"--split", "--saving-percent", "--metrics-window"} {
		require.ErrorContains(t, err, want)
	}
}
