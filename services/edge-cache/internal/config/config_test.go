package config

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		flag, value, wantErr string
	}{
		{"pool", "edge", ""},
		{"pool", "", "--pool is empty"},
		{"pool", "a b", "--pool"},
		{"pool-label-key", "a/b/c", "--pool-label-key"},
		{"membership", "nodepool", ""},
		{"membership", "both", "neither labels nor nodepool"},
		{"nodepool-version", "../v1", "--nodepool-version"},
		{"unlocated-endpoints", "ignore", "neither keep nor drop"},
		{"profile", "unknown", "is not one of"},
		{"resources", "apps/v1/deployments", "--resources"},
		{"namespaces", "a,b", ""},
		{"namespaces", "a,a", "twice"},
		{"namespaces", "A", "--namespaces"},
		{"secrets", "a/b", ""},
		{"secrets", "b", "is not namespace/name"},
		{"secrets", "a/b/c", "is not namespace/name"},
		{"listen-address", "[::1]:16443", ""},
		{"listen-address", "0.0.0.0:16443", "not a loopback address"},
		{"listen-address", "localhost:16443", "not a loopback address"},
		{"listen-address", "127.0.0.1", "not host:port"},
		{"credentials-dir", "", "--credentials-dir is empty"},
		{"max-watches", "0", "less than one"},
		{"upstream-server", "", "either --upstream-server or --kubeconfig"},
		{"kubeconfig", "file", "either --upstream-server or --kubeconfig"},
		{"upstream-server", "http://api.example", "does not begin with https"},
		{"upstream-server", "http://127.0.0.1:80@api.example", "does not begin with https"},
		{"upstream-server", "https://", "does not begin with https"},
		{"data-dir", "", "--data-dir is empty"},
		{"cri-socket", "/run/cri.sock", "--cri-socket and --probe-addresses need --node-name"},
		{"probe-addresses", "true", "--cri-socket and --probe-addresses need --node-name"},
	}
	for _, tt := range tests {
		t.Run(tt.flag+"="+tt.value, func(t *testing.T) {
			t.Parallel()
			c := Default()
			fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
			c.AddFlags(fs)
			require.NoError(t,
				fs.Parse([]string{"--pool=edge", "--upstream-server=https://api.example:6443", "--" + tt.flag + "=" + tt.value}))
			err := c.Validate()
			if tt.wantErr == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.wantErr)
		})
	}
}

func TestClassIsThePoolByDefault(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Pool.Name = "edge"
	assert.Equal(t, "edge", c.IngressClassName())
	c.Client.IngressClass = "other"
	assert.Equal(t, "other", c.IngressClassName())
}
