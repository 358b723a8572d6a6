// Package reload holds the configuration of the plugins, and replaces it when its text changes.
//
//	the text      the configuration in force
//	is valid      that of the text, at once
//	is invalid    the last valid one; a log line, an Event and a metric report it, once for each text
//
// The text is polled: a mounted ConfigMap is a symbolic link that moves, and editors replace files, so that a watch of the
// file would end with it. A text counts when two reads in a row have found it, as half of a text that is being written may be
// valid.
package reload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/configmap"
	"fairlead.dev/services/endpoint-picker/internal/pickerconfig"
)

// Reasons of Events.
const (
	ReasonReloaded = "ConfigurationReloaded"
	ReasonInvalid  = "InvalidConfiguration"
)

// ErrUnusable means that the configuration is missing or invalid.
var ErrUnusable = errors.New("configuration of plugins")

// Source provides the text.
type Source interface {
	// Read returns the current text. An error that wraps ErrUnusable is permanent until the text changes.
	Read(ctx context.Context) ([]byte, error)
	// Interval is the time between two reads, 0 if the text never changes.
	Interval() time.Duration
	// String names the text in messages.
	String() string
}

// observer counts new configurations and invalid texts.
type observer interface {
	ConfigLoaded(hash string)
	ConfigFailed()
}

// reporter records Events for editors of the text.
type reporter interface {
	Event(kind, reason, message string)
}

// Reloader holds the configuration.
type Reloader struct {
	config   *configmap.LastGood[*pickerconfig.Config]
	source   Source
	log      *zap.Logger
	observer observer
	reporter reporter
	clock    clock.WithTicker

	onChange []func(*pickerconfig.Config)
	pending  reading // the result of the last read
}

// Params are the parts of a Reloader.
type Params struct {
	Source   Source // nil for the default configuration
	Options  pickerconfig.Options
	Log      *zap.Logger
	Observer observer
	Reporter reporter
	Clock    clock.WithTicker
}

// reading is the result of a read.
type reading struct {
	text    []byte
	problem string
}

func (r reading) same(other reading) bool {
	return r.problem == other.problem && bytes.Equal(r.text, other.text)
}

// New returns a Reloader with the default configuration. It reads nothing until Load.
func New(p Params) *Reloader {
	decode := func(text []byte) (*pickerconfig.Config, []string, error) {
		c, err := pickerconfig.Load(text, p.Options)
		return c, nil, err // the warnings are part of the configuration
	}
	r := &Reloader{
		config: configmap.NewLastGood(fmt.Sprint(p.Source), decode),
		source: p.Source, log: p.Log, observer: p.Observer, reporter: p.Reporter, clock: p.Clock,
	}
	r.config.Preset(pickerconfig.Default(p.Options))
	return r
}

// Current returns the configuration in force. It must not be changed.
func (r *Reloader) Current() *pickerconfig.Config {
	c, _, _ := r.config.Current()
	return c
}

// OnChange registers a function to call, from one goroutine, with each new configuration after Load. Call it before Run.
func (r *Reloader) OnChange(f func(*pickerconfig.Config)) { r.onChange = append(r.onChange, f) }

// Load reads the text for the first time. An invalid text is an error.
func (r *Reloader) Load(ctx context.Context) error {
	if r.source == nil {
		r.observer.ConfigLoaded(r.Current().Hash)
		return nil
	}
	text, err := r.source.Read(ctx)
	if err != nil {
		return fmt.Errorf("read %s: %w", r.source, err)
	}
	update, _ := r.config.Set(text)
	if update.Err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnusable, r.source, update.Err)
	}
	r.pending = reading{text: text}
	r.loaded(update.Value)
	return nil
}

// Run polls the text until ctx ends.
func (r *Reloader) Run(ctx context.Context) {
	if r.source == nil || r.source.Interval() == 0 {
		return
	}
	ticker := r.clock.NewTicker(r.source.Interval())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			r.follow(ctx)
		}
	}
}

// follow reads the text, and processes it when it has settled and differs from the last one.
func (r *Reloader) follow(ctx context.Context) {
	var now reading
	text, err := r.source.Read(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && !errors.Is(err, ErrUnusable): // an outage of the cluster changes nothing
		r.log.Debug("Could not read configuration", zap.Stringer("source", r.source), zap.Error(err))
		return
	case err != nil:
		now.problem = err.Error()
	default:
		now.text = text
	}
	settled := now.same(r.pending)
	r.pending = now
	if !settled {
		return
	}
	if err != nil {
		if r.config.Reject(err) {
			r.refused(err)
		}
		return
	}
	switch update, changed := r.config.Set(text); {
	case !changed:
	case update.Err != nil:
		r.refused(update.Err)
	default:
		r.loaded(update.Value)
		for _, f := range r.onChange {
			f(update.Value)
		}
		r.reporter.Event(corev1.EventTypeNormal, ReasonReloaded, fmt.Sprintf("%s is in force, hash %s", r.source, update.Value.Hash))
	}
}

// loaded reports a new configuration.
func (r *Reloader) loaded(c *pickerconfig.Config) {
	r.observer.ConfigLoaded(c.Hash)
	r.log.Info("Loaded configuration", zap.Stringer("source", r.source), zap.String("hash", c.Hash))
	for _, w := range c.Warnings {
		r.log.Warn("Configuration has a warning", zap.Stringer("source", r.source), zap.Stringer("warning", w))
	}
}

// refused reports that the last valid configuration stays in force.
func (r *Reloader) refused(err error) {
	r.observer.ConfigFailed()
	r.log.Warn("Rejected configuration, kept the last valid one",
		zap.Stringer("source", r.source), zap.String("hash", r.Current().Hash), zap.Error(err))
	r.reporter.Event(corev1.EventTypeWarning, ReasonInvalid, fmt.Sprintf("%s is invalid, the last valid one stays in force: %s", r.source, err))
}
