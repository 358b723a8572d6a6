package replicas

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/connlimit"
	"fairlead.dev/pkg/httpserver"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
)

const (
	// resolveEvery is the time between two look-ups of the addresses.
	resolveEvery   = 5 * time.Second
	resolveTimeout = 5 * time.Second
	dialTimeout    = 2 * time.Second // in a cluster, an address that does not answer by then has no replica any more
	headerTimeout  = 5 * time.Second // of a request for events
	// maxHeader limits the headers of a request; net/http adds 4 KiB.
	maxHeader = 4 << 10
	// maxWaiting is the number of connections that wait for a request. A replica has one for each pool, for a few milliseconds.
	maxWaiting = 256
)

// resolver looks up host names.
type resolver interface {
	LookupHost(ctx context.Context, host string) (addresses []string, err error)
}

// Params are the parameters of New.
type Params struct {
	Log         *zap.Logger
	Flag        string // of BindAddress, for messages
	BindAddress string
	Addresses   []string    // of all replicas, "host:port"; this one may be among them
	TLS         *tls.Config // of both sides of a connection; nil: plaintext
}

// Node is this replica. New returns it, OpenListener opens its port, and Run serves.
type Node struct {
	params   Params
	instance string // identifies this process
	started  time.Time
	resolver resolver
	client   *http.Client
	server   *http.Server
	limiter  *connlimit.Limiter
	turns    *turns
	listener net.Listener
	silence  time.Duration
	patience time.Duration // with endpoints that have no page
	pending  pendingBytes

	mu         sync.Mutex
	members    map[string]*Member
	knownAddrs []string      // addresses; nil before the first look-up
	changed    chan struct{} // closed when found changes
}

// New returns a Node without pools.
func New(p Params) *Node {
	n := &Node{
		params: p, instance: rand.Text(), started: time.Now(), resolver: net.DefaultResolver,
		limiter: connlimit.New(connlimit.Limits{Waiting: maxWaiting}), turns: newTurns(),
		silence: silence, patience: endpointsTimeout, pending: pendingBytes{limit: maxPending},
		members: map[string]*Member{}, changed: make(chan struct{}),
	}
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: headerTimeout, DisableKeepAlives: true, DisableCompression: true,
		TLSClientConfig: p.TLS.Clone(),
	}
	n.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}
	n.server = &http.Server{
		Handler: n.limiter.Requests(n), TLSConfig: p.TLS.Clone(), ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: zap.NewStdLog(p.Log),
	}
	n.limiter.Attach(n.server)
	n.server.SetKeepAlivesEnabled(false)
	return n
}

// JoinPool makes the requests of a pool known to the other replicas, and returns a Member that makes their requests known to the pool
// while it runs.
func (n *Node) JoinPool(title string, x *estimate.Estimator, s snapshots) *Member {
	m := &Member{
		node: n, title: title, log: n.params.Log.With(zap.String(logging.KeyPool, title)), estimator: x, snapshots: s,
		publisher: newPublisher(n.elapsedTime, &n.pending),
		asking:    newPlaces(maxAsking, maxReadersOfClient), settled: map[string]bool{},
	}
	x.SetPublisher(m.publisher)
	return m
}

func (n *Node) addMember(m *Member) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.members[m.title] = m
}

func (n *Node) removeMember(m *Member) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.members[m.title] == m {
		delete(n.members, m.title)
	}
}

func (n *Node) memberOf(title string) *Member {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.members[title]
}

// elapsedTime returns the time since the start.
func (n *Node) elapsedTime() time.Duration { return n.sinceStart(time.Now()) }

func (n *Node) sinceStart(now time.Time) time.Duration { return now.Sub(n.started) }

func (n *Node) scheme() string {
	if n.params.TLS != nil {
		return "https"
	}
	return "http"
}

// OpenListener opens the port.
func (n *Node) OpenListener() error {
	l, err := net.Listen("tcp", n.params.BindAddress)
	if err != nil {
		return fmt.Errorf("listen for other replicas: %w", err)
	}
	n.listener = l
	n.params.Log.Info("Started listening", zap.String(logging.KeyAddress, n.ListenAddress()), zap.String("flag", n.params.Flag))
	return nil
}

// ListenAddress returns the address of the port after OpenListener.
func (n *Node) ListenAddress() string { return n.listener.Addr().String() }

// Close closes the port of a Node that does not run.
func (n *Node) Close() {
	if n.listener != nil {
		_ = n.listener.Close() // nothing was sent
	}
}

// Run serves events and looks up addresses until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { n.resolveAddresses(ctx) })
	if err := httpserver.Serve(ctx, n.server, n.limiter.Listener(n.listener), 0); err != nil { // events have no end to wait for
		return fmt.Errorf("serve other replicas: %w", err)
	}
	return nil
}

// resolveAddresses looks up the addresses until ctx ends.
func (n *Node) resolveAddresses(ctx context.Context) {
	reported := ""
	for {
		found, err := n.lookupReplicas(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			n.setAddresses(found)
			reported = ""
		case err.Error() != reported:
			if known, _ := n.knownAddresses(); known == nil {
				n.setAddresses([]string{}) // nobody waits for replicas that cannot be found
			}
			n.params.Log.Warn("Could not look up the replicas of the picker, kept the last addresses: check --replica-addresses", zap.Error(err))
			reported = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(resolveEvery):
		}
	}
}

// lookupReplicas returns the addresses of all replicas. If one of several names cannot be looked up, the result is incomplete, so it is an
// error.
func (n *Node) lookupReplicas(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	found := []string{}
	for _, address := range n.params.Addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("address of replicas: %w", err)
		}
		ips, err := n.resolver.LookupHost(ctx, host)
		var missing *net.DNSError
		if errors.As(err, &missing) && missing.IsNotFound {
			continue // a headless Service without ready pods
		}
		if err != nil {
			return nil, fmt.Errorf("look up replicas: %w", err)
		}
		for _, ip := range ips {
			found = append(found, net.JoinHostPort(ip, port))
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	if len(found) > maxReaders {
		n.params.Log.Warn("There are more addresses than replicas can be, used the first ones: check --replica-addresses",
			zap.Int("addresses", len(found)))
		found = found[:maxReaders]
	}
	return found, nil
}

// setAddresses makes addresses known.
func (n *Node) setAddresses(found []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.knownAddrs != nil && slices.Equal(found, n.knownAddrs) {
		return
	}
	n.knownAddrs = found
	close(n.changed)
	n.changed = make(chan struct{})
}

// knownAddresses returns the addresses of all replicas, nil before the first look-up, and a channel that is closed when they change.
func (n *Node) knownAddresses() (addresses []string, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.knownAddrs, n.changed
}
