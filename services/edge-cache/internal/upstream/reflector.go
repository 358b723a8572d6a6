package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/wake"
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
	// initialEventTimeout is the longest wait for the next initial event. A proxy that accepts a watch-list and never sends it is treated
	// as one that knows no watch-list.
	initialEventTimeout = 30 * time.Second
	// firstRetry and lastRetry are the shortest and the longest delay between attempts.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
	// shortRetry is the longest delay in the first 48 s of an outage. Later, the delay is the time of the outage divided by delayDivisor,
	// up to lastRetry, so that a change is seen 5 s after the end of a short outage.
	shortRetry   = 3 * time.Second
	delayDivisor = 16
	// tokenRetry is the longest delay after a 401: the next token can be there at any time.
	tokenRetry = 5 * time.Second
	// deniedAfter is the number of answers 403 in a row after which the store is denied: one can be from an API server that does not know a
	// new role yet.
	deniedAfter = 2
	// unknownAfter is the time of answers 401 after which the store is denied. A token that ran out during an outage is no revoked right:
	// the kubelet replaces it within one or two minutes after it reaches the API server again.
	unknownAfter = 5 * time.Minute
	// warnAfter is the number of failures in a row that are logged as a warning, and again after each warnEvery more. One or two are a
	// restart of the API server.
	warnAfter = 3
	warnEvery = 20
	// maxRetryAfter limits the pause that an API server can ask for.
	maxRetryAfter = time.Minute
)

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
	// WaitForDependencies blocks the first list until other stores have synced. It may be nil.
	WaitForDependencies func(ctx context.Context) error
	// WaitToStore blocks the storing of an object of a watch, and of a list (nil), until the stores that its projection depends on are as
	// new. It may be nil. It limits its wait itself. An error means that ctx has ended: nothing is stored.
	WaitToStore func(ctx context.Context, object []byte, rv uint64) error
}

// Reflector keeps a store equal to a resource of the API server.
type Reflector struct {
	params       ReflectorParams
	noWatchList  bool
	relist       bool
	rights       rights
	watchStart   time.Time   // when the watch of this attempt was accepted
	listed       bool        // in this attempt
	failures     int         // attempts in a row
	failingSince time.Time   // end of the first of them
	retryNow     wake.Signal // ends a pause between attempts
	lastError    atomic.Pointer[error]
	confirming   chan struct{} // a lock
	confirmed    time.Time     // begin of the last successful confirmation; guarded by confirming
	confirmedRV  atomic.Uint64 // the store has all changes up to this version; 0 after a list
}

// NewReflector returns a reflector that does nothing until Run.
func NewReflector(p ReflectorParams) *Reflector {
	p.Log = p.Log.With(zap.String("store", p.Store.ID()))
	return &Reflector{params: p, retryNow: wake.NewSignal(), confirming: make(chan struct{}, 1)}
}

// LastError returns the error of the last attempt, nil if there was none.
func (r *Reflector) LastError() error {
	if err := r.lastError.Load(); err != nil {
		return *err
	}
	return nil
}

// Run keeps the store equal to the resource until ctx ends.
func (r *Reflector) Run(ctx context.Context) {
	if r.params.WaitForDependencies != nil && r.params.WaitForDependencies(ctx) != nil {
		return
	}
	var delay time.Duration
	for ctx.Err() == nil {
		connected, online := r.params.Connection.connectionState()
		working, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(connected, cancel)
		r.watchStart, r.listed = time.Time{}, false
		err := r.listAndWatch(working)
		stop()
		cancel()
		if ctx.Err() != nil {
			return
		}
		if r.failures == 0 || r.watchDuration() > firstRetry { // not the begin of the attempt: its watch can have been open for hours
			r.failingSince = time.Now()
		}
		r.handleError(err)
		r.lastError.Store(&err)
		delay = nextDelay(delay, attempt{watched: r.watchDuration(), listed: r.listed, failing: time.Since(r.failingSince), err: err})
		r.logAttempt(err, delay)
		if r.waitForRetry(ctx, max(delay/2+rand.N(delay), RetryAfter(err)), online) {
			delay = 0
		}
	}
}

