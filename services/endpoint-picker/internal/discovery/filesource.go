// A FileSource reads endpoints from a file, for a picker without Kubernetes:
//
//	endpoints:
//	- name: vllm-0          # unique in its namespace
//	  namespace: default    # this, if it is left out
//	  address: 10.0.0.1     # IPv4 or IPv6, with brackets or without
//	  port: 8000            # a number or a string
//	  labels: {llm-d.ai/role: decode}
//
// JSON works as well. Parsing is strict: unknown and duplicate fields are errors with their line.
//
// An unusable file at the start is an error. Later the file is followed (package follow): a file that becomes unusable, or is
// deleted, changes nothing. The last valid endpoints stay, and the caller and the log hear of it.

package discovery

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/follow"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

const defaultInterval = 500 * time.Millisecond

// FileParams are the parameters of NewFileSource.
type FileParams struct {
	Log      *zap.Logger
	Path     string
	Once     bool            // read the file only at the start
	Interval time.Duration   // between two reads, half a second if zero
	Observe  func(err error) // receives the result of reading each new state of the file
}

// FileSource is a file of endpoints.
type FileSource struct {
	log       *zap.Logger
	path      string
	observe   func(err error)
	changed   func()
	endpoints atomic.Pointer[[]endpoint.Description]
	follower  *follow.Follower[[]byte]
}

// NewFileSource reads the file. An error means that the file is unusable.
func NewFileSource(p FileParams) (*FileSource, error) {
	s := &FileSource{log: p.Log.With(zap.String("path", p.Path)), path: p.Path, observe: p.Observe, changed: func() {}}
	data, err := readFile(p.Path)
	if err != nil {
		return nil, fmt.Errorf("read endpoints: %w", err)
	}
	if err := s.setEndpoints(data); err != nil {
		return nil, fmt.Errorf("read endpoints of %s: %w", p.Path, err)
	}
	p.Observe(nil)
	interval := cmp.Or(p.Interval, defaultInterval)
	if p.Once {
		interval = 0
	}
	s.follower = follow.New(&fileFollower{s}, interval, data)
	return s, nil
}

// OnChange registers the function to call when the endpoints change. Call it before Run.
func (s *FileSource) OnChange(changed func()) { s.changed = changed }

// Run follows the file until ctx ends.
func (s *FileSource) Run(ctx context.Context) { s.follower.Run(ctx) }

// WaitForSync returns at once: the file was read at the start.
func (s *FileSource) WaitForSync(context.Context) bool { return true }

// ReadPool returns the last valid endpoints. They must not be changed.
func (s *FileSource) ReadPool() ([]endpoint.Description, error) { return *s.endpoints.Load(), nil }

// setEndpoints makes these the endpoints.
func (s *FileSource) setEndpoints(data []byte) error {
	endpoints, err := parseFile(data)
	if err != nil {
		return err
	}
	s.endpoints.Store(&endpoints)
	return nil
}

// fileFollower is the file of a FileSource, as a source to follow.
type fileFollower struct{ *FileSource }

// Read reads the file.
func (f *fileFollower) Read(context.Context) ([]byte, error) { return readFile(f.path) }

// Equal compares two contents.
func (f *fileFollower) Equal(a, b []byte) bool { return bytes.Equal(a, b) }

// Apply makes a content the endpoints.
func (f *fileFollower) Apply(data []byte) error {
	if err := f.setEndpoints(data); err != nil {
		return err
	}
	f.observe(nil)
	f.log.Info("Reloaded endpoints file", zap.Int("endpoints", len(*f.endpoints.Load())))
	f.changed()
	return nil
}

// Reject reports that the last endpoints stay.
func (f *fileFollower) Reject(err error) {
	f.observe(err)
	f.log.Warn("Could not reload endpoints file, kept the last endpoints", zap.Error(err))
}

// readFile returns the content of a regular file, up to one byte more than maxFileBytes.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path) // before opening, which would block forever on a pipe
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}
