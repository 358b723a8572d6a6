package reload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/pkg/follow"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
)

// digest is that of the content of files.
type digest [sha256.Size]byte

// A state is the text, and the files of the configuration in force.
type state struct {
	text    []byte
	problem error // why there is no text
	files   digest
}

// followed is the state of a Reloader, as a source to follow.
type followed struct{ *Reloader }

// Read reads the text and the files. An outage of the cluster says nothing about the text.
func (f *followed) Read(ctx context.Context) (*state, error) {
	text, err := f.params.Source.Read(ctx)
	if err != nil && !errors.Is(err, ErrUnusable) {
		f.params.Log.Debug("Could not read configuration", zap.Stringer("source", f.params.Source), zap.Error(err))
		return nil, follow.Unavailable(err)
	}
	return &state{text: text, problem: err, files: f.digestFiles(f.Current())}, nil
}

// Equal compares two states.
func (f *followed) Equal(a, b *state) bool {
	return bytes.Equal(a.text, b.text) && fmt.Sprint(a.problem) == fmt.Sprint(b.problem) && a.files == b.files
}

// Apply compiles the text, prepares every part, and only then publishes the configuration.
func (f *followed) Apply(s *state) error {
	c, publish, err := f.prepareText(s)
	if err != nil {
		if c != f.Current() && s.files != f.files {
			err = errors.Join(err, f.refreshFiles())
		}
		return err
	}
	f.publishConfig(c, publish)
	f.text, s.files = s.text, f.files // from now on, the files of the new configuration count
	f.params.Reporter.Event(corev1.EventTypeNormal, ReasonReloaded, fmt.Sprintf("%s is in force, hash %s", f.params.Source, c.Hash))
	return nil
}

// prepareText compiles the text if it has changed, and prepares every part for the configuration. It returns no configuration if the text
// cannot be read or compiled.
func (f *followed) prepareText(s *state) (c *pluginconfig.Config, publish func(), err error) {
	if s.problem != nil {
		return nil, nil, s.problem
	}
	c = f.Current()
	if !bytes.Equal(s.text, f.text) {
		o := f.params.Options
		o.Previous = c
		if c, err = pluginconfig.Load(s.text, o); err != nil {
			return nil, nil, err
		}
	}
	if publish, err = f.prepareParts(c); err != nil {
		err = follow.Retry(err) // files that the text names may change
	}
	return c, publish, err
}

// refreshFiles makes the files of the configuration in force effective, beside a text that is not.
func (f *followed) refreshFiles() error {
	publish, err := f.prepareParts(f.Current())
	if err != nil {
		return follow.Retry(err)
	}
	publish()
	f.params.Log.Info("Read files of the configuration again",
		zap.Stringer("source", f.params.Source), zap.String("hash", f.Current().Hash))
	return nil
}

// Reject reports that the last good configuration stays in force.
func (f *followed) Reject(err error) {
	f.params.Observer.ConfigFailed()
	f.params.Log.Warn("Rejected configuration, kept the last valid one",
		zap.Stringer("source", f.params.Source), zap.String("hash", f.Current().Hash), zap.Error(err))
	f.params.Reporter.Event(corev1.EventTypeWarning, ReasonInvalid,
		fmt.Sprintf("%s is invalid, the last valid one stays in force: %s", f.params.Source, err))
}

// digestFiles reads the files of a configuration and those of flags. A file that cannot be read is a content of its own.
func (r *Reloader) digestFiles(c *pluginconfig.Config) (sum digest) {
	all := sha256.New()
	for _, path := range slices.Concat(c.Scraping.Source.Files(), r.params.Files) {
		content, err := os.ReadFile(path)
		fmt.Fprintf(all, "%q %x %v\n", path, sha256.Sum256(content), err)
	}
	all.Sum(sum[:0])
	return sum
}
