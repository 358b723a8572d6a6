// Package upstream reads from the API server: connection, health, identity of the cluster, and one reflector per store.
//
// The API server is online while it answers, with any status: each request then decides by its own answer. An answer changes a store only
// if an API server can have given it. A proxy that answers in its place while the network is down, with 400, 404 or an empty list without a
// version, changes nothing here: whatever the stores hold stays. Only 401 and 403 are answers about rights.
package upstream

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"fairlead.dev/services/edge-cache/internal/metrics"
)

const (
	dialTimeout = 3 * time.Second
	// headerTimeout limits the time to the first byte of an answer. An API server that takes longer has more work than it can do.
	headerTimeout = 30 * time.Second
	// pingAfter and pingTimeout find a dead connection in 10 s. The defaults of client-go find it in 45 s.
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
)

// Params are the arguments of New.
type Params struct {
	Config  *rest.Config // address and credentials; files in it are read again for each connection
	Log     *zap.Logger
	Metrics *metrics.Metrics
}

// Connection is the connection to the API server.
type Connection struct {
	params    Params
	base      *url.URL
	client    *http.Client
	transport *http.Transport
	identity  identity

	mu             sync.Mutex
	requestContext context.Context // ends when the API server is offline, so that no request waits on a dead connection
	cancelRequests context.CancelFunc
	online         chan struct{} // closed while online
	probed         bool          // the state is known
	failures       int           // probes in a row
}

// New returns a connection. It connects when it is used.
func New(p Params) (*Connection, error) {
	base, _, err := rest.DefaultServerUrlFor(p.Config)
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	c := &Connection{params: p, base: base, online: make(chan struct{})}
	c.requestContext, c.cancelRequests = context.WithCancel(context.Background())
	c.transport = &http.Transport{
		DialContext: dialTCP, DialTLSContext: c.dialTLS, ForceAttemptHTTP2: true, DisableCompression: true,
		ResponseHeaderTimeout: headerTimeout, MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second, Proxy: p.Config.Proxy,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	wrapped, err := rest.HTTPWrappersForConfig(p.Config, c.transport)
	if err != nil {
		return nil, fmt.Errorf("credentials of the API server: %w", err)
	}
	c.client = &http.Client{
		Transport: wrapped, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

func dialTCP(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{
		Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: pingAfter, Interval: pingAfter, Count: 3},
	}
	return d.DialContext(ctx, network, address)
}

// dialTLS reads the files of the configuration for each connection, so that a rotated authority or client certificate is used at once.
func (c *Connection) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	config, err := rest.TLSConfigFor(c.params.Config)
	if err != nil {
		return nil, fmt.Errorf("read credentials of the API server: %w", err)
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	config.NextProtos = []string{"h2", "http/1.1"}
	raw, err := dialTCP(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, config)
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

// IsOnline reports whether the API server answers.
func (c *Connection) IsOnline() bool {
	_, online := c.connectionState()
	return isClosed(online)
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// connectionState returns the context of requests of now, and a channel that is closed when the API server is online.
func (c *Connection) connectionState() (context.Context, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requestContext, c.online
}

// setOnline is called with the lock.
func (c *Connection) setOnline() {
	close(c.online)
	c.params.Metrics.SetOnline(true)
	c.params.Log.Info("API server is online")
}

// setOffline ends all requests: those on a dead connection would wait for their time limits, and not use a new connection. It is called
// with the lock.
func (c *Connection) setOffline(cause error) {
	c.cancelRequests()
	c.requestContext, c.cancelRequests = context.WithCancel(context.Background())
	if isClosed(c.online) {
		c.online = make(chan struct{})
	}
	c.transport.CloseIdleConnections()
	c.params.Metrics.SetOnline(false)
	c.params.Log.Warn("API server is offline, serving what is stored", zap.Error(cause))
}

// Request is one request to the API server.
type Request struct {
	Source string // for metrics
	Method string // empty: GET
	Path   string
	Query  url.Values
	Header http.Header
	Body   io.Reader
}

// Do sends a request, and returns the answer with any status. The body of the answer is not compressed, and counted.
func (c *Connection) Do(ctx context.Context, r Request) (*http.Response, error) {
	u := *c.base
	u.Path += r.Path
	u.RawQuery = r.Query.Encode()
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, u.String(), r.Body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for name, values := range r.Header {
		request.Header[name] = values
	}
	request.Header.Set("Accept-Encoding", "gzip")
	response, err := c.client.Do(request)
	if err != nil {
		c.params.Metrics.CountUpstreamRequest(r.Source, "error")
		return nil, err
	}
	c.params.Metrics.CountUpstreamRequest(r.Source, fmt.Sprint(response.StatusCode))
	count := func(form string) func(n int) {
		return func(n int) { c.params.Metrics.AddReceivedBytes(r.Source, form, n) }
	}
	wire := &countingBody{Reader: response.Body, Closer: response.Body, count: count("wire")}
	decoded := &countingBody{Reader: wire, Closer: wire, count: count("decoded")}
	if response.Header.Get("Content-Encoding") == "gzip" {
		response.Header.Del("Content-Encoding")
		response.Header.Del("Content-Length")
		response.ContentLength = -1
		decoded.Reader = &lazyGzip{r: wire}
	}
	response.Body = decoded
	return response, nil
}

// lazyGzip reads the header with the first data: the API server writes nothing before the first event of a watch.
type lazyGzip struct {
	r io.Reader
	z *gzip.Reader
}

func (l *lazyGzip) Read(p []byte) (int, error) {
	if l.z == nil {
		z, err := gzip.NewReader(l.r)
		if err != nil {
			return 0, err
		}
		l.z = z
	}
	return l.z.Read(p)
}

// countingBody counts the bytes that are read.
type countingBody struct {
	io.Reader
	io.Closer

	count func(n int)
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.count(n)
	return n, err
}

const (
	probeInterval = 5 * time.Second
	retryInterval = time.Second
	probeTimeout  = 2 * time.Second
	// failuresToOffline: with one failure, each restart of an API server behind a load balancer would count.
	failuresToOffline = 3
)

// Run probes the API server until ctx ends.
func (c *Connection) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.probeServer(ctx)
		if ctx.Err() != nil {
			break
		}
		c.recordProbe(err)
		wait := probeInterval
		if err != nil || !c.IsOnline() {
			wait = retryInterval
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	c.mu.Lock()
	c.cancelRequests()
	c.mu.Unlock()
	c.transport.CloseIdleConnections()
}

// probeServer returns an error if there is no answer. Whether the API server calls itself ready does not matter: it can serve all that is
// asked of it without.
func (c *Connection) probeServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	response, err := c.Do(ctx, Request{Source: "probe", Path: "/readyz"})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 4096)
	return nil
}

// recordProbe counts the result of a probe, and changes the state with hysteresis: one lost packet does not make the API server offline.
func (c *Connection) recordProbe(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	online := isClosed(c.online)
	if err == nil {
		c.probed, c.failures = true, 0
		if !online {
			c.setOnline()
		}
		return
	}
	if c.failures++; c.probed && (!online || c.failures < failuresToOffline) {
		return
	}
	c.probed = true
	c.setOffline(err)
}
