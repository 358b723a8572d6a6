// Package reload holds the configuration of the plugins, and replaces it when its text changes, or a file that the text or a flag names.
//
//	the text and the files          the configuration in force
//	are valid, and every part of
//	the picker can use them         that of the text, in all parts at once
//	are invalid, or a part cannot
//	use them                        the last good one, in all parts; a log line, an Event and a metric report it, once for
//	                                each text and content of the files
//
// While the text is unusable, the configuration in force still gets the new content of its files: certificates expire.
//
// A new configuration takes effect in three steps: it is compiled; every part prepares for it, which may read files and may
// fail; then it is published everywhere, which cannot fail. So it never takes effect by half.
package reload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

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
	follower *follow.Follower[*state]

	// Of the configuration in force. Used only by LoadFirst and the follower.
	text  []byte
	files digest
}

// Params are the parts of a Reloader.
type Params struct {
	Source   Source   // nil for the default configuration
	Files    []string // that parts read, besides those that a configuration names
	Options  pluginconfig.Options
	Log      *zap.Logger
	Observer observer
	Reporter reporter
}

// New returns a Reloader with the default configuration. It reads nothing until LoadFirst.
func New(p Params) *Reloader {
	if p.Source == nil {
		p.Source = noText{}
	}
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
	case r.params.Source == noText{}:
		first = &Loaded{Config: r.Current()}
	case first == nil:
		var err error
		if first, err = Read(ctx, r.params.Source, r.params.Options); err != nil {
			return err
		}
	}
	publish, err := r.prepareParts(first.Config)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	r.publishConfig(first.Config, publish)
	r.text = first.Text
	// Files may change although the text cannot.
	interval := cmp.Or(r.params.Source.Interval(), fileInterval)
	r.follower = follow.New(&followed{r}, interval, &state{text: r.text, files: r.files})
	return nil
}

// Run follows the text and the files until ctx ends. Call it after LoadFirst.
func (r *Reloader) Run(ctx context.Context) { r.follower.Run(ctx) }

// prepareParts prepares every part for a configuration. A file that changes after a part has read it counts as changed.
func (r *Reloader) prepareParts(c *pluginconfig.Config) (publish func(), err error) {
	files := r.digestFiles(c)
	publishParts, err := r.prepare(c)
	if err != nil {
		return nil, err
	}
	return func() {
		publishParts()
		r.files = files
	}, nil
}

// publishConfig makes a configuration effective everywhere.
func (r *Reloader) publishConfig(c *pluginconfig.Config, publish func()) {
	publish()
	r.current.Store(c)
	r.params.Observer.ConfigLoaded(c.Hash)
	r.params.Log.Info("Loaded configuration", zap.Stringer("source", r.params.Source), zap.String("hash", c.Hash))
	for _, w := range c.Warnings {
		r.params.Log.Warn("Configuration has a warning", zap.Stringer("source", r.params.Source), zap.Stringer("warning", w))
	}
}
