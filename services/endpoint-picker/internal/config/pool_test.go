package config

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
)

func TestWhereEndpointsComeFrom(t *testing.T) {
	t.Setenv("NAMESPACE", "models")
	c, err := parseFlags([]string{"--pool-name=pool"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "models/pool", c.Pool.String())

	c, err = parseFlags([]string{"--endpoint-selector=app in (vllm, sglang),!canary", "--endpoint-target-ports=8001, 8000"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "models/app in (sglang,vllm),!canary", c.Pool.String())
	assert.Equal(t, Ports{8001, 8000}, c.Pool.TargetPorts, "their order is that of the ranks")
	assert.Equal(t, "8001,8000", c.Pool.TargetPorts.String())
	assert.True(t, c.Pool.Selector.Matches(labels.Set{"app": "sglang"}))
	assert.False(t, c.Pool.Selector.Matches(labels.Set{"app": "sglang", "canary": ""}))

	c, err = parseFlags([]string{"--endpoints-file=/etc/endpoints.yaml", "--pool-namespace="}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "servers", c.Pool.String(), "a name, and no path")
}

func TestEndpointsComeFromExactlyOnePlace(t *testing.T) {
	t.Parallel()
	selector, ports := "--endpoint-selector=app=vllm", "--endpoint-target-ports=8000"
	tests := []struct {
		name string
		give []string
		want string
	}{
		{name: "pool and selector", give: []string{"--pool-name=p", selector, ports}, want: "--pool-name and --endpoint-selector are mutually exclusive: give only one of them"},
		{name: "pool and file", give: []string{"--pool-name=p", "--endpoints-file=/f"}, want: "--pool-name and --endpoints-file are mutually exclusive: give only one of them"},
		{name: "all three", give: []string{"--pool-name=p", "--endpoints-file=/f", selector}, want: "--pool-name and --endpoint-selector and --endpoints-file are mutually exclusive: give only one of them"},
		{name: "only ports", give: []string{ports}, want: "--pool-name is missing: give the name of the InferencePool to serve, or else --servers, --endpoint-selector or --endpoints-file"},
		{name: "selector without ports", give: []string{selector}, want: "--endpoint-target-ports is missing: give the ports of the pods that --endpoint-selector selects"},
		{name: "pool with ports", give: []string{"--pool-name=p", ports}, want: "--endpoint-target-ports has no effect with --pool-name, which sets the ports: leave it out"},
		{name: "file and metrics for some", give: []string{"--endpoints-file=/f", "--metrics-endpoint-auth"}, want: "--metrics-endpoint-auth needs the API server, which --endpoints-file does not use: leave one of them out"},
		{name: "file with ports", give: []string{"--endpoints-file=/f", ports}, want: "--endpoint-target-ports has no effect with --endpoints-file, which sets the ports: leave it out"},
		{name: "selector without namespace", give: []string{selector, ports, "--pool-namespace="}, want: "--pool-namespace is empty: give the namespace of the InferencePool or the pods, or leave the flag out"},
		{name: "no selector", give: []string{"--endpoint-selector=", ports}, want: "--endpoint-selector: it is empty and would select every pod: give one such as app=vllm"},
		{name: "malformed selector", give: []string{"--endpoint-selector=app==", "--endpoint-target-ports=0"}, want: `--endpoint-target-ports: "0" is not a port: give ports from 1 to 65535, separated by commas`},
		{name: "unfinished selector", give: []string{"--endpoint-selector=app in (a"}, want: "--endpoint-selector: it is not a label selector such as app=vllm: unable to parse requirement: found '', expected: ',' or ')'"},
		{name: "a port by name", give: []string{selector, "--endpoint-target-ports=8000,http"}, want: `--endpoint-target-ports: "http" is not a port: give ports from 1 to 65535, separated by commas`},
		{name: "a large port", give: []string{selector, "--endpoint-target-ports=65536"}, want: `--endpoint-target-ports: "65536" is not a port: give ports from 1 to 65535, separated by commas`},
		{name: "no port", give: []string{selector, "--endpoint-target-ports="}, want: `--endpoint-target-ports: "" is not a port: give ports from 1 to 65535, separated by commas`},
		{name: "a port twice", give: []string{selector, "--endpoint-target-ports=1,2,1"}, want: "--endpoint-target-ports: port 1 is listed twice"},
		{name: "nine ports", give: []string{selector, "--endpoint-target-ports=1,2,3,4,5,6,7,8,9"}, want: "--endpoint-target-ports: it has 9 ports: give at most 8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := parseFlags(tt.give, io.Discard)
			require.EqualError(t, err, tt.want)
		})
	}
}
