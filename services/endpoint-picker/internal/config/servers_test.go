package config

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const oneServer, proxyFlag = "--servers=http://10.0.0.1:8000", "--proxy-bind-address=:8080"

func TestServers(t *testing.T) {
	t.Parallel()
	c, err := parseFlags([]string{oneServer + ", https://vllm:8443", "--servers=http://[fd00::1]:8000", proxyFlag}, io.Discard)
	require.NoError(t, err)
	servers, err := c.Pool.Servers.Parse()
	require.NoError(t, err)
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, s.Address())
	}
	assert.Equal(t, []string{"10.0.0.1:8000", "vllm:8443", "[fd00::1]:8000"}, addresses)
	assert.Equal(t, "servers", c.Pool.String())
	assert.True(t, c.Pool.IsLocal())
	assert.False(t, c.Metrics.Auth)
	verified := c.Pool.Servers.TLS()
	require.NotNil(t, verified.InsecureSkipVerify)
	assert.False(t, *verified.InsecureSkipVerify)
}

func TestWrongServers(t *testing.T) {
	t.Parallel()
	const secure = "--servers=https://vllm"
	many := make([]string, maxServers+1)
	for i := range many {
		many[i] = fmt.Sprintf("http://10.0.%d.%d", i>>8, i&255)
	}
	tests := []struct {
		name string
		give []string
		want string
	}{
		{name: "and a file", give: []string{oneServer, "--endpoints-file=/f"}, want: "--servers and --endpoints-file are mutually exclusive: give only one of them"},
		{name: "and a pool", give: []string{oneServer, "--pool-name=p"}, want: "--servers and --pool-name are mutually exclusive: give only one of them"},
		{name: "and ports", give: []string{oneServer, "--endpoint-target-ports=1"}, want: "--endpoint-target-ports has no effect with --servers, which sets the ports: leave it out"},
		{name: "and tokens", give: []string{oneServer, "--metrics-endpoint-auth"}, want: "--metrics-endpoint-auth needs the API server, which --servers does not use: leave one of them out"},
		{name: "none", give: []string{"--servers="}, want: `--servers "" has no scheme: give a URL such as http://10.0.0.1:8000`},
		{name: "a comma too many", give: []string{oneServer + ","}, want: `--servers "" has no scheme: give a URL such as http://10.0.0.1:8000`},
		{name: "twice", give: []string{oneServer, "--servers=http://10.0.0.1:8000/"}, want: `--servers "http://10.0.0.1:8000/" is listed twice, first as "http://10.0.0.1:8000": leave one of them out`},
		{name: "with and without TLS", give: []string{oneServer + ",https://10.0.0.1:8000"}, want: `--servers "https://10.0.0.1:8000" is listed twice, first as "http://10.0.0.1:8000": leave one of them out`},
		{name: "too many", give: []string{"--servers=" + strings.Join(many, ",")}, want: "--servers has 1001 URLs: give at most 1000"},
		{name: "several problems", give: []string{"--servers=vllm:8000,http://vllm/v1", "--drain-delay=-1s", "--pool-name=p"}, want: "--servers and --pool-name are mutually exclusive: give only one of them\n" +
			`--servers "vllm:8000" has no scheme: give a URL such as http://10.0.0.1:8000` + "\n" +
			`--servers "http://vllm/v1" has more than a host and a port, but requests bring their own path: give http://vllm` + "\n" +
			"--drain-delay -1s is negative: give 0 for no delay"},
		{name: "authority without https", give: []string{oneServer, "--servers-ca-file=/ca.pem"}, want: "--servers-ca-file has no effect without an https URL in --servers: leave it out"},
		{name: "no verification without https", give: []string{oneServer, "--servers-insecure-skip-verify"}, want: "--servers-insecure-skip-verify has no effect without an https URL in --servers: leave it out"},
		{name: "authority of a pool", give: []string{"--pool-name=p", "--servers-ca-file=/ca.pem"}, want: "--servers-ca-file has no effect without an https URL in --servers: leave it out"},
		{name: "authority and no verification", give: []string{secure, "--servers-ca-file=/ca.pem", "--servers-insecure-skip-verify"}, want: "--servers-ca-file and --servers-insecure-skip-verify are mutually exclusive: give only one of them"},
		{
			name: "scheme of pages", give: []string{secure, "--model-server-metrics-scheme=https", "--model-server-metrics-https-insecure-skip-verify"},
			want: "--model-server-metrics-scheme has no effect with --servers, whose URLs say how to read metrics: leave it out\n" +
				"--model-server-metrics-https-insecure-skip-verify has no effect with --servers, whose URLs say how to read metrics: leave it out",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := parseFlags(tt.give, io.Discard)
			require.EqualError(t, err, tt.want)
		})
	}
}

// TestPortsOfGatewaysNobodyAskedFor closes the ports of gateways where requests come by another listener.
func TestPortsOfGatewaysNobodyAskedFor(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name               string
		give               []string
		closed, noneHealth bool
	}{
		{name: "proxy", give: []string{oneServer, proxyFlag}, closed: true, noneHealth: true},
		{name: "decision API", give: []string{oneServer, "--decision-bind-address=:9008"}, closed: true, noneHealth: true},
		{name: "no other listener", give: []string{oneServer}},
		{name: "port for gateways", give: []string{oneServer, proxyFlag, "--grpc-port=9002"}},
		{name: "port for gateways, old name", give: []string{oneServer, proxyFlag, "--grpcPort=9002"}},
		{name: "port for health", give: []string{oneServer, proxyFlag, "--grpc-health-port=9003"}, closed: true},
		{name: "file", give: []string{"--endpoints-file=/f", proxyFlag}},
		{name: "pool", give: []string{"--pool-name=p", proxyFlag}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := parseFlags(tt.give, io.Discard)
			require.NoError(t, err)
			assert.Equal(t, tt.closed, c.GRPC.Closed)
			assert.Equal(t, tt.noneHealth, c.GRPC.HealthClosed)
		})
	}
}