// logAttempt logs the end of an attempt. It warns about an API server that is online but does not serve the kind: nothing else says that
// the store gets old. The warning is repeated, as the pauses are long by then.
func (r *Reflector) logAttempt(err error, delay time.Duration) {
	if err == nil || r.watchDuration() > firstRetry {
		r.failures = 0
	}
	if err == nil {
		return
	}
	fields := []zap.Field{zap.Error(err), zap.Duration("retryAfter", delay)}
	if r.failures++; r.failures%warnEvery == warnAfter && r.params.Connection.IsOnline() {
		r.params.Log.Warn("API server answers, but this kind cannot be read: serving what is stored",
			append(fields, zap.Int("attempts", r.failures))...)
		return
	}
	r.params.Log.Debug("Watch ended", fields...)
}

// watchDuration returns how long the last watch was open.
func (r *Reflector) watchDuration() time.Duration {
	if r.watchStart.IsZero() {
		return 0
	}
	return time.Since(r.watchStart)
}

// attempt is what became of an attempt.
type attempt struct {
	watched time.Duration // how long its watch was open
	listed  bool
	failing time.Duration // since the first attempt in a row that failed
	err     error
}

// nextDelay returns the delay after an attempt. A watch that was open for longer than the last delay was a success, so on a flapping link
// the pauses are not longer than the times between interruptions. History that is gone after a long outage is no reason to wait with the
// list. An API server that lists and then refuses to watch gets longer and longer pauses. Others are shorter in the first minutes of an
// outage: an attempt then costs no list.
func nextDelay(last time.Duration, a attempt) time.Duration {
	var status *StatusError
	code := int32(0)
	if errors.As(a.err, &status) {
		code = status.Status.Code
	}
	switch {
	case last == 0, a.watched > last, code == http.StatusGone && !a.listed:
		return firstRetry
	case code == http.StatusUnauthorized:
		return min(2*last, tokenRetry)
	case !a.listed:
		return min(2*last, max(shortRetry, a.failing/delayDivisor), lastRetry)
	}
	return min(2*last, lastRetry)
}

// waitForRetry waits for a time, or until the API server comes back. It reports whether it did.
func (r *Reflector) waitForRetry(ctx context.Context, delay time.Duration, online <-chan struct{}) (back bool) {
	if r.params.Connection.IsOnline() {
		online = nil
	}
	select {
	case <-ctx.Done():
	case <-r.retryNow:
	case <-online:
		return true
	case <-time.After(delay):
	}
	return false
}

// handleError draws the conclusions from an error.
func (r *Reflector) handleError(err error) {
	var status *StatusError
	if !errors.As(err, &status) {
		r.relist = r.relist || errors.Is(err, errRelist) || errors.Is(err, store.ErrWentBack)
		return
	}
	if status.Status.Code == http.StatusGone {
		r.relist = true
	}
	if r.rights.countRefusal(status.Status.Code, time.Now()) {
		r.params.Store.DenyReads(status)
	}
}

// resetRights resets what depends on errors in a row.
func (r *Reflector) resetRights() {
	r.rights = rights{}
	r.params.Store.DenyReads(nil)
}

// listAndWatch lists if it must, and watches until the watch ends.
func (r *Reflector) listAndWatch(ctx context.Context) error {
	if err := r.params.Connection.verifyIdentity(ctx); err != nil {
		return err
	}
	position := r.params.Store.Position()
	if position != 0 && !r.relist && !r.params.Store.ExpectsNewHistory() {
		current, err := r.currentVersion(ctx)
		if err != nil {
			return err
		}
		r.resetRights()
		if current >= position {
			return r.watchFrom(ctx, position)
		}
		r.params.Log.Warn("Resource version moved backwards, relisting", zap.Uint64("was", position), zap.Uint64("is", current))
	}
	if !r.noWatchList {
		err := r.watchList(ctx)
		if !errors.Is(err, errNoWatchList) {
			return err
		}
		r.noWatchList = true
	}
	rv, err := r.listObjects(ctx)
	if err != nil {
		return err
	}
	return r.watchFrom(ctx, rv)
}

