package app

import (
	"context"

	"go.uber.org/dig"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/events"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig/reload"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/metrics"
)

// eventController is the reportingController of Events.
const eventController = "fairlead-endpoint-picker"

// reloaderParts are the parameters of newReloader.
type reloaderParts struct {
	dig.In

	Config  *config.Config
	Log     *zap.Logger
	Clients *clients
	Metrics *metrics.Config
	Events  *poolEvents
}

func newReloader(p reloaderParts) *reload.Reloader {
	return reload.New(reload.Params{
		Source:   configSource(p.Config, p.Clients.core),
		Options:  configOptions(p.Config),
		Log:      p.Log.Named("reload"),
		Observer: p.Metrics,
		Reporter: p.Events,
	})
}

// configSource returns the source of the configuration that the flags name, or nil.
func configSource(cfg *config.Config, core kube.Clientset) reload.Source {
	switch from := cfg.Plugins; {
	case from.File != "":
		return reload.File(from.File)
	case from.Text != "":
		return reload.Text(from.Text)
	case from.Map.Name != "":
		name := from.Map.ObjectName
		if name.Namespace == "" {
			name = cache.NewObjectName(cfg.Pool.Name.Namespace, name.Name)
		}
		return reload.NewConfigMap(core, name, from.MapKey)
	}
	return nil
}

// poolEvents records Events about InferencePools. Without a cluster it records none.
type poolEvents struct {
	recorder *events.Recorder
	pools    func() []corev1.ObjectReference // those that Event is about; nil before Run
}

func newPoolEvents(cluster *clients, log *zap.Logger, c clock.RealClock) *poolEvents {
	if cluster.core == nil {
		return &poolEvents{}
	}
	return &poolEvents{recorder: events.New(events.Params{Client: cluster.core, Controller: eventController, Log: log, Clock: c})}
}

// Event queues an Event about every pool.
func (e *poolEvents) Event(kind, reason, message string) {
	if e.pools == nil {
		return
	}
	for _, about := range e.pools() {
		e.reportAbout(&about, kind, reason, message)
	}
}

// reportAbout queues an Event about one pool.
func (e *poolEvents) reportAbout(pool *corev1.ObjectReference, kind, reason, message string) {
	if e.recorder != nil {
		e.recorder.Event(pool, kind, reason, message)
	}
}

// Run writes Events until ctx ends.
func (e *poolEvents) Run(ctx context.Context) {
	if e.recorder != nil {
		e.recorder.Run(ctx)
	}
}
