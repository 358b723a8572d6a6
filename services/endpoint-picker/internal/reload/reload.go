// Package reload keeps the configuration of the plugins that is in force, and takes another one when its text changes.
//
//	text that can be read       text that cannot
//	  in force at once,           the last good one stays in force,
//	  everybody is told           a log line, an Event and a metric say so, once for each text
//
// The text is read again and again: a mounted ConfigMap is a symbolic link that moves, and editors replace files, so that
// a watch of the file would end with it. A text counts when two reads in a row have found it; one that is being written may
// be cut off in the middle and be a configuration all the same.
package reload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/pickerconfig"
)

// Reasons of Events.
const (
	ReasonReloaded = "ConfigurationReloaded"
	ReasonInvalid  = "InvalidConfiguration"
)

// ErrUnusable means that the configuration is not there or cannot be used.
var ErrUnusable = errors.New("configuration of plugins")

// Source is where the text is.
type Source interface {
	// Read returns the text as it is now. An error that wraps ErrUnusable will not go away by itself.
	Read(ctx context.Context) ([]byte, error)
	// Interval is the time between two reads, 0 if the text never changes.
	Interval() time.Duration
	// String names the text in messages.
	String() string
}

// observer counts what comes into force and what does not.
type observer interface {
	ConfigLoaded(hash string)
	ConfigFailed()
}

// reporter records Events for those who edit the text.
type reporter interface {
	Event(kind, reason, message string)
}

// Reloader holds the configuration.
type Reloader struct {
	source   Source
	options  pickerconfig.Options
	log      *zap.Logger
	observer observer
	reporter reporter
	clock    clock.WithTicker

	current  atomic.Pointer[pickerconfig.Config]
	onChange []func(*pickerconfig.Config)
	found    reading // what was acted upon last
	pending  reading // what the last read found
}

// Params is what a Reloader is made of.
type Params struct {
	Source   Source // nil for the default
	Options  pickerconfig.Options
	Log      *zap.Logger
	Observer observer
	Reporter reporter
	Clock    clock.WithTicker
}

// reading is what a read found.
type reading struct {
	text    []byte
	problem string
}

func (r reading) same(other reading) bool {
	return r.problem == other.problem && bytes.Equal(r.text, other.text)
}

// New returns a Reloader with the default configuration. It reads nothing until Load.
func New(p Params) *Reloader {
	r := &Reloader{source: p.Source, options: p.Options, log: p.Log, observer: p.Observer, reporter: p.Reporter, clock: p.Clock}
	r.current.Store(pickerconfig.Default(p.Options))
	return r
}

// Current returns the configuration that is in force. It must not be changed.
func (r *Reloader) Current() *pickerconfig.Config { return r.current.Load() }

// OnChange has f called, by one goroutine, with each configuration that comes into force after Load. It must be called
// before Run.
func (r *Reloader) OnChange(f func(*pickerconfig.Config)) { r.onChange = append(r.onChange, f) }

// Load reads the text for the first time. One that cannot be used is an error.
func (r *Reloader) Load(ctx context.Context) error {
	if r.source == nil {
		r.observer.ConfigLoaded(r.Current().Hash)
		return nil
	}
	text, err := r.source.Read(ctx)
	if err != nil {
		return fmt.Errorf("read %s: %w", r.source, err)
	}
	made, err := pickerconfig.Load(text, r.options)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnusable, r.source, err)
	}
	r.found = reading{text: text}
	r.pending = r.found
	r.publish(made)
	return nil
}

// Run follows the text until ctx ends.
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

// follow reads the text once more, and acts when it has changed.
func (r *Reloader) follow(ctx context.Context) {
	var now reading
	text, err := r.source.Read(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && !errors.Is(err, ErrUnusable): // while the cluster is away, nothing changes
		r.log.Debug("Read no configuration", zap.Stringer("source", r.source), zap.Error(err))
		return
	case err != nil:
		now.problem = err.Error()
	default:
		now.text = text
	}
	settled := now.same(r.pending)
	r.pending = now
	if !settled || now.same(r.found) {
		return
	}
	r.found = now
	if err != nil {
		r.fail(err)
		return
	}
	made, err := pickerconfig.Load(text, r.options)
	if err != nil {
		r.fail(err)
		return
	}
	r.publish(made)
	for _, f := range r.onChange {
		f(made)
	}
	r.reporter.Event(corev1.EventTypeNormal, ReasonReloaded, fmt.Sprintf("%s is in force, hash %s", r.source, made.Hash))
}

// publish brings a configuration into force.
func (r *Reloader) publish(made *pickerconfig.Config) {
	r.current.Store(made)
	r.observer.ConfigLoaded(made.Hash)
	r.log.Info("Loaded configuration", zap.Stringer("source", r.source), zap.String("hash", made.Hash))
	for _, w := range made.Warnings {
		r.log.Warn("Configuration is better changed", zap.Stringer("source", r.source), zap.Stringer("warning", w))
	}
}

// fail says that the last good configuration stays.
func (r *Reloader) fail(err error) {
	r.observer.ConfigFailed()
	r.log.Warn("Refused configuration, the last good one stays in force",
		zap.Stringer("source", r.source), zap.String("hash", r.Current().Hash), zap.Error(err))
	r.reporter.Event(corev1.EventTypeWarning, ReasonInvalid, fmt.Sprintf("%s is refused, the last good one stays in force: %s", r.source, err))
}
