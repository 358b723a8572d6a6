package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"sort"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/services/edge-cache/internal/store"
	"fairlead.dev/services/edge-cache/internal/upstream"
	"fairlead.dev/services/edge-cache/internal/wire"
)

const (
	// versionWait is the longest wait for a version, or for the newest state, as in the API server.
	versionWait = 3 * time.Second
	// pageAge and pageLimit bound the lists that clients read in pages. The API server keeps them for 5 to 10 minutes, as long as etcd.
	pageAge   = 2 * time.Minute
	pageLimit = 8
)

// storedRead is a list or a watch of a kind that is stored.
type storedRead struct {
	request  request
	served   ServedStore
	encoding encoding
	options  listOptions
	selector selector
}

// serveList serves a list.
func (s *Server) serveList(w http.ResponseWriter, r *http.Request, p storedRead) error {
	snapshot, start, err := s.listSnapshot(r.Context(), p)
	if err != nil {
		return err
	}
	objects, meta := []*store.Object{}, wire.ListMeta{ResourceVersion: strconv.FormatUint(snapshot.RV, 10)}
	for i := start; i < len(snapshot.Objects); i++ {
		o := snapshot.Objects[i]
		matches, err := p.selector.matchesObject(o)
		if err != nil {
			return err
		}
		if !matches {
			continue
		}
		if p.options.limit > 0 && len(objects) == p.options.limit {
			meta.Continue = s.pages.addPage(p.served.Store.ID(), snapshot, objects[len(objects)-1].Key)
			break
		}
		objects = append(objects, o)
	}
	enc := newEncoder(p.served.Store, p.encoding)
	s.countRequest(p.request, "store")
	setContentType(w, enc.contentType())
	limited := &deadlineWriter{w: w, c: http.NewResponseController(w), limit: s.params.Limits.WriteTimeout}
	if err := enc.writeList(limited, objects, meta); err != nil {
		panic(http.ErrAbortHandler) // the status is sent: only a broken connection says that the list is not whole
	}
	return nil
}

// listSnapshot returns the objects that a list is about, and the index of the first one.
func (s *Server) listSnapshot(ctx context.Context, p storedRead) (store.Snapshot, int, error) {
	o := p.options
	if o.continueToken != "" {
		return s.pages.findPage(p.served.Store.ID(), o)
	}
	// A list in pages ignores the version "0", as the API server does for those that it reads from etcd.
	if err := s.waitForRequested(ctx, p); err != nil {
		return store.Snapshot{}, 0, err
	}
	list := p.served.Store.List
	if o.isExact() {
		list = func() (store.Snapshot, error) { return p.served.Store.ListAt(o.rv) }
	}
	snapshot, err := list()
	return snapshot, 0, err
}

// waitForRequested waits until a store reaches the version that a client asks for. The version "" asks for the newest state.
func (s *Server) waitForRequested(ctx context.Context, p storedRead) error {
	if p.options.rvText == "" {
		return s.refreshStore(ctx, p.served)
	}
	if p.options.rv == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, versionWait)
	defer cancel()
	current, err := p.served.Store.WaitFor(ctx, p.options.rv)
	if errors.Is(err, store.ErrFuture) {
		return versionTooLargeError(p.options.rv, current)
	}
	return err
}

// refreshStore waits until a store is as new as the API server, while that answers. It returns the API server's 403. A 401 is about the
// token of the cache: the reflector decides how long a token may be expired.
func (s *Server) refreshStore(ctx context.Context, served ServedStore) error {
	if served.Confirm == nil {
		return nil
	}
	err := errOffline
	if s.params.Backend.IsOnline() {
		limited, cancel := context.WithTimeout(ctx, versionWait)
		defer cancel()
		err = served.Confirm(limited)
	}
	if err == nil {
		return nil
	}
	var status *upstream.StatusError
	if errors.As(err, &status) && status.Status.Code == http.StatusForbidden {
		return status
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The list is served without a confirmation: the API server does not answer, or it answers while its watch sends nothing. Neither must
	// prevent the start of a controller.
	s.params.Log.Debug("Served a list that the API server did not confirm", zap.String("store", served.Store.ID()), zap.Error(err))
	s.params.Observer.CountUnconfirmedRead(served.Resource.Path())
	return nil
}

var errOffline = errors.New("the API server is offline")

// pages are lists that clients read in pages.
type pages struct {
	mu      sync.Mutex
	entries []page
	next    uint64
}

type page struct {
	id       uint64
	store    string
	snapshot store.Snapshot
	used     time.Time
}

// pageToken is the content of a continue token.
type pageToken struct {
	ID    uint64 `json:"id"`
	After string `json:"after"`
}

func (p *pages) addPage(id string, snapshot store.Snapshot, after string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	kept := p.entries[:0]
	found := uint64(0)
	for _, old := range p.entries {
		if now.Sub(old.used) > pageAge {
			continue
		}
		if old.store == id && old.snapshot.RV == snapshot.RV {
			old.used, found = now, old.id
		}
		kept = append(kept, old)
	}
	clear(p.entries[len(kept):])
	p.entries = kept
	if found == 0 {
		if len(p.entries) == pageLimit {
			p.entries = append(p.entries[:0], p.entries[1:]...)
		}
		p.next++
		found = p.next
		p.entries = append(p.entries, page{id: found, store: id, snapshot: snapshot, used: now})
	}
	raw, err := json.Marshal(pageToken{ID: found, After: after})
	if err != nil { // a number and a string can be encoded
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// findPage returns the list of a token, and the index of the first object after it.
func (p *pages) findPage(id string, o listOptions) (store.Snapshot, int, error) {
	var t pageToken
	raw, err := base64.RawURLEncoding.DecodeString(o.continueToken)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil || t.ID == 0 {
		return store.Snapshot{}, 0, badRequestError("continue key is not valid")
	}
	if o.rvText != "" && o.rvText != "0" {
		return store.Snapshot{}, 0, badRequestError("specifying resource version is not allowed when using continue")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.entries {
		if found := &p.entries[i]; found.id == t.ID && found.store == id {
			found.used = time.Now()
			objects := found.snapshot.Objects
			return found.snapshot, sort.Search(len(objects), func(i int) bool { return objects[i].Key > t.After }), nil
		}
	}
	return store.Snapshot{}, 0, expiredError()
}

// deadlineWriter gives each write its own time limit.
type deadlineWriter struct {
	w     http.ResponseWriter
	c     controller
	limit time.Duration
}

// controller is part of an http.ResponseController.
type controller interface {
	SetWriteDeadline(deadline time.Time) error
	Flush() error
}

// idleController ends the time limit of writes when they are sent: HTTP/2 resets a stream that is idle when a deadline passes.
type idleController struct{ *http.ResponseController }

// Flush sends what was written.
func (c idleController) Flush() error {
	if err := c.ResponseController.Flush(); err != nil {
		return err
	}
	if err := c.SetWriteDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

func (d *deadlineWriter) Write(p []byte) (int, error) {
	if err := d.c.SetWriteDeadline(time.Now().Add(d.limit)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return d.w.Write(p)
}
