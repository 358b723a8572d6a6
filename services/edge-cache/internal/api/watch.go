package api

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"fairlead.dev/services/edge-cache/internal/store"
	"fairlead.dev/services/edge-cache/internal/wire"
)

const (
	// minTimeout is the shortest time of a watch without timeoutSeconds. The API server has the same.
	minTimeout = 30 * time.Minute
	// lastBookmark is the time before the end of a watch at which the client gets its version for the next one.
	lastBookmark = 2 * time.Second
)

// serveWatch serves a watch.
func (s *Server) serveWatch(w http.ResponseWriter, r *http.Request, p storedRead) error {
	initial, cursor, err := s.startWatch(r.Context(), p)
	if err != nil {
		return err
	}
	timeout := p.options.timeout
	if timeout == 0 {
		timeout = minTimeout + rand.N(minTimeout)
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	enc := newEncoder(p.served.Store, p.encoding)
	contentType := enc.contentType()
	if enc.format == wire.Protobuf {
		contentType += ";stream=watch"
	}
	setContentType(w, contentType)
	w.WriteHeader(http.StatusOK)
	s.countRequest(p.request, "store")
	s.params.Observer.AddWatches(1)
	defer s.params.Observer.AddWatches(-1)
	stream := &stream{
		params: p, encoder: enc, cursor: cursor, interval: s.params.Limits.BookmarkInterval, end: time.Now().Add(timeout),
		w: &deadlineWriter{w: w, c: idleController{http.NewResponseController(w)}, limit: s.params.Limits.WriteTimeout},
	}
	s.params.Observer.CountWatchEnd(stream.streamEvents(ctx, initial))
	return nil
}

// startWatch returns the initial objects, nil if none were asked for, and the events after them.
func (s *Server) startWatch(ctx context.Context, p storedRead) (*store.Snapshot, *store.Cursor, error) {
	o := p.options
	if !o.wantsInitialEvents() {
		if o.rv == 0 { // "from now on"
			_, cursor, err := p.served.Store.ListAndWatch()
			return nil, cursor, err
		}
		cursor, err := p.served.Store.WatchFrom(o.rv)
		return nil, cursor, err
	}
	if err := s.waitForRequested(ctx, p); err != nil {
		return nil, nil, err
	}
	snapshot, cursor, err := p.served.Store.ListAndWatch()
	return &snapshot, cursor, err
}

// stream is one open watch.
type stream struct {
	params   storedRead
	encoder  encoder
	cursor   *store.Cursor
	w        *deadlineWriter
	interval time.Duration
	end      time.Time
}

// Reasons for the end of a watch.
const (
	reasonTimeout = "timeout"
	reasonClient  = "client"
	reasonSlow    = "slow"
	reasonExpired = "expired"
	reasonDenied  = "denied"
	reasonError   = "error"
)

// streamEvents writes events until the watch ends, and returns the reason.
func (s *stream) streamEvents(ctx context.Context, initial *store.Snapshot) string {
	err := s.writeInitial(initial)
	if err == nil {
		err = s.flushFrames()
	}
	next := s.nextBookmark(time.Now())
	for err == nil {
		err = s.writeNextEvents(ctx, &next)
	}
	switch {
	case errors.Is(err, errSlow): // the server cancels ctx with the connection
		return reasonSlow
	case ctx.Err() != nil:
		if time.Now().Before(s.end) {
			return reasonClient
		}
		return reasonTimeout
	case errors.Is(err, errWrite):
		return reasonClient
	}
	s.w.limit = time.Second
	_ = s.writeFrame(s.encoder.encodeError(err)) // the connection ends either way
	_ = s.flushFrames()
	switch {
	case errors.Is(err, store.ErrExpired):
		return reasonExpired
	case toStatus(err).Code == http.StatusForbidden || toStatus(err).Code == http.StatusUnauthorized:
		return reasonDenied
	}
	return reasonError
}

// Errors of the connection to the client.
var (
	errWrite = errors.New("connection to the client ended")
	errSlow  = errors.New("client does not read")
)

func (s *stream) writeFrame(frame []byte) error {
	return s.sendError(func() error { _, err := s.w.Write(frame); return err })
}

func (s *stream) flushFrames() error { return s.sendError(s.w.c.Flush) }

// sendError calls send, and returns errSlow or errWrite if it fails. Which error a late write gives depends on the version of HTTP.
func (s *stream) sendError(send func() error) error {
	begin := time.Now()
	if send() == nil {
		return nil
	}
	if time.Since(begin) >= s.w.limit*9/10 {
		return errSlow
	}
	return errWrite
}

// writeInitial writes the objects of now, and the bookmark after them.
func (s *stream) writeInitial(initial *store.Snapshot) error {
	if initial == nil {
		return nil
	}
	for _, o := range initial.Objects {
		matches, err := s.params.selector.matchesObject(o)
		if err != nil {
			return err
		}
		if !matches {
			continue
		}
		frame, err := s.encoder.encodeEvent(store.Added, o.Data)
		if err != nil {
			return err
		}
		if err := s.writeFrame(frame); err != nil {
			return err
		}
	}
	if !s.params.options.marksInitialEnd() {
		return nil
	}
	return s.writeFrame(s.encoder.encodeBookmark(initial.RV, map[string]string{wire.InitialEventsEnd: "true"}))
}

// nextBookmark returns the time of the bookmark after now. The last one is shortly before the end.
func (s *stream) nextBookmark(now time.Time) time.Time {
	next := now.Add(s.interval*3/4 + rand.N(s.interval/4))
	if last := s.end.Add(-lastBookmark); now.Before(last) && next.After(last) {
		return last
	}
	return next
}

// writeNextEvents waits for events or for the time of a bookmark, and writes them.
func (s *stream) writeNextEvents(ctx context.Context, bookmark *time.Time) error {
	waiting, cancel := context.WithDeadline(ctx, *bookmark)
	defer cancel()
	events, err := s.cursor.Next(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil && errors.Is(err, waiting.Err()) {
		*bookmark = s.nextBookmark(time.Now())
		rv, caughtUp := s.cursor.BookmarkVersion()
		if !s.params.options.AllowWatchBookmarks || !caughtUp {
			return nil
		}
		if err := s.writeFrame(s.encoder.encodeBookmark(rv, nil)); err != nil {
			return err
		}
		return s.flushFrames()
	}
	if err != nil {
		return err
	}
	for _, e := range events {
		if err := s.writeEvent(e); err != nil {
			return err
		}
	}
	return s.flushFrames()
}

// writeEvent writes an event as this client sees it. For a client with a selector, an object appears when it begins to match, and is
// deleted when it no longer does:
//
//	before     now        event
//	no match   match      ADDED
//	match      match      MODIFIED
//	match      no match   DELETED, with the last matching state and the new version
//	no match   no match   none
func (s *stream) writeEvent(e store.Event) error {
	was, is := false, false
	var err error
	if e.Prev != nil {
		if was, err = s.params.selector.matchesObject(e.Prev); err != nil {
			return err
		}
	}
	if e.Type != store.Deleted {
		if is, err = s.params.selector.matchesObject(e.Object); err != nil {
			return err
		}
	}
	typ, data := store.Modified, e.Object.Data
	switch {
	case !was && !is:
		return nil
	case !was:
		typ = store.Added
	case !is:
		typ = store.Deleted
		if e.Type != store.Deleted {
			if data, err = wire.WithResourceVersion(s.encoder.stored, e.Prev.Data, e.Object.RV); err != nil {
				return err
			}
		}
	}
	frame, err := s.encoder.encodeEvent(typ, data)
	if err != nil {
		return err
	}
	return s.writeFrame(frame)
}
