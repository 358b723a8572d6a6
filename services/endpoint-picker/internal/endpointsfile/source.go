// Package endpointsfile has the endpoints in a file, for a picker without Kubernetes:
//
//	endpoints:
//	- name: vllm-0          # unique in its namespace
//	  namespace: default    # this, if it is left out
//	  address: 10.0.0.1     # IPv4 or IPv6, with brackets or without
//	  port: 8000            # a number or a string
//	  labels: {llm-d.ai/role: decode}
//
// JSON will do as well. The file is read strictly: what is not known, or is listed twice, is refused with its line.
//
// A file that cannot be used at the start is an error. After that it is read again and again, and a change holds when
// two readings in a row found the same: a file that is being written is not half read, and its path may be a symbolic
// link that is turned to another file, as Kubernetes does with ConfigMaps. A file that has become unusable, or has gone,
// changes nothing: the last good endpoints stand, and the observer and the log say so.
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

// observer learns what came of each new state of the file.
type observer interface {
	ObserveEndpointsFile(err error)
}

// Params is what New needs.
type Params struct {
	Log      *zap.Logger
	Path     string
	Once     bool          // the file is read at the start only
	Interval time.Duration // between two looks, half a second if zero
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

	// Of the goroutine in Run only.
	settled state // what holds, or was refused
	seen    state // what the last look found
}

// state is what a look at the file found.
type state struct {
	data    []byte
	problem string // why there are no data
}

func (s state) equal(other state) bool {
	return s.problem == other.problem && bytes.Equal(s.data, other.data)
}

// New reads the file. An error says why it cannot be used.
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

// OnChange has changed called, before Run, whenever there are other endpoints.
func (s *Source) OnChange(changed func()) error {
	s.changed = append(s.changed, changed)
	return nil
}

// Run follows the file until ctx ends.
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

// Pool returns the last good endpoints. They must not be changed.
func (s *Source) Pool() (*datastore.Pool, error) { return s.pool.Load(), nil }

// look reads the file, and takes what it finds when it is new and the same as at the last look.
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

// readFile returns the content of a regular file, of which one byte too many is enough.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path) // before opening: that waits for ever on a pipe
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
