package app

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/variant-autoscaler/internal/config"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
)

func TestContainer(t *testing.T) {
	t.Parallel()
	require.NoError(t, service.CheckAssembly[parts](constructors(config.Default(os.Getenv), zap.NewNop())))
}

// TestProbe: Prometheus counts until its first answer, a CRD always.
func TestProbe(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var failure atomic.Value
			failure.Store("refused")
			p := newProbe(func(context.Context) error {
				if text := failure.Load(); text != "" {
					return fmt.Errorf("%s", text)
				}
				return nil
			}, time.Second, once)
			require.ErrorIs(t, p.lastResult(ctx), errUnchecked)
			go p.Run(ctx)
			synctest.Wait()
			require.ErrorContains(t, p.lastResult(ctx), "refused")
			failure.Store("")
			time.Sleep(time.Second)
			synctest.Wait()
			require.NoError(t, p.lastResult(ctx))
			failure.Store("gone")
			time.Sleep(10 * time.Second)
			synctest.Wait()
			assert.Equal(t, once, p.lastResult(ctx) == nil)
			cancel()
		})
	}
}

// tokens has the settings of an address and a token.
type tokens struct{ token string }

func (s *tokens) Settings() *settings.Settings {
	b := settings.NewBuilder(settings.Options{})
	b.SetSources(settings.Optimization, settings.Source{Name: "c",
		Data: map[string]string{"PROMETHEUS_BASE_URL": "https://prometheus:9090", "PROMETHEUS_BEARER_TOKEN": s.token}})
	return b.Settings()
}

// TestPrometheus: there is one client until the token changes.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	source := &tokens{token: "a"}
	p := NewPrometheus(config.Default(os.Getenv), zap.NewNop(), source.Settings)
	first, err := p.clientOf(source.Settings())
	require.NoError(t, err)
	again, err := p.clientOf(source.Settings())
	require.NoError(t, err)
	assert.Same(t, first, again)
	source.token = "b"
	other, err := p.clientOf(source.Settings())
	require.NoError(t, err)
	assert.NotSame(t, first, other)

	_, err = p.Collector(settings.NewBuilder(settings.Options{}).Settings())
	require.ErrorContains(t, err, "PROMETHEUS_BASE_URL is not set")
	require.ErrorContains(t, err, "ConfigMap workload-variant-autoscaler-variantautoscaling-config")
}
