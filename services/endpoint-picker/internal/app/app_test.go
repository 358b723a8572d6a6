package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig/reload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContainer(t *testing.T) {
	t.Parallel()
	require.NoError(t, service.CheckAssembly[parts](constructors(config.Default(), zap.NewNop())))
}

func TestRunSaysWhyItCannotStart(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Kube.Kubeconfig = filepath.Join(t.TempDir(), "absent")
	require.ErrorContains(t, Run(t.Context(), cfg, zap.NewNop()), "load kubeconfig from --kubeconfig")

	cfg.Pool.File = cfg.Kube.Kubeconfig
	require.ErrorContains(t, Run(t.Context(), cfg, zap.NewNop()), "read endpoints: stat "+cfg.Pool.File)
	cfg.Pool.File = ""

	cfg.Kube.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(cfg.Kube.Kubeconfig, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}]}`), 0o600))
	cfg.Plugins.Text = "kind: x"
	err := Run(t.Context(), cfg, zap.NewNop())
	require.ErrorIs(t, err, reload.ErrUnusable)
	require.ErrorContains(t, err, "load configuration: configuration of plugins: --config-text: line 1, column 1: apiVersion: it is missing")
	cfg.Plugins.Text = ""
	cfg.GRPC.CertPath = t.TempDir()
	require.ErrorContains(t, Run(t.Context(), cfg, zap.NewNop()), "load certificates of --cert-path")
	cfg.GRPC.CertPath = ""
	cfg.HTTP.MetricsAddress, cfg.HTTP.HealthAddress = "0", "127.0.0.1:none"
	require.ErrorContains(t, Run(t.Context(), cfg, zap.NewNop()), "listen on --health-probe-bind-address")
}
