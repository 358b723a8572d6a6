package replicas

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protodelim"

	"fairlead.dev/pkg/wake"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

const (
	// saveInterval is the time between two writes of the state: a process that is killed loses as much.
	saveInterval = 10 * time.Second
	// saveRest is the least time between two writes, as a multiple of the time that the last one took: picks wait while an index is read.
	saveRest = 100
	// maxStateAge is the age of a state that is still used (assumed). Other clients of the servers may have changed the caches since.
	maxStateAge = 10 * time.Minute

	stateMagic   = "fairlead endpoint-picker state "
	stateVersion = "1." + protocol + "\n" // also of the frames
	checksumSize = 8
	// savedFields and frameFields are more bytes than all fields but endpoint and frames take, and all but the hashes.
	savedFields = 128
	frameFields = 32
)

var errState = errors.New("cannot use the state")

// StateFile is a file that contains what the pools know of caches, for the next process. A nil StateFile keeps nothing.
type StateFile struct {
	log     *zap.Logger
	path    string
	limit   int         // bytes
	soon    wake.Signal // for a write at once
	written fs.FileInfo // what Run has written; nil before

	mu     sync.Mutex
	pools  map[string]*SavedPool
	found  map[string]*SavedCache // by name; of the last process, until an endpoint takes it
	loaded time.Time
}

// NewStateFile returns a file of at most limit bytes without pools.
func NewStateFile(log *zap.Logger, path string, limit int) *StateFile {
	return &StateFile{
		log: log.With(zap.String("file", path)), path: path, limit: limit, soon: wake.NewSignal(), pools: map[string]*SavedPool{},
	}
}

// SavedPool is the Estimator of a pool in a state file: new endpoints have the caches that the last process knew.
type SavedPool struct {
	*estimate.Estimator

	file  *StateFile
	title string

	mu        sync.Mutex
	endpoints []*endpoint.Endpoint
}

// JoinPool makes the file keep the contents of a pool.
func (s *StateFile) JoinPool(title string, x *estimate.Estimator) *SavedPool {
	p := &SavedPool{Estimator: x, file: s, title: title}
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pools[title] = p
	}
	return p
}

// LeavePool forgets a pool.
func (s *StateFile) LeavePool(title string) {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.pools, title)
	}
}

// SetEndpoints sets the endpoints whose caches the file keeps.
func (p *SavedPool) SetEndpoints(endpoints []*endpoint.Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endpoints = endpoints
}

// NewEndpoint returns an endpoint, with the cache that the last process knew.
func (p *SavedPool) NewEndpoint(d endpoint.Description, since time.Time) *endpoint.Endpoint {
	e := p.Estimator.NewEndpoint(d, since)
	if saved := p.file.takeCache(p.cacheName(e)); saved != nil {
		p.restoreCache(e, saved)
	}
	return e
}

// cacheName returns a name that only this endpoint has, in this process and in the next one.
func (p *SavedPool) cacheName(e *endpoint.Endpoint) string {
	id := e.Identity()
	return fmt.Sprintf("%s %s %s %s", p.title, id.PodName(), id.UID, id.Address)
}

func (s *StateFile) takeCache(name string) *SavedCache {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	saved := s.found[name]
	delete(s.found, name)
	return saved
}

// restoreCache applies a saved cache to a new endpoint.
func (p *SavedPool) restoreCache(e *endpoint.Endpoint, saved *SavedCache) {
	p.RestoreServer(e, estimate.SavedServer{
		Blocks: int(saved.GetBlocks()), Queries: saved.GetQueries(), Hits: saved.GetHits(), Ratio: saved.GetRatio(),
	})
	view, from := p.NewReplica(), bufio.NewReader(bytes.NewReader(saved.GetFrames()))
	for next := new(Frame); readFrame(from, next) == nil; { // the end, or a frame that the checksum did not protect
		if kind := next.GetKind(); kind == Kind_CACHED || kind == Kind_OCCUPIED {
			view.ApplyEvent(estimate.Event{
				Kind: estimate.EventKind(kind), Endpoint: e, Tokens: next.GetTokens(), Chain: next.GetChain(),
			}, time.Time{})
		}
	}
}

