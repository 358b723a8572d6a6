package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"sort"
	"strconv"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/services/edge-cache/internal/store"
	"fairlead.dev/services/edge-cache/internal/upstream"
)

// versionWait is the longest wait for a version, or for the newest state, as in the API server.
const versionWait = 3 * time.Second

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
	var objects []*store.Object
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(snapshot.RV, 10)}
	for i := start; i < len(snapshot.Objects); i++ {
		o := snapshot.Objects[i]
		matches, err := p.selector.matchesObject(o)
		if err != nil {
			return err
		}
		if !matches {
			continue
		}
		if p.options.Limit > 0 && int64(len(objects)) == p.options.Limit {
			meta.Continue = pageToken{RV: snapshot.RV, After: objects[len(objects)-1].Key}.encodeToken()
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
	if o.Continue != "" {
		return p.nextPage()
	}
	// A list in pages ignores the version "0", as the API server does for those that it reads from etcd.
	if err := s.waitForRequested(ctx, p); err != nil {
		return store.Snapshot{}, 0, err
	}
	if o.isExact() {
		snapshot, err := p.served.Store.ListAt(o.rv)
		return snapshot, 0, err
	}
	snapshot, _, err := p.served.Store.ListAndWatch()
	return snapshot, 0, err
}

// waitForRequested waits until a store reaches the version that a client asks for. The version "" asks for the newest state.
func (s *Server) waitForRequested(ctx context.Context, p storedRead) error {
	if p.options.ResourceVersion == "" {
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

// pageToken is the content of a continue token. A list in pages is the list at one version, which the history of the store reconstructs.
type pageToken struct {
	RV    uint64 `json:"rv"`
	After string `json:"after"` // key of the last object
}

func (t pageToken) encodeToken() string {
	raw, err := json.Marshal(t)
	if err != nil { // a number and a string can be encoded
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// nextPage returns the list of a continue token, and the index of the first object after it.
func (p storedRead) nextPage() (store.Snapshot, int, error) {
	var t pageToken
	raw, err := base64.RawURLEncoding.DecodeString(p.options.Continue)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil || t.RV == 0 {
		return store.Snapshot{}, 0, badRequestError("continue key is not valid")
	}
	if p.options.rv != 0 {
		return store.Snapshot{}, 0, badRequestError("specifying resource version is not allowed when using continue")
	}
	list, err := p.served.Store.ListAt(t.RV)
	return list, sort.Search(len(list.Objects), func(i int) bool { return list.Objects[i].Key > t.After }), err
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
