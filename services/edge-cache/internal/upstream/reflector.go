package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/services/edge-cache/internal/store"
	"fairlead.dev/services/edge-cache/internal/wire"
)

const (
	// maxObject is the largest object that is accepted: twice the limit of etcd's default request size, for the overhead of JSON.
	maxObject = 4 << 20
	// maxObjects limits a store. The largest supported cluster has 150 000 pods.
	maxObjects = 300_000
	// manyObjects is the length of a list after which the memory of its decoding is returned: the next collection could be minutes away.
	manyObjects = 1000
	// silence is the longest wait for the next initial event. A proxy that accepts a watch-list and never sends it is treated as one that
	// knows no watch-list.
	silence = 30 * time.Second
	// firstRetry and lastRetry are delays between attempts. At half of firstRetry, an API server that restarts sees twice as many requests.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
	// deniedAfter is the number of answers 401 or 403 in a row after which the store is denied: one can be due to a token that was replaced.
	deniedAfter = 2
)

// StatusError is an answer of the API server that is not a success.
type StatusError struct{ Status metav1.Status }

func (e *StatusError) Error() string {
	return fmt.Sprintf("API server: %d %s: %s", e.Status.Code, e.Status.Reason, e.Status.Message)
}

var (
	errNoWatchList = errors.New("the API server does not stream lists")
	errRelist      = errors.New("list again")
)

// ReflectorParams are the arguments of NewReflector.
type ReflectorParams struct {
	Connection *Connection
	Store      *store.Store
	Path       string // of the collection
	Label      string // selectors
	Field      string
	Log        *zap.Logger
	// After blocks the first list until other stores have synced, if it is set.
	After func(ctx context.Context) error
	// Before blocks after each interruption until other stores are up to date, if it is set. It gives up by itself.
	Before func(ctx context.Context)
	// Relist lists after each interruption instead of resuming the watch: only a list says that the store is up to date.
	Relist bool
}

// Reflector keeps a store equal to a resource of the API server.
type Reflector struct {
	params      ReflectorParams
	noWatchList bool
	relist      bool
	denials     atomic.Int32 // answers 401 and 403 in a row
	wake        chan struct{}
	upToDate    atomic.Bool
	confirming  chan struct{} // a lock
	confirmed   time.Time     // begin of the last successful confirmation; guarded by confirming
}

// NewReflector returns a reflector that does nothing until Run.
func NewReflector(p ReflectorParams) *Reflector {
	p.Log = p.Log.With(zap.String("store", p.Store.ID()))
	return &Reflector{params: p, wake: make(chan struct{}, 1), confirming: make(chan struct{}, 1)}
}

// Wake ends a pause between attempts.
func (r *Reflector) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// UpToDate reports whether the store has been listed since the last interruption.
func (r *Reflector) UpToDate() bool { return r.upToDate.Load() }

// Run keeps the store equal to the resource until ctx ends.
func (r *Reflector) Run(ctx context.Context) {
	if r.params.After != nil && r.params.After(ctx) != nil {
		return
	}
	delay := firstRetry
	for ctx.Err() == nil {
		attempt, online := r.params.Connection.state()
		working, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(attempt, cancel)
		begin := time.Now()
		err := r.reflect(working)
		stop()
		cancel()
		if ctx.Err() != nil {
			return
		}
		r.judge(err)
		if err == nil || time.Since(begin) > lastRetry {
			delay = firstRetry
		}
		if err != nil {
			r.params.Log.Debug("Watch ended", zap.Error(err), zap.Duration("retryAfter", delay))
		}
		r.pause(ctx, delay, online)
		delay = min(2*delay, lastRetry)
	}
}

// pause waits for a time with jitter, or until the API server comes back.
func (r *Reflector) pause(ctx context.Context, delay time.Duration, online <-chan struct{}) {
	if r.params.Connection.Online() {
		online = nil
	}
	select {
	case <-ctx.Done():
	case <-r.wake:
	case <-online:
	case <-time.After(delay/2 + rand.N(delay)):
	}
}

// judge draws the conclusions from an error.
func (r *Reflector) judge(err error) {
	if err != nil {
		r.upToDate.Store(false)
		r.relist = r.relist || r.params.Relist
	}
	var status *StatusError
	if !errors.As(err, &status) {
		r.relist = r.relist || errors.Is(err, errRelist) || errors.Is(err, store.ErrWentBack)
		return
	}
	switch status.Status.Code {
	case http.StatusGone:
		r.relist = true
	case http.StatusUnauthorized, http.StatusForbidden:
		if r.denials.Add(1) >= deniedAfter {
			r.params.Store.Deny(status)
		}
	}
}

// accepted resets what depends on errors in a row.
func (r *Reflector) accepted() {
	r.denials.Store(0)
	r.params.Store.Deny(nil)
}

// reflect lists if it must, and watches until the watch ends.
func (r *Reflector) reflect(ctx context.Context) error {
	if err := r.params.Connection.verify(ctx); err != nil {
		return err
	}
	if r.params.Before != nil {
		r.params.Before(ctx)
	}
	position := r.params.Store.Position()
	if position != 0 && !r.relist && !r.params.Store.Replaced() {
		current, err := r.Current(ctx)
		if err != nil {
			return err
		}
		if current >= position {
			return r.watch(ctx, position)
		}
		r.params.Log.Warn("API server went back in time: listing again", zap.Uint64("was", position), zap.Uint64("is", current))
	}
	if !r.noWatchList {
		err := r.watchList(ctx)
		if !errors.Is(err, errNoWatchList) {
			return err
		}
		r.noWatchList = true
	}
	rv, err := r.list(ctx)
	if err != nil {
		return err
	}
	return r.watch(ctx, rv)
}