// LoadCaches reads the file. Call it before the first endpoint.
func (s *StateFile) LoadCaches() {
	if s == nil {
		return
	}
	content, err := readStateFile(s.path, int64(s.limit))
	if err == nil {
		s.found, err = decodeState(content, time.Now())
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.log.Info("Found no state file, started without contents of caches")
	case err != nil:
		s.log.Warn("Ignored the state file, started without contents of caches", zap.Error(err))
	default:
		s.log.Info("Read contents of caches from the state file", zap.Int("endpoints", len(s.found)))
	}
	s.loaded = time.Now()
}

func readStateFile(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find the state file: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: not a regular file", errState)
	case info.Size() > limit:
		return nil, fmt.Errorf("%w: %d bytes are more than the %d of the index of prefixes", errState, info.Size(), limit)
	}
	return os.ReadFile(path)
}

// decodeState returns the caches of a file by their names.
func decodeState(content []byte, now time.Time) (map[string]*SavedCache, error) {
	rest, isState := bytes.CutPrefix(content, []byte(stateMagic))
	if !isState {
		return nil, fmt.Errorf("%w: not a state file, or damaged", errState)
	}
	rest, isVersion := bytes.CutPrefix(rest, []byte(stateVersion))
	if !isVersion {
		return nil, fmt.Errorf("%w: another version than %q", errState, stateVersion)
	}
	end := len(content) - checksumSize
	if len(rest) < checksumSize || !bytes.Equal(checksumOf(content[:end]), content[end:]) {
		return nil, fmt.Errorf("%w: damaged", errState)
	}
	from := bytes.NewReader(rest[:len(rest)-checksumSize])
	options := protodelim.UnmarshalOptions{MaxSize: int64(len(content))}
	var head State
	if err := options.UnmarshalFrom(from, &head); err != nil {
		return nil, fmt.Errorf("%w: %w", errState, err)
	}
	switch age := now.Sub(time.Unix(head.GetTime(), 0)); {
	case age.Abs() > maxStateAge:
		return nil, fmt.Errorf("%w: written %s ago, more than %s", errState, age.Round(time.Second), maxStateAge)
	case head.GetScheme() != prefixindex.HashScheme():
		return nil, fmt.Errorf("%w: prompts had other hashes", errState)
	}
	found := map[string]*SavedCache{}
	for {
		saved := &SavedCache{}
		switch err := options.UnmarshalFrom(from, saved); {
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, fmt.Errorf("%w: %w", errState, err)
		}
		found[saved.GetEndpoint()] = saved
	}
}

func checksumOf(content []byte) []byte {
	sum := xxhash.New()
	_, _ = sum.Write(content) // never fails
	return sum.Sum(nil)
}

// WriteSoon makes Run write the file now.
func (s *StateFile) WriteSoon() {
	if s != nil {
		s.soon.Send()
	}
}

// Run writes the file until ctx ends, and once more then. It ends earlier when another process writes the file: the next one, which may
// know more than this one when that ends.
func (s *StateFile) Run(ctx context.Context) {
	if s == nil {
		return
	}
	var last map[string]uint64
	reported := ""
	for wait, ended := saveInterval, false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-s.soon:
		case <-time.After(wait):
		}
		if s.isTakenOver() {
			s.log.Info("Left the state file to another process, which writes it")
			return
		}
		began, current := time.Now(), s.countUses()
		if maps.Equal(current, last) {
			continue
		}
		if err := s.writeFile(began); err == nil {
			last, reported = current, ""
		} else if text := err.Error(); text != reported { // once for each reason
			s.log.Warn("Could not write the state file: a restart loses the contents of caches", zap.Error(err))
			reported = text
		}
		wait = max(saveInterval, saveRest*time.Since(began))
	}
}

// isTakenOver reports whether another process has replaced the file that Run has written.
func (s *StateFile) isTakenOver() bool {
	if s.written == nil {
		return false
	}
	now, err := os.Stat(s.path)
	return err == nil && !(os.SameFile(now, s.written) && now.ModTime().Equal(s.written.ModTime())) // numbers of files are used again
}