func (r *Reflector) selectorQuery() url.Values {
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

func (r *Reflector) acceptHeader(suffix string) http.Header {
	if r.params.Store.Format() == wire.JSON {
		return http.Header{"Accept": {"application/json" + strings.TrimPrefix(suffix, streamWatch)}}
	}
	return http.Header{"Accept": {"application/vnd.kubernetes.protobuf" + suffix}}
}

// readCollection returns the answer to a read, or a StatusError.
func (r *Reflector) readCollection(ctx context.Context, q url.Values, suffix string) (*http.Response, error) {
	response, err := r.params.Connection.Do(ctx,
		Request{Source: r.params.Store.ID(), Path: r.params.Path, Query: q, Header: r.acceptHeader(suffix)})
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

// currentVersion returns the version of the resource now, by a consistent read of one object.
func (r *Reflector) currentVersion(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, headerTimeout)
	defer cancel()
	q := r.selectorQuery()
	q.Set("limit", "1")
	_, rv, err := r.readList(ctx, q, "", func([]byte) error { return nil })
	return rv, err
}

// readList reads a list of the resource, item by item, and returns its version.
func (r *Reflector) readList(
	ctx context.Context, q url.Values, suffix string, item func(item []byte) error,
) (meta wire.ListMeta, rv uint64, err error) {
	response, err := r.readCollection(ctx, q, suffix)
	if err != nil {
		return meta, 0, err
	}
	defer response.Body.Close()
	meta, err = wire.ReadList(response.Body, wire.ListParams{Format: r.params.Store.Format(), MaxItem: maxObject, Item: item})
	if err != nil {
		return meta, 0, err
	}
	if rv, err = wire.ParseRV(meta.ResourceVersion); err != nil {
		return meta, 0, fmt.Errorf("list: %w", err)
	}
	return meta, rv, nil
}

// itemKind returns the kind of the items of a whole list.
func itemKind(meta wire.ListMeta) (string, error) {
	kind, isList := strings.CutSuffix(meta.Kind, "List")
	if !isList || meta.Continue != "" {
		return "", fmt.Errorf("list: the answer is a %q with continue %q", meta.Kind, meta.Continue)
	}
	return kind, nil
}

// listObjects replaces the content of the store.
func (r *Reflector) listObjects(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := time.AfterFunc(initialEventTimeout, cancel)
	defer idle.Stop()
	replacement := r.params.Store.BeginReplacement()
	meta, rv, err := r.readList(ctx, r.selectorQuery(), "", func(item []byte) error {
		idle.Reset(initialEventTimeout)
		return r.addObject(replacement, item)
	})
	if err != nil {
		return 0, err
	}
	kind, err := itemKind(meta)
	if err != nil {
		return 0, err
	}
	idle.Stop()
	return rv, r.commitReplacement(ctx, replacement, rv, [2]string{meta.APIVersion, kind})
}

func (r *Reflector) addObject(replacement *store.Replacement, object []byte) error {
	if replacement.Len() >= maxObjects {
		return fmt.Errorf("the API server has more than %d objects", maxObjects)
	}
	return replacement.AddObject(object)
}

func (r *Reflector) commitReplacement(ctx context.Context, replacement *store.Replacement, rv uint64, typ [2]string) error {
	apiVersion, kind := r.params.Store.ObjectType()
	if kind != "" && typ[1] != "" && (typ[0] != apiVersion || typ[1] != kind) {
		return fmt.Errorf("list: the answer has objects of kind %s of %s, not %s of %s", typ[1], typ[0], kind, apiVersion)
	}
	if typ[1] != "" {
		r.params.Store.SetObjectType(typ[0], typ[1])
	}
	if r.params.WaitToStore != nil && r.params.Store.IsSynced() {
		if err := r.params.WaitToStore(ctx, nil, rv); err != nil {
			return err
		}
	}
	if err := replacement.Commit(rv); err != nil {
		return err
	}
	r.relist, r.listed = false, true
	r.confirmedRV.Store(0)
	r.resetRights()
	count := replacement.Len() // the last use of replacement: it is garbage below
	if count >= manyObjects {
		debug.FreeOSMemory()
	}
	r.params.Log.Debug("Listed", zap.Int("objects", count), zap.Uint64("resourceVersion", rv))
	return nil
}
