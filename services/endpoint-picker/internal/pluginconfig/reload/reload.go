// Package reload holds the configuration of the plugins, and replaces it when its text changes.
//
//	the text                        the configuration in force
//	is valid, and every part of
//	the picker can use it           that of the text, in all parts at once
//	is invalid, or a part cannot
//	use it                          the last good one, in all parts; a log line, an Event and a metric report it, once for
//	                                each text
//
// A new configuration takes effect in three steps: it is compiled; every part prepares for it, which may read files and may
// fail; then it is published everywhere, which cannot fail. So it never takes effect by half.
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

	"fairlead.dev/pkg/follow"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
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

// A Preparer reads and checks everything that a configuration needs in the parts of the picker. It changes nothing. The
// returned function makes the configuration effective in these parts, and cannot fail.
type Preparer func(c *pluginconfig.Config) (publish func(), err error)

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
	params   Params
	prepare  Preparer
	current  atomic.Pointer[pluginconfig.Config]
	follower *follow.Follower[[]byte]
}

// Params are the parts of a Reloader.
type Params struct {
	Source   Source // nil for the default configuration
	Options  pluginconfig.Options
	Log      *zap.Logger
	Observer observer
	Reporter reporter
}

// New returns a Reloader with the default configuration. It reads nothing until LoadFirst.
func New(p Params) *Reloader {
	r := &Reloader{params: p, prepare: func(*pluginconfig.Config) (func(), error) { return func() {}, nil }}
	r.current.Store(pluginconfig.Default(p.Options))
	return r
}

// Current returns the configuration in force. It must not be changed.
func (r *Reloader) Current() *pluginconfig.Config { return r.current.Load() }

// SetPreparer sets the function that prepares for a configuration. Call it before LoadFirst.
func (r *Reloader) SetPreparer(p Preparer) { r.prepare = p }

// Loaded is a text and its configuration.
type Loaded struct {
	Text   []byte
	Config *pluginconfig.Config
}

// Read reads and compiles the text of a source.
func Read(ctx context.Context, s Source, o pluginconfig.Options) (*Loaded, error) {
	text, err := s.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s, err)
	}
	c, err := pluginconfig.Load(text, o)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnusable, s, err)
	}
	return &Loaded{Text: text, Config: c}, nil
}

// LoadFirst makes the first configuration effective: one that was read already, or (nil) that of the source. Its errors are those
// of an invalid text, or of a part that cannot use it.
func (r *Reloader) LoadFirst(ctx context.Context, first *Loaded) error {
	switch {
	case r.params.Source == nil:
		first = &Loaded{Config: r.Current()}
	case first == nil:
		var err error
		if first, err = Read(ctx, r.params.Source, r.params.Options); err != nil {
			return err
		}
	}
	publish, err := r.prepare(first.Config)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	r.publishConfig(first.Config, publish)
	if r.params.Source != nil {
		r.follower = follow.New(&text{r}, r.params.Source.Interval(), first.Text)
	}
	return nil
}

// Run follows the text until ctx ends. Call it after LoadFirst.
func (r *Reloader) Run(ctx context.Context) {
	if r.follower != nil {
		r.follower.Run(ctx)
	}
}

// publishConfig makes a configuration effective everywhere.
func (r *Reloader) publishConfig(c *pluginconfig.Config, publish func()) {
	publish()
	r.current.Store(c)
	r.params.Observer.ConfigLoaded(c.Hash)
	if r.params.Source == nil {
		return
	}
	r.params.Log.Info("Loaded configuration", zap.Stringer("source", r.params.Source), zap.String("hash", c.Hash))
	for _, w := range c.Warnings {
		r.params.Log.Warn("Configuration has a warning", zap.Stringer("source", r.params.Source), zap.Stringer("warning", w))
	}
}

// text is the text of a Reloader, as a source to follow.
type text struct{ *Reloader }

// Read reads the text. An outage of the cluster says nothing about it.
func (t *text) Read(ctx context.Context) ([]byte, error) {
	read, err := t.params.Source.Read(ctx)
	if err != nil && !errors.Is(err, ErrUnusable) {
		t.params.Log.Debug("Could not read configuration", zap.Stringer("source", t.params.Source), zap.Error(err))
		return nil, follow.Unavailable(err)
	}
	return read, err
}

// Equal compares two texts.
func (t *text) Equal(a, b []byte) bool { return bytes.Equal(a, b) }

// Apply compiles the text, prepares every part, and only then publishes the configuration.
func (t *text) Apply(read []byte) error {
	o := t.params.Options
	o.Previous = t.Current()
	c, err := pluginconfig.Load(read, o)
	if err != nil {
		return err
	}
	publish, err := t.prepare(c)
	if err != nil {
		return follow.Retry(err) // files that the text names may change
	}
	t.publishConfig(c, publish)
	t.params.Reporter.Event(corev1.EventTypeNormal, ReasonReloaded, fmt.Sprintf("%s is in force, hash %s", t.params.Source, c.Hash))
	return nil
}

// Reject reports that the last good configuration stays in force.
func (t *text) Reject(err error) {
	t.params.Observer.ConfigFailed()
	t.params.Log.Warn("Rejected configuration, kept the last valid one",
		zap.Stringer("source", t.params.Source), zap.String("hash", t.Current().Hash), zap.Error(err))
	t.params.Reporter.Event(corev1.EventTypeWarning, ReasonInvalid,
		fmt.Sprintf("%s is invalid, the last valid one stays in force: %s", t.params.Source, err))
}
