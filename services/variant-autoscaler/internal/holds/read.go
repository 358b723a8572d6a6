package holds

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	streamPath  = "/v1/holds"
	metricsPath = "/metrics"
	streamType  = "application/x-ndjson"

	// maxLine is the size of a line: what waits in one pool. A line for a thousand models has 100 KiB.
	maxLine = 1 << 20
	// heartbeat is the longest time without a line. A picker writes one at least every 15 s.
	heartbeat = 45 * time.Second
	// linePause and bytesPerSecond bound the processor time that a picker which writes all the time can take. A picker of ten pools writes
	// at most 200 lines a second.
	linePause      = time.Millisecond
	bytesPerSecond = 4 << 20
	// maxError is the size of the largest body that is read of an answer other than 200.
	maxError = 16 << 10
	// maxRequests bounds a number of requests.
	maxRequests = 1_000_000
	// scrapeInterval is the time between two looks at the metrics of a picker that has no stream.
	scrapeInterval = time.Second
)

var (
	errNoStream  = errors.New("the picker has no stream of holds")
	errHeartbeat = fmt.Errorf("the picker wrote no line for %s", heartbeat)
)

// line is what a picker says of a pool. Both names are checked, as a picker may serve pools that others own.
type line struct {
	Namespace string `json:"namespace"`
	Pool      string `json:"pool"`
	Models    []struct {
		Model   string `json:"model"`
		Waiting int    `json:"waiting"`
	} `json:"models"`
}

// streamReader reads one stream of a picker.
type streamReader struct {
	follower *Follower
	picker   picker
	pools    []snapshot.PoolKey
	stop     context.CancelFunc
	heard    atomic.Bool // whether its stream has delivered a line
	log      *zap.Logger
}

// readUntilEnd reads the stream until it ends, or the metrics of a picker that has none. It always returns an error.
func (r *streamReader) readUntilEnd(ctx context.Context) error {
	client, err := r.follower.p.newClient(r.picker)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	err = r.readStream(ctx, client)
	if !errors.Is(err, errNoStream) {
		return err
	}
	r.log.Debug("Reading the queues of a picker each second: it has no stream of holds")
	for ctx.Err() == nil {
		if err := r.scrapeQueues(ctx, client); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(scrapeInterval):
		}
	}
	return ctx.Err()
}

func (r *streamReader) readStream(ctx context.Context, client *http.Client) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(heartbeat, func() { cancel(errHeartbeat) })
	defer watchdog.Stop()
	response, err := r.sendRequest(ctx, client, streamPath)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type")); err != nil || kind != streamType {
		return fmt.Errorf("%w: %s has the type %.80q", errNoStream, streamPath, response.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(make([]byte, 0, 4<<10), maxLine)
	for lines.Scan() {
		watchdog.Reset(heartbeat)
		if err := r.observeLine(lines.Bytes()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(linePause + time.Duration(len(lines.Bytes()))*time.Second/bytesPerSecond):
		}
	}
	switch {
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case lines.Err() != nil:
		return fmt.Errorf("read %s: %w", streamPath, lines.Err())
	}
	return fmt.Errorf("read %s: %w", streamPath, io.EOF)
}

// observeLine reads a line. An empty line only shows that the picker is alive.
func (r *streamReader) observeLine(text []byte) error {
	r.heard.Store(true)
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("read a line of %s: %w", streamPath, err)
	}
	waiting := make(map[string]int, len(l.Models))
	for _, m := range l.Models {
		waiting[m.Model] = min(max(m.Waiting, 0), maxRequests)
	}
	for _, pool := range r.pools {
		if pool == (snapshot.PoolKey{Namespace: l.Namespace, Name: l.Pool}) {
			r.follower.p.Table.Observe(pool, r.picker.address, waiting)
		}
	}
	return nil
}

// scrapeQueues reads the queues on the page of metrics.
func (r *streamReader) scrapeQueues(ctx context.Context, client *http.Client) error {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	response, err := r.sendRequest(ctx, client, metricsPath)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	queues, err := readQueues(response.Body)
	if err != nil {
		return fmt.Errorf("read %s: %w", metricsPath, err)
	}
	r.heard.Store(true)
	for _, pool := range r.pools {
		r.follower.p.Table.Observe(pool, r.picker.address, queues.waitingOf(pool, len(r.pools) == 1))
	}
	return nil
}

// sendRequest sends a request, and returns a response with status 200.
func (r *streamReader) sendRequest(ctx context.Context, client *http.Client, path string) (*http.Response, error) {
	request, err := r.follower.p.newRequest(ctx, r.picker, path)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxError) // so that the connection can be used again
	_ = response.Body.Close()                            // it says nothing that is needed
	switch response.StatusCode {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return nil, fmt.Errorf("%w: get %s: %s", errNoStream, path, response.Status)
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("get %s: %s: set --holds-token-file to a token that may get %s and %s, and --holds-ca-file to the authority of the picker's certificate",
			path, response.Status, streamPath, metricsPath)
	}
	return nil, fmt.Errorf("get %s: %s", path, response.Status)
}
