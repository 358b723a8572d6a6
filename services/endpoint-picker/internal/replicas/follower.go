package replicas

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pool"
)

const (
	// silence is the time without a frame after which a replica counts as gone: five heartbeats.
	silence = 5 * heartbeat
	// retryFirst and retryLongest bound the time until the next attempt to connect.
	retryFirst   = 200 * time.Millisecond
	retryLongest = 5 * time.Second
	// readBuffer holds a few hundred events, or one long prompt.
	readBuffer = 64 << 10
	// maxRefusal is the part of a refusal's text to log.
	maxRefusal = 200
)

var (
	errSilent   = errors.New("no answer")
	errSelf     = errors.New("the address is our own")
	errRefused  = errors.New("the replica refused")
	errProtocol = errors.New("the replica has another version of the protocol")
)

// follower reads the events of one pool from one other replica.
type follower struct {
	member  *Member
	address string
	view    *estimate.Replica

	snapshot *pool.Snapshot
	byID     map[uint64]*endpoint.Endpoint // of the snapshot
	lead     time.Duration                 // of our clock over the sender's
}

// readUntilDone reads until ctx ends, or until the address turns out to be our own.
func (f *follower) readUntilDone(ctx context.Context) {
	log := f.member.log.With(zap.String("replica", f.address))
	wait, reported := retryFirst, ""
	for ctx.Err() == nil {
		started := time.Now()
		err := f.readEvents(ctx)
		switch {
		case errors.Is(err, errSelf):
			f.member.markSilent(f.address)
			return
		case ctx.Err() != nil:
			return
		case time.Since(started) > retryLongest: // it was connected
			wait, reported = retryFirst, ""
		}
		if text := err.Error(); text != reported { // once for each reason
			log.Info("Heard nothing from another replica of the picker; requests that it places count by the metrics pages of their "+
				"endpoints",
				zap.Error(err))
			reported = text
		}
		f.member.markSilent(f.address)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, retryLongest)
	}
}

// readEvents connects and applies events until the connection ends.
func (f *follower) readEvents(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := f.member.node.silence
	silent := time.AfterFunc(limit, func() { cancel(fmt.Errorf("%w for %s", errSilent, limit)) })
	defer silent.Stop()
	response, err := f.requestFrames(ctx, eventsPath)
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	defer response.Body.Close()
	f.view = f.member.estimator.NewReplica()
	defer func() { f.view.Close(time.Now()) }()
	f.member.connected.Add(1)
	defer f.member.connected.Add(-1)
	if err := f.member.fetchContents(func() error { return f.readContents(ctx, silent) }); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	if err := f.applyAll(response.Body, silent); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return fmt.Errorf("%w: contents among the events", errFrame)
}

// readContents applies what the other replica knows of the caches. Its events wait meanwhile.
func (f *follower) readContents(ctx context.Context, silent *time.Timer) error {
	response, err := f.requestFrames(ctx, contentsPath)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return f.applyAll(response.Body, silent)
}

// applyAll applies frames until the contents are complete, or the stream ends.
func (f *follower) applyAll(from io.Reader, silent *time.Timer) error {
	reader := bufio.NewReaderSize(from, readBuffer)
	var next Frame
	for {
		if err := readFrame(reader, &next); err != nil {
			return err
		}
		silent.Reset(f.member.node.silence)
		if next.GetKind() == Kind_COMPLETE {
			return nil
		}
		f.applyFrame(&next)
	}
}

// requestFrames asks for frames.
func (f *follower) requestFrames(ctx context.Context, path string) (*http.Response, error) {
	n := f.member.node
	target := url.URL{Scheme: n.scheme(), Host: f.address, Path: path, RawQuery: url.Values{paramPool: {f.member.title}}.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("address of a replica: %w", err)
	}
	request.Header.Set(headerProtocol, protocol)
	request.Header.Set(headerInstance, n.instance)
	response, err := n.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("connect to another replica: %w", err)
	}
	if err := n.checkResponse(response); err != nil {
		response.Body.Close()
		return nil, err
	}
	return response, nil
}

// checkResponse returns the reason why a response has no events.
func (n *Node) checkResponse(response *http.Response) error {
	switch {
	case response.Header.Get(headerInstance) == n.instance:
		return errSelf
	case response.StatusCode == http.StatusUpgradeRequired,
		response.StatusCode == http.StatusOK && response.Header.Get(headerProtocol) != protocol:
		return fmt.Errorf("%w than %s", errProtocol, protocol)
	case response.StatusCode != http.StatusOK:
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
		return fmt.Errorf("%w: %s: %s", errRefused, response.Status, strings.TrimSpace(string(text)))
	}
	return nil
}

// applyFrame applies a frame.
func (f *follower) applyFrame(next *Frame) {
	m, now, elapsed := f.member, time.Now(), time.Duration(next.GetTime())*time.Microsecond
	event := estimate.Event{
		Kind: estimate.EventKind(next.GetKind()), Request: next.GetRequest(), Tokens: next.GetTokens(), Context: next.GetContext(),
		Answer: estimate.AnswerMode(next.GetAnswer()), Chain: next.GetChain(),
	}
	switch next.GetKind() {
	case Kind_CLOCK:
		f.lead = m.node.sinceStart(now) - elapsed
		return
	case Kind_BEGUN, Kind_MOVED, Kind_CACHED, Kind_ANSWERED, Kind_OCCUPIED:
		if event.Endpoint = f.endpointOf(next.GetEndpoint()); event.Endpoint == nil {
			return // it has left, or is not known here yet
		}
	case Kind_FIRST, Kind_ENDED, Kind_LOST, Kind_COMPLETE:
	}
	m.received.Add(1)
	at := m.node.started.Add(elapsed + f.lead)
	if at.After(now) {
		at = now
	}
	f.view.ApplyEvent(event, at)
}

// endpointOf returns the endpoint with a number, or nil.
func (f *follower) endpointOf(id uint64) *endpoint.Endpoint {
	if s := f.member.snapshots.Snapshot(); s != f.snapshot {
		f.snapshot, f.byID = s, make(map[uint64]*endpoint.Endpoint, len(s.Endpoints))
		for _, e := range s.Endpoints {
			f.byID[idOf(e)] = e
		}
	}
	return f.byID[id]
}
