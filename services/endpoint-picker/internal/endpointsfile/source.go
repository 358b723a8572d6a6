// Package endpointsfile reads endpoints from a file, for a picker without Kubernetes:
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
// An unusable file at the start is an error. Later the file is polled, and a change takes effect when two consecutive reads
// are equal. So a partially written file is not used, and the path may be a symbolic link that changes, as in volumes of
// ConfigMaps. A file that becomes unusable, or is deleted, changes nothing: the last valid endpoints stay, and the observer
// and the log report it.
package endpointsfile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/services/endpoint-picker/internal/datastore"
)

const defaultInterval = 500 * time.Millisecond

// observer receives the result of reading each new state of the file.
type observer interface {
	ObserveEndpointsFile(err error)
}

// Params are the parameters of New.
type Params struct {
	Log      *zap.Logger
	Path     string
	Once     bool          // read the file only at the start
	Interval time.Duration // between two reads, half a second if zero
	Observer observer
}

// Source is a file of endpoints.
type Source struct {
	log      *zap.Logger
	path     string
	once     bool
	interval time.Duration
	observer observer
	changed  []func()
	pool     atomic.Pointer[datastore.Pool]

	// Used only by the goroutine in Run.
	settled state // the state that was used or rejected
	seen    state // the state of the last read
}

// state is the result of reading the file.
type state struct {
	data    []byte
	problem string // why there is no data
}

func (s state) equal(other state) bool {
	return s.problem == other.problem && bytes.Equal(s.data, other.data)
}

// New reads the file. An error means that the file is unusable.
func New(p Params) (*Source, error) {
	if p.Interval <= 0 {
		p.Interval = defaultInterval
	}
	s := &Source{log: p.Log.With(zap.String("path", p.Path)), path: p.Path, once: p.Once, interval: p.Interval, observer: p.Observer}
	data, err := readFile(p.Path)
	if err != nil {
		return nil, fmt.Errorf("read endpoints: %w", err)
	}
	if err := s.use(data); err != nil {
		return nil, fmt.Errorf("read endpoints of %s: %w", p.Path, err)
	}
	p.Observer.ObserveEndpointsFile(nil)
	s.settled = state{data: data}
	s.seen = s.settled
	return s, nil
}

// OnChange registers a function to call when the endpoints change. Call it before Run.
func (s *Source) OnChange(changed func()) {
	s.changed = append(s.changed, changed)
}

// Run polls the file until ctx ends.
func (s *Source) Run(ctx context.Context) {
	if s.once {
		<-ctx.Done()
		return
	}
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.look()
		}
	}
}

// WaitForSync returns at once: the file was read at the start.
func (s *Source) WaitForSync(context.Context) bool { return true }

// Pool returns the last valid endpoints. They must not be changed.
func (s *Source) Pool() (*datastore.Pool, error) { return s.pool.Load(), nil }

// look reads the file, and uses a new state that is the same as in the last read.
func (s *Source) look() {
	now := state{}
	data, err := readFile(s.path)
	if err != nil {
		now.problem = err.Error()
	} else {
		now.data = data
	}
	last := s.seen
	s.seen = now
	if now.equal(s.settled) || !now.equal(last) {
		return
	}
	s.settled = now
	if err == nil {
		err = s.use(data)
	}
	s.observer.ObserveEndpointsFile(err)
	if err != nil {
		s.log.Warn("Could not reload endpoints file, kept the last endpoints", zap.Error(err))
		return
	}
	s.log.Info("Reloaded endpoints file", zap.Int("endpoints", len(s.pool.Load().Endpoints)))
	for _, changed := range s.changed {
		changed()
	}
}

// use makes these the endpoints.
func (s *Source) use(data []byte) error {
	endpoints, err := Parse(data)
	if err != nil {
		return err
	}
	s.pool.Store(&datastore.Pool{Endpoints: endpoints})
	return nil
}

// readFile returns the content of a regular file, up to one byte more than MaxBytes.
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
	data, err := io.ReadAll(io.LimitReader(file, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}
