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
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/services/edge-cache/internal/store"
	"fairlead.dev/services/edge-cache/internal/wire"
)

func watchQuery(q url.Values) url.Values {
	q.Set("watch", "true")
	q.Set("allowWatchBookmarks", "true")
	q.Set("timeoutSeconds", strconv.Itoa(300+rand.IntN(300)))
	return q
}

// watchList replaces the content of the store by a stream of all objects, and goes on with the events after them.
func (r *Reflector) watchList(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var silent atomic.Bool
	idle := time.AfterFunc(initialEventTimeout, func() { silent.Store(true); cancel() })
	defer idle.Stop()
	q := watchQuery(r.selectorQuery())
	q.Set("sendInitialEvents", "true")
	q.Set("resourceVersionMatch", "NotOlderThan")
	response, err := r.readCollection(ctx, q, streamWatch)
	if err != nil {
		return refusesWatchList(err)
	}
	defer response.Body.Close()
	events := wire.NewEventReader(r.params.Store.Format(), response.Body, maxObject)
	initial := &initialEvents{reflector: r, replacement: r.params.Store.BeginReplacement()}
	for !initial.done {
		e, err := events.Next()
		if silent.Load() || errors.Is(err, io.EOF) {
			return errNoWatchList
		}
		if err != nil {
			return err
		}
		idle.Reset(initialEventTimeout)
		if err := initial.addEvent(e); err != nil {
			return err
		}
	}
	idle.Stop()
	if err := r.commitReplacement(ctx, initial.replacement, initial.rv, initial.typ); err != nil {
		return err
	}
	return r.followEvents(ctx, events)
}

// initialEvents collects the events before the bookmark that ends them: objects, and changes of them in the meantime.
type initialEvents struct {
	reflector   *Reflector
	replacement *store.Replacement
	typ         [2]string // apiVersion and kind
	rv          uint64
	done        bool
}

func (i *initialEvents) addEvent(e wire.Event) error {
	format := i.reflector.params.Store.Format()
	if i.typ[1] == "" || e.Type != "BOOKMARK" {
		i.typ = [2]string{e.APIVersion, e.Kind}
	}
	switch e.Type {
	case "BOOKMARK":
		b, err := parseBookmark(format, e.Object)
		i.rv, i.done = b.rv, b.initialEnd
		return err
	case string(store.Added), string(store.Modified):
		return i.reflector.addObject(i.replacement, e.Object)
	case string(store.Deleted):
		return i.replacement.DropObject(e.Object)
	case "ERROR":
		err := parseErrorEvent(format, e.Object)
		var status *StatusError
		if errors.As(err, &status) && status.Status.Code != http.StatusUnauthorized && status.Status.Code != http.StatusForbidden {
			return errNoWatchList
		}
		return err
	}
	return fmt.Errorf("watch-list: unknown event type %q", e.Type)
}

// refusesWatchList returns errNoWatchList for the answers of API servers and proxies that do not know watch-lists.
func refusesWatchList(err error) error {
	var status *StatusError
	if errors.As(err, &status) {
		switch status.Status.Code {
		case http.StatusUnprocessableEntity, http.StatusBadRequest, http.StatusNotAcceptable:
			return errNoWatchList
		}
	}
	return err
}

// watchFrom applies events after a version until the watch ends.
func (r *Reflector) watchFrom(ctx context.Context, rv uint64) error {
	q := watchQuery(r.selectorQuery())
	q.Set("resourceVersion", strconv.FormatUint(rv, 10))
	response, err := r.readCollection(ctx, q, streamWatch)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	r.resetRights()
	return r.followEvents(ctx, wire.NewEventReader(r.params.Store.Format(), response.Body, maxObject))
}

// followEvents applies events until the stream ends. An API server ends it without an error after the requested time.
func (r *Reflector) followEvents(ctx context.Context, events *wire.EventReader) error {
	r.watchStart = time.Now()
	for count := 0; ; count++ {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			if count == 0 && r.watchDuration() < time.Second {
				return errors.New("the watch ended at once")
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		if err := r.applyEvent(ctx, e); err != nil {
			var status *StatusError
			if errors.As(err, &status) || ctx.Err() != nil {
				return err
			}
			return fmt.Errorf("watch: %w: %w", errRelist, err)
		}
	}
}

// applyEvent applies one event to the store.
func (r *Reflector) applyEvent(ctx context.Context, e wire.Event) error {
	switch e.Type {
	case string(store.Added), string(store.Modified):
		if err := r.waitToStore(ctx, e.Object); err != nil {
			return err
		}
		return r.params.Store.PutObject(e.Object)
	case string(store.Deleted):
		return r.params.Store.RemoveObject(e.Object)
	case "BOOKMARK":
		bookmark, err := parseBookmark(r.params.Store.Format(), e.Object)
		if err != nil {
			return err
		}
		return r.params.Store.ApplyBookmark(bookmark.rv)
	case "ERROR":
		return parseErrorEvent(r.params.Store.Format(), e.Object)
	}
	return fmt.Errorf("unknown event type %q", e.Type)
}

// waitToStore waits until an object may be stored.
func (r *Reflector) waitToStore(ctx context.Context, object []byte) error {
	if r.params.WaitToStore == nil {
		return nil
	}
	_, rv, err := wire.ParseVersion(r.params.Store.Format(), object)
	if err != nil {
		return err
	}
	return r.params.WaitToStore(ctx, object, rv)
}

func parseErrorEvent(format wire.Format, object []byte) error {
	e := &StatusError{}
	if err := decodeSmall(format, object, &e.Status); err != nil {
		return fmt.Errorf("decode error event: %w", err)
	}
	return e
}

type bookmark struct {
	rv         uint64
	initialEnd bool
}

func parseBookmark(format wire.Format, object []byte) (bookmark, error) {
	var o metav1.PartialObjectMetadata // every kind has its metadata in the same field
	if err := decodeSmall(format, object, &o); err != nil {
		return bookmark{}, fmt.Errorf("decode bookmark: %w", err)
	}
	rv, err := wire.ParseRV(o.ResourceVersion)
	if err != nil {
		return bookmark{}, fmt.Errorf("bookmark: %w", err)
	}
	return bookmark{rv: rv, initialEnd: o.Annotations[wire.InitialEventsEnd] == "true"}, nil
}

// decodeSmall decodes an object that is not stored.
func decodeSmall(format wire.Format, object []byte, into interface{ Unmarshal(object []byte) error }) error {
	if format == wire.JSON {
		return json.Unmarshal(object, into)
	}
	return into.Unmarshal(object)
}
