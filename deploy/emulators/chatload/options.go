package chatload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Options describe a load. BaseURL, Model, MaxTokens, and either Concurrency or Rate are required.
type Options struct {
	BaseURL string      // such as http://127.0.0.1:8080; /v1/chat/completions is appended
	Model   string      // in each request
	Header  http.Header // sent with each request

	Client    *http.Client // nil: Run creates one from the next three fields
	Dial      DialFunc     // nil: net.Dialer
	KeepAlive bool         // reuse connections; otherwise each request opens one
	HTTP2     bool         // HTTP/2 without TLS

	Concurrency int     // closed loop: number of concurrent requests
	Rate        float64 // open loop: average number of requests per second, a Poisson process that does not wait for answers

	Requests int             // maximum number of requests; 0: no limit
	Duration time.Duration   // time after which no request starts; 0: no limit
	Stop     <-chan struct{} // after it is closed, no request starts; nil: no limit
	Timeout  time.Duration   // of one request; 0: 10 minutes

	MaxTokens     int
	IgnoreEOS     bool // request exactly MaxTokens tokens; an answer with another number is a failure
	RequirePicked bool // an answer without the headers of the picked and the serving endpoint is a failure
	Prompts       Prompts

	OnResult func(Result) // called when a request ends, never concurrently
}

// DialFunc connects to an address.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

const (
	path           = "/v1/chat/completions"
	defaultTimeout = 10 * time.Minute
)

func (o *Options) validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if u, err := url.Parse(o.BaseURL); err != nil || u.Host == "" {
		fail("base URL %q has no host: give a URL such as http://127.0.0.1:8080", o.BaseURL)
	}
	if o.Model == "" {
		fail("model is empty: give the name of a model")
	}
	if (o.Concurrency > 0) == (o.Rate > 0) || o.Concurrency < 0 || o.Rate < 0 {
		fail("one of concurrency and rate must be positive, got %d and %v", o.Concurrency, o.Rate)
	}
	if o.Requests < 0 || o.Duration < 0 || o.Timeout < 0 {
		fail("requests, duration and timeout must not be negative")
	}
	if o.MaxTokens < 1 {
		fail("max tokens must be at least 1, got %d", o.MaxTokens)
	}
	if err := o.Prompts.validate(); err != nil {
		fail("prompts: %w", err)
	}
	return errors.Join(errs...)
}

// client returns the HTTP client, and a function that closes its idle connections.
func (o *Options) client() (*http.Client, func()) {
	if o.Client != nil {
		return o.Client, func() {}
	}
	dial := o.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	transport := &http.Transport{
		DialContext:         markDialErrors(dial),
		DisableKeepAlives:   !o.KeepAlive,
		DisableCompression:  true,
		MaxIdleConnsPerHost: max(o.Concurrency, 1000), // the default of 2 would close most connections after each request
		Protocols:           new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(!o.HTTP2)
	transport.Protocols.SetUnencryptedHTTP2(o.HTTP2)
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return client, transport.CloseIdleConnections
}

// dialError marks an error of any dialer as a failure to connect.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

func markDialErrors(dial DialFunc) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, &dialError{err}
		}
		return c, nil
	}
}