func (r *Reflector) query() url.Values {
	q := url.Values{}
	if r.params.Label != "" {
		q.Set("labelSelector", r.params.Label)
	}
	if r.params.Field != "" {
		q.Set("fieldSelector", r.params.Field)
	}
	return q
}

// streamWatch is a parameter of the type of a watch in protobuf.
const streamWatch = ";stream=watch"

func (r *Reflector) accept(suffix string) http.Header {
	if r.params.Store.Format() == wire.JSON {
		return http.Header{"Accept": {"application/json" + strings.TrimPrefix(suffix, streamWatch)}}
	}
	return http.Header{"Accept": {"application/vnd.kubernetes.protobuf" + suffix}}
}

// get returns the answer to a read, or a StatusError.
func (r *Reflector) get(ctx context.Context, q url.Values, suffix string) (*http.Response, error) {
	response, err := r.params.Connection.Do(ctx, Request{Source: r.params.Store.ID(), Path: r.params.Path, Query: q, Header: r.accept(suffix)})
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		want := "application/vnd.kubernetes.protobuf"
		if r.params.Store.Format() == wire.JSON {
			want = "application/json"
		}
		if got := response.Header.Get("Content-Type"); !strings.HasPrefix(got, want) {
			response.Body.Close()
			return nil, fmt.Errorf("the answer is %q, not %s", got, want)
		}
		return response, nil
	}
	defer response.Body.Close()
	return nil, ReadStatus(response)
}

// ReadStatus returns the error in an answer.
func ReadStatus(response *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	status, err := decodeStatus(raw)
	if err != nil || status.Code == 0 {
		status = metav1.Status{Message: strings.ToValidUTF8(string(raw[:min(len(raw), 200)]), "?")}
	}
	status.Code = int32(response.StatusCode)
	return &StatusError{Status: status}
}

func decodeStatus(raw []byte) (metav1.Status, error) {
	var status metav1.Status
	if _, kind, content, err := wire.Open(raw); err == nil {
		if kind != "Status" {
			return status, errors.New("not a Status")
		}
		return status, status.Unmarshal(content)
	}
	return status, json.Unmarshal(raw, &status)
}

// Current returns the version of the resource now, by a consistent read of one object.
func (r *Reflector) Current(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, headerTimeout)
	defer cancel()
	q := r.query()
	q.Set("limit", "1")
	response, err := r.get(ctx, q, "")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	meta, err := wire.ReadList(response.Body, wire.ListParams{Format: r.params.Store.Format(), MaxItem: maxObject, Item: func([]byte) error { return nil }})
	if err != nil {
		return 0, err
	}
	r.accepted()
	return wire.ParseRV(meta.ResourceVersion)
}

// list replaces the content of the store.
func (r *Reflector) list(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := time.AfterFunc(silence, cancel)
	defer idle.Stop()
	response, err := r.get(ctx, r.query(), "")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	replacement := r.params.Store.Replace()
	meta, err := wire.ReadList(response.Body, wire.ListParams{Format: r.params.Store.Format(), MaxItem: maxObject, Item: func(item []byte) error {
		idle.Reset(silence)
		return r.add(replacement, item)
	}})
	if err != nil {
		return 0, err
	}
	rv, err := wire.ParseRV(meta.ResourceVersion)
	if err != nil {
		return 0, fmt.Errorf("list: %w", err)
	}
	kind, isList := strings.CutSuffix(meta.Kind, "List")
	if !isList || meta.Continue != "" {
		return 0, fmt.Errorf("list: the answer is a %q with continue %q", meta.Kind, meta.Continue)
	}
	if err := r.commit(replacement, rv, [2]string{meta.APIVersion, kind}); err != nil {
		return 0, err
	}
	return rv, nil
}

func (r *Reflector) add(replacement *store.Replacement, object []byte) error {
	if replacement.Len() >= maxObjects {
		return fmt.Errorf("the API server has more than %d objects", maxObjects)
	}
	return replacement.Add(object)
}

func (r *Reflector) commit(replacement *store.Replacement, rv uint64, typ [2]string) error {
	if typ[1] != "" {
		r.params.Store.SetType(typ[0], typ[1])
	}
	if err := replacement.Commit(rv); err != nil {
		return err
	}
	r.relist = false
	r.upToDate.Store(true)
	r.accepted()
	count := replacement.Len() // the last use of replacement: it is garbage below
	if count >= manyObjects {
		debug.FreeOSMemory()
	}
	r.params.Log.Debug("Listed", zap.Int("objects", count), zap.Uint64("resourceVersion", rv))
	return nil
}

func watchQuery(q url.Values) url.Values {
	q.Set("watch", "true")
	q.Set("allowWatchBookmarks", "true")
	q.Set("timeoutSeconds", strconv.Itoa(300+rand.IntN(300)))
	return q
}
