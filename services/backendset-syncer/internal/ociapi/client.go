// Package ociapi is a client of OCI Load Balancers. It is the only package that imports OCI's SDK.
//
// Each call is one request: no retry policy and no circuit breaker of the SDK, whose open circuit would also stop reads for half a
// minute after a busy load balancer. A limiter for all calls slows down when the service answers 429 (see limiter). An error is an
// *Error with a Class, which is what callers decide by.
package ociapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/oracle/oci-go-sdk/v65/loadbalancer"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/version"
)

const (
	// requestTimeout limits one request. The service answers within a second; a request that hangs delays its load balancer only.
	requestTimeout = 20 * time.Second
	// statusTimeout limits one request of low priority, which holds up the writes of its load balancer.
	statusTimeout = 5 * time.Second
	// maxResponse limits a response. A load balancer with 16 sets of 512 backends has 2 MiB of JSON.
	maxResponse = 32 << 20
	// pageSize is the number of work requests on a page, and maxPages limits the pages of one list.
	pageSize = 100
	maxPages = 20
)

// observer records the requests.
type observer interface {
	// ObserveRequest records a request by its operation and its code: OK, a code of the service, or NoAnswer.
	ObserveRequest(operation, code string, took time.Duration)
	// SetRateLimit records the current limit of requests per second.
	SetRateLimit(perSecond float64)
}

// Params holds the arguments of New.
type Params struct {
	Options

	Observer observer
	Clock    clock.WithTicker
	// Credentials replaces those of the Options. HTTP sends requests; nil: a client with connections of its own. Both are for tests.
	Credentials common.ConfigurationProvider
	HTTP        common.HTTPRequestDispatcher
}

// sdkClient is the SDK's client.
type sdkClient = loadbalancer.LoadBalancerClient

// Client is a client of one region. All methods are safe for concurrent use.
type Client struct {
	p       Params
	limiter *limiter

	mu      sync.Mutex
	attempt *attempt // to connect; nil before the first call, and after a failure
}

// attempt is an attempt to connect.
type attempt struct {
	done   chan struct{} // closed at the end
	client *sdkClient
	err    error
}

// New returns a Client. It finds its credentials with the first call, as some kinds of authentication need the network for it.
func New(p Params) *Client {
	return &Client{p: p, limiter: newLimiter(p.Rate, p.Clock, p.Observer.SetRateLimit)}
}

// connectSDK returns the SDK's client. The SDK cannot be interrupted while it asks services of the cloud for credentials, and some of its
// requests have no time limit: the attempt goes on if ctx ends, or if it takes too long.
func (c *Client) connectSDK(ctx context.Context) (*sdkClient, error) {
	c.mu.Lock()
	if c.attempt == nil {
		c.attempt = &attempt{done: make(chan struct{})}
		go c.attemptConnect(c.attempt)
	}
	current := c.attempt
	c.mu.Unlock()
	timer := c.p.Clock.NewTimer(requestTimeout)
	defer timer.Stop()
	select {
	case <-current.done:
		return current.client, current.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for credentials (--oci-auth=%s): %w", c.p.Auth, ctx.Err())
	case <-timer.C():
		return nil, fmt.Errorf("wait for credentials (--oci-auth=%s): no answer after %s", c.p.Auth, requestTimeout)
	}
}

// attemptConnect makes an attempt to connect. After a failure, the next call makes another one.
func (c *Client) attemptConnect(a *attempt) {
	a.client, a.err = c.newSDKClient()
	if a.err != nil {
		c.mu.Lock()
		c.attempt = nil
		c.mu.Unlock()
	}
	close(a.done)
}

func (c *Client) newSDKClient() (*sdkClient, error) {
	provider := c.p.Credentials
	if provider == nil {
		var err error
		if provider, err = c.p.newProvider(); err != nil {
			return nil, err
		}
	}
	client, err := loadbalancer.NewLoadBalancerClientWithConfigurationProvider(provider)
	if err != nil {
		return nil, fmt.Errorf("make client of OCI: %w", err)
	}
	if c.p.Region != "" {
		client.SetRegion(c.p.Region)
	}
	if c.p.Endpoint != "" {
		client.Host = c.p.Endpoint
	}
	client.UserAgent = "fairlead-backendset-syncer/" + version.String()
	client.Configuration.CircuitBreaker = nil
	client.HTTPClient = dispatcher{c.p.HTTP}
	if c.p.HTTP == nil {
		client.HTTPClient = dispatcher{newHTTPClient()}
	}
	return &client, nil
}

// contextKey is the key of the context that ends a request.
type contextKey struct{}

// dispatcher ends requests with the context of the caller. The SDK must not see it: when its context ends, it returns while another
// goroutine still writes the response that it returns.
type dispatcher struct{ common.HTTPRequestDispatcher }

// Do implements common.HTTPRequestDispatcher.
func (d dispatcher) Do(r *http.Request) (*http.Response, error) {
	if ctx, ok := r.Context().Value(contextKey{}).(context.Context); ok {
		r = r.WithContext(ctx)
	}
	return d.HTTPRequestDispatcher.Do(r) // the SDK wraps it
}

// newHTTPClient returns a client that limits the time and the size of responses.
func newHTTPClient() *http.Client {
	return &http.Client{Transport: limitedTransport{http.DefaultTransport.(*http.Transport).Clone()}, Timeout: requestTimeout} // it is one
}

// limitedTransport cuts responses that are too long.
type limitedTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxResponse), response.Body}
	}
	return response, err // a transport returns the errors of the one that it wraps
}

// answer is a response of the SDK.
type answer interface{ HTTPResponse() *http.Response }

// call is one operation.
type call struct {
	operation string
	priority  Priority
}

// callAPI sends one request when the limiter permits it, and classifies its error.
func callAPI[R any, A answer](
	ctx context.Context, c *Client, o call, send func(sdkClient, context.Context, R) (A, error), request R,
) (A, error) {
	var none A
	client, err := c.connectSDK(ctx)
	if err != nil {
		return none, &Error{Class: Unauthenticated, Operation: o.operation, Message: err.Error()}
	}
	if err := c.limiter.admitRequest(ctx, o.priority, o.operation); err != nil {
		return none, err
	}
	if o.priority == Low {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, statusTimeout)
		defer cancel()
	}
	begun := c.p.Clock.Now()
	got, err := send(*client, context.WithValue(context.WithoutCancel(ctx), contextKey{}, ctx), request)
	var failed *Error
	code := "OK"
	if err != nil {
		failed = classifyError(o.operation, got.HTTPResponse(), err, c.p.Clock.Now()) //nolint:bodyclose // the SDK closed it
		code = failed.codeLabel()
	}
	c.p.Observer.ObserveRequest(o.operation, code, c.p.Clock.Since(begun))
	c.limiter.adjustRate(failed)
	if failed != nil {
		return none, failed
	}
	return got, nil
}

// noRetries turns off the retries that an environment variable of the SDK can turn on.
func noRetries() common.RequestMetadata {
	none := common.NoRetryPolicy()
	return common.RequestMetadata{RetryPolicy: &none}
}