// countUses returns how often the contents of each pool have changed, and drops what no endpoint has taken for too long.
func (s *StateFile) countUses() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.loaded) > maxStateAge {
		s.found = nil
	}
	uses := map[string]uint64{}
	for title, p := range s.pools {
		uses[title] = p.CountUses()
	}
	return uses
}

// writeFile replaces the file, unless nothing is known.
func (s *StateFile) writeFile(now time.Time) error {
	caches := s.knownCaches()
	if len(caches) == 0 {
		return nil
	}
	limitCaches(caches, s.limit-len(stateMagic+stateVersion)-savedFields-checksumSize)
	next := s.path + ".next"
	_ = os.Remove(next) // of a process that was killed
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	defer os.Remove(next) // it has another name after a success
	if err := errors.Join(writeState(file, caches, now), file.Close()); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	written, err := os.Stat(next)
	if err := errors.Join(err, os.Rename(next, s.path)); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	s.written = written
	return nil
}

// knownCache is the cache of one endpoint.
type knownCache struct {
	saved  SavedCache // without frames
	events []estimate.Event
	bytes  int // at least its size in the file
}

// knownCaches returns the caches of all pools.
func (s *StateFile) knownCaches() []*knownCache {
	s.mu.Lock()
	pools := slices.Collect(maps.Values(s.pools))
	s.mu.Unlock()
	var caches []*knownCache
	for _, p := range pools {
		p.mu.Lock()
		endpoints := p.endpoints
		p.mu.Unlock()
		for events := p.Contents(endpoints); len(events) > 0; { // one endpoint after the other
			e := events[0].Endpoint
			n := slices.IndexFunc(events, func(other estimate.Event) bool { return other.Endpoint != e })
			if n < 0 {
				n = len(events)
			}
			caches = append(caches, p.newKnownCache(e, events[:n]))
			events = events[n:]
		}
	}
	return caches
}

func (p *SavedPool) newKnownCache(e *endpoint.Endpoint, events []estimate.Event) *knownCache {
	name, server := p.cacheName(e), p.SavedServer(e)
	c := &knownCache{events: events, bytes: savedFields + len(name), saved: SavedCache{
		Endpoint: name, Blocks: int64(server.Blocks), Queries: server.Queries, Hits: server.Hits, Ratio: server.Ratio,
	}}
	for _, event := range events {
		c.bytes += sizeOf(event)
	}
	return c
}

// sizeOf returns at least the size of an event in the file.
func sizeOf(e estimate.Event) int { return frameFields + 8*len(e.Chain) }

// limitCaches drops the least recently used contents of caches with more than an equal part of the limit, if all together exceed it. An
// index counts a prompt once, but the file contains it for each cache.
func limitCaches(caches []*knownCache, limit int) {
	all := 0
	for _, c := range caches {
		all += c.bytes
	}
	for _, c := range caches {
		for all > limit && c.bytes > limit/len(caches) && len(c.events) > 0 {
			size := sizeOf(c.events[0])
			c.events, c.bytes, all = c.events[1:], c.bytes-size, all-size
		}
	}
}

// writeState writes a whole file.
func writeState(to io.Writer, caches []*knownCache, now time.Time) error {
	sum := xxhash.New()
	out := bufio.NewWriter(io.MultiWriter(to, sum))
	_, _ = out.WriteString(stateMagic + stateVersion) // Flush returns the error
	_, err := protodelim.MarshalTo(out, &State{Time: now.Unix(), Scheme: prefixindex.HashScheme()})
	var frames []byte
	for _, c := range caches {
		frames = frames[:0]
		for _, e := range c.events {
			e.Endpoint = nil // c.saved names it
			frames = appendEvent(frames, 0, e)
		}
		c.saved.Frames = frames
		if err == nil {
			_, err = protodelim.MarshalTo(out, &c.saved)
		}
	}
	if err = errors.Join(err, out.Flush()); err != nil {
		return err
	}
	_, err = to.Write(sum.Sum(nil))
	return err
}
