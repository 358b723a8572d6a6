package app

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/wait"

	"fairlead.dev/services/variant-autoscaler/internal/collect"
	"fairlead.dev/services/variant-autoscaler/internal/config"
	"fairlead.dev/services/variant-autoscaler/internal/pass"
	"fairlead.dev/services/variant-autoscaler/internal/promclient"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
)

// Prometheus is the Prometheus of the settings in force. Its client is made when the address is known, and again with another token.
type Prometheus struct {
	log     *zap.Logger
	current func() *settings.Settings
	options collect.Options

	mu     sync.Mutex
	config promclient.Config
	client *promclient.Client
}

// NewPrometheus returns the Prometheus of the settings. It sends nothing.
func NewPrometheus(cfg *config.Config, log *zap.Logger, current func() *settings.Settings) *Prometheus {
	return &Prometheus{log: log.Named("prometheus"), current: current, options: collect.Options{Window: cfg.Metrics}}
}

// Collector implements the source of passes.
func (p *Prometheus) Collector(s *settings.Settings) (pass.Collector, error) {
	client, err := p.clientOf(s)
	if err != nil {
		return nil, err
	}
	return collect.New(client, p.options), nil
}

func (p *Prometheus) clientOf(s *settings.Settings) (*promclient.Client, error) {
	wanted := promclient.Config{Prometheus: s.Prometheus()}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client != nil && p.config == wanted {
		return p.client, nil
	}
	client, err := promclient.New(wanted, p.log)
	if err != nil {
		return nil, fmt.Errorf("%w (in ConfigMap %s, or in the environment)", err,
			cmp.Or(s.ConfigMap(settings.Optimization), settings.Optimization.Names()[0]))
	}
	if p.client != nil {
		p.client.Close()
	}
	p.client, p.config = client, wanted
	return client, nil
}

// Query returns the vector of an expression.
func (p *Prometheus) Query(ctx context.Context, expr string) ([]promclient.Series, error) {
	client, err := p.clientOf(p.current())
	if err != nil {
		return nil, err
	}
	return client.Query(ctx, expr)
}

// checkAnswer checks that Prometheus answers a query.
func (p *Prometheus) checkAnswer(ctx context.Context) error {
	_, err := p.Query(ctx, "vector(1)")
	return err
}

// probe repeats a check, and remembers its last result for the readiness of the pod.
type probe struct {
	check    func(ctx context.Context) error
	interval time.Duration
	once     bool // the first success is the last check

	mu  sync.Mutex
	err error
}

func newProbe(check func(ctx context.Context) error, interval time.Duration, once bool) *probe {
	return &probe{check: check, interval: interval, once: once, err: errUnchecked}
}

// Run repeats the check until ctx ends.
func (p *probe) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := p.check(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.err = err; err == nil && p.once {
			cancel()
		}
	}, p.interval)
}

// lastResult returns the last result.
func (p *probe) lastResult(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}
