package modelserver

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

const (
	tokenizePath = "/tokenize"

	// maxSampleTries is the number of requests to a server process that has not answered (derived: with the back-off of failing scrapes
	// they take 2.5 s, which outlasts a busy moment of a server that has just started).
	maxSampleTries = 5
	// maxSampleAnswer limits the bytes of an answer (derived: it has the id of every token of the sample, which are at most 4 Ki tokens,
	// each with up to 7 digits, a comma and a space).
	maxSampleAnswer = 64 << 10
	// maxModelName limits the bytes of a model's name on a page (guarded): names are paths of at most a few directories. Models with longer
	// names are not asked for.
	maxModelName = 256
)

// errNoTokenizer means that a server counts no tokens for us, so it need not be asked again.
var errNoTokenizer = errors.New("server does not count tokens")

// sampling is the state of asking one endpoint for the tokens of the sample. It belongs to the worker's scrape, except while busy.
//
//	a page names a model         ask for it
//	no answer                    ask again after the back-off of failing scrapes, up to maxSampleTries
//	an answer, or no tokenizer   settled
//	the page names another model, the server refused a connection, so it has ended, or the settings changed   ask again
//
// There is never more than one request, and in the long run at most one a second, whatever pages say.
type sampling struct {
	busy      atomic.Bool
	model     string // as on the page
	triesLeft int    // tries
	pace      pace   // of requests
	due       time.Time
	again     bool // ask again even if it is settled
}

// sampleTokens asks the server for the tokens of the sample in its own goroutine, if it is due.
func (w *worker) sampleTokens(now time.Time) {
	s := &w.sampling
	if !w.params.Options.ProbeTokenizers || len(w.reading.model) == 0 || s.busy.Load() {
		return
	}
	if s.again || string(w.reading.model) != s.model {
		s.again, s.model, s.triesLeft = false, string(w.reading.model), maxSampleTries
	}
	if s.triesLeft == 0 || now.Before(s.due) {
		return
	}
	s.triesLeft--
	s.pace.recordFailure()
	s.due = now.Add(s.pace.scrapeInterval(w.plan.interval, watched))
	q := sampleQuestion{dial: w.dial, target: w.described.Address, tls: w.secure, model: unescaper.Replace(s.model),
		timeout: w.params.Options.Timeout}
	s.busy.Store(true)
	w.scrapes.Go(func() {
		defer s.busy.Store(false)
		if w.askSample(&q) {
			s.triesLeft = 0
		}
	})
}

// askSample asks once, and reports whether the matter is settled.
func (w *worker) askSample(q *sampleQuestion) bool {
	tokens, err := q.askTokens(w.ctx)
	fields := append(w.logFields(), zap.String("model", q.model))
	switch {
	case w.ctx.Err() != nil: // the endpoint was removed
	case err != nil:
		w.params.Log.Debug("Could not count tokens of the sample text on endpoint, used those of answers", append(fields, zap.Error(err))...)
		return errors.Is(err, errNoTokenizer)
	case !w.params.RecordSampleCount(q.model, sampleBytes, tokens):
		w.params.Log.Debug("Ignored impossible count of tokens of endpoint, used those of answers", append(fields, zap.Int("tokens", tokens))...)
	default:
		w.params.Log.Debug("Counted tokens of the sample text on endpoint",
			append(fields, zap.Int("tokens", tokens), zap.Int("bytes", sampleBytes))...)
	}
	return true
}

// sampleQuestion is one request for the tokens of the sample.
type sampleQuestion struct {
	dial    dialer
	target  netip.AddrPort
	tls     *tls.Config // nil for http
	model   string
	timeout time.Duration
}

// askTokens sends the request on a connection of its own, so that no scrape waits for it.
func (q *sampleQuestion) askTokens(ctx context.Context) (tokens int, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	request, err := q.newRequest(ctx)
	if err != nil {
		return 0, fmt.Errorf("count tokens: %w", err)
	}
	transport := &http.Transport{
		DialContext: q.dial, TLSClientConfig: q.tls, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, fmt.Errorf("count tokens: %.200v", err) // it may quote the response
	}
	defer response.Body.Close()
	if tokens, err = readCount(response); err != nil {
		return 0, fmt.Errorf("count tokens: %w", err)
	}
	return tokens, nil
}

// readCount reads the number of tokens from an answer.
func readCount(response *http.Response) (int, error) {
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return 0, fmt.Errorf("%w: status %d", errNoTokenizer, response.StatusCode)
	default:
		return 0, fmt.Errorf("status %d", response.StatusCode)
	}
	var counted struct {
		Count int `json:"count"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxSampleAnswer)).Decode(&counted); err != nil {
		return 0, fmt.Errorf("decode answer: %w", err)
	}
	return counted.Count, nil
}
