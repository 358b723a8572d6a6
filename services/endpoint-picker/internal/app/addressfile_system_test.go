//go:build system

package app

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"fairlead.dev/pkg/addressfile"
	"fairlead.dev/services/endpoint-picker/internal/config"
)

const anyPort = "127.0.0.1:0"

// withoutKubernetes returns the configuration of a picker that needs no API server, and whose listeners get any port.
func withoutKubernetes(t *testing.T) *config.Config {
	t.Helper()
	cfg := config.Default()
	cfg.Pool.File, cfg.Metrics.Auth = filepath.Join(t.TempDir(), "endpoints.yaml"), false
	require.NoError(t, os.WriteFile(cfg.Pool.File, []byte("endpoints: [{name: model-0, address: 127.0.0.1, port: 8000}]"), 0o600))
	cfg.GRPC = config.GRPC{}
	cfg.HTTP.MetricsAddress, cfg.HTTP.HealthAddress = anyPort, anyPort
	return cfg
}

// All listeners get a port of the system, and the file names each of them.
func TestAddressFile(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(cfg *config.Config)
		want   func(p *parts) map[string]string
	}{
		{name: "as by default", change: func(*config.Config) {}, want: func(p *parts) map[string]string {
			return map[string]string{
				"grpc": p.ExtProcListener.ListenAddress(), "grpc-health": p.HealthListener.ListenAddress(),
				"metrics": p.HTTP.MetricsAddress(), "health": p.HTTP.HealthAddress(),
			}
		}},
		{name: "all", change: func(cfg *config.Config) {
			cfg.Decision.Address, cfg.Proxy.Address = anyPort, anyPort
			cfg.Replicas = config.Replicas{BindAddress: anyPort, Addresses: []string{anyPort}}
		}, want: func(p *parts) map[string]string {
			return map[string]string{
				"grpc": p.ExtProcListener.ListenAddress(), "grpc-health": p.HealthListener.ListenAddress(),
				"metrics": p.HTTP.MetricsAddress(), "health": p.HTTP.HealthAddress(),
				"decision": p.Decision.ListenAddress(), "proxy": p.Proxy.ListenAddress(), "replica": p.Replicas.ListenAddress(),
			}
		}},
		{name: "no metrics", change: func(cfg *config.Config) { cfg.HTTP.MetricsAddress = "0" }, want: func(p *parts) map[string]string {
			return map[string]string{
				"grpc": p.ExtProcListener.ListenAddress(), "grpc-health": p.HealthListener.ListenAddress(), "health": p.HTTP.HealthAddress(),
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := withoutKubernetes(t)
			cfg.AddressFile = filepath.Join(t.TempDir(), "addresses.json")
			tt.change(cfg)
			p, err := newParts(cfg, zap.NewNop())
			require.NoError(t, err)
			require.NoError(t, p.openListeners())
			t.Cleanup(func() { closeAll(t, p) })

			got, err := addressfile.Read(cfg.AddressFile)
			require.NoError(t, err)
			assert.Equal(t, tt.want(p), got)
			seen := map[string]bool{}
			for _, address := range got {
				assert.False(t, seen[address], "%s twice", address)
				assert.NotContains(t, address, ":0")
				seen[address] = true
			}
		})
	}
}

func TestAddressFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	cfg := withoutKubernetes(t)
	cfg.AddressFile = filepath.Join(t.TempDir(), "absent", "addresses.json")
	require.ErrorContains(t, Run(t.Context(), cfg, zap.NewNop()), "write addresses: ")
}

// closeAll closes the ports of parts that do not run.
func closeAll(t *testing.T, p *parts) {
	t.Helper()
	p.closeListeners()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, p.HTTP.Run(ctx)) // closes its ports
}
