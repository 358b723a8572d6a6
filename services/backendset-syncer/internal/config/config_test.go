package config

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	require.NoError(t, Default().Validate())
}

func TestFlags(t *testing.T) {
	t.Parallel()
	c := Default()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.AddFlags(fs)
	require.NoError(t, fs.Parse([]string{
		"--config-map=a/b", "--readiness-gates", "--webhook-address=:1", "--verify-interval=1m", "--oci-auth=api-key",
		"--oci-region=us-phoenix-1", "--workers=7",
	}))
	require.NoError(t, c.Validate())
	assert.Equal(t, "a/b", c.ConfigMap.String())
	assert.Equal(t, Gates{Enabled: true, Timeout: 5 * time.Minute, Webhook: ":1", Certificates: "/etc/fairlead/webhook"}, c.Gates)
	assert.Equal(t, time.Minute, c.Verify)
	assert.Equal(t, "api-key", c.OCI.Auth)
	assert.Equal(t, "us-phoenix-1", c.OCI.Region)
	assert.Equal(t, 7, c.Work.Workers)
}

func TestInvalidFlags(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"--workers=0": "--workers 0", "--verify-interval=1s": "--verify-interval 1s", "--discovery-interval=1ms": "--discovery-interval",
		"--max-retry-delay=1ms":        "--max-retry-delay",
		"--readiness-gate-timeout=1ms": "--readiness-gate-timeout", "--webhook-address=:1": "only with --readiness-gates",
		"--oci-auth=x": "--oci-auth",
	} {
		c := Default()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		c.AddFlags(fs)
		require.NoError(t, fs.Parse([]string{flag}))
		assert.ErrorContains(t, c.Validate(), want)
	}
}
