package decisionapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/limits"
)

const (
	// headerTimeout is the maximum time to receive the headers of a call, and for a TLS handshake.
	headerTimeout = 10 * time.Second
	// writeTimeout is the maximum time for a client to take an answer, which is a few KiB: the same as for ext_proc's replies.
	writeTimeout = 30 * time.Second
	// idleTimeout is the time after which an unused connection is closed. Load balancers keep theirs for about a minute.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes is the maximum size of a call's headers: those of the request, in the raw form.
	maxHeaderBytes = 64 << 10
)

// A Listener serves the decision API on a port. An empty address disables it.
type Listener struct {
	*Server

	log         *zap.Logger
	flag        string // that sets the address, for messages
	address     string
	tls         *tls.Config // nil for plaintext
	server      *http.Server
	gate        *limits.Gate
	connections *limits.Drain
	listener    net.Listener // nil until OpenListener, and if it is disabled
}

// ListenerParams are the parameters of NewListener.
type ListenerParams struct {
	Log     *zap.Logger
	Flag    string
	Address string
	TLS     *tls.Config // nil for plaintext
	Server  *Server
}

// NewListener returns a Listener. OpenListener opens its port.
func NewListener(p ListenerParams) *Listener {
	errorLog, err := zap.NewStdLogAt(p.Log, zap.DebugLevel)
	if err != nil {
		panic(err) // unreachable: zap has this level
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // by HTTP/2, a client beyond its share could report any number of outcomes at a time
	timeout := p.Server.options.BodyTimeout
	gate := limits.NewGate(p.Server.ledger)
	l := &Listener{Server: p.Server, log: p.Log, flag: p.Flag, address: p.Address, tls: p.TLS, gate: gate, connections: limits.NewDrain(gate)}
	l.server = &http.Server{
		Handler: l, ConnState: l.connections.OnConnState, ErrorLog: errorLog, Protocols: &protocols, ConnContext: limits.WithConn,
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: min(headerTimeout, timeout), ReadTimeout: timeout, WriteTimeout: timeout + writeTimeout, IdleTimeout: idleTimeout,
	}
	return l
}

// ServeHTTP answers one call.
func (l *Listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.connections.MarkResponse(w)
	l.Server.ServeHTTP(w, r)
}

// OpenListener opens the port.
func (l *Listener) OpenListener() error {
	if l.address == "" {
		return nil
	}
	inner, err := net.Listen("tcp", l.address)
	if err != nil {
		return fmt.Errorf("listen on --%s %s: %w", l.flag, l.address, err)
	}
	l.listener = l.gate.CountingListener(inner, l.tls, "http/1.1")
	return nil
}

// ListenAddress returns the address of the server, empty if it is disabled.
func (l *Listener) ListenAddress() string {
	if l.listener == nil {
		return ""
	}
	return l.listener.Addr().String()
}

// ListenerStats returns current figures.
func (l *Listener) ListenerStats() Stats {
	stats := l.Server.PickStats()
	stats.RefusedConnections = l.gate.RefusedConns()
	return stats
}

// Run serves until Close, which may be called first.
func (l *Listener) Run() error {
	if l.listener == nil {
		return nil
	}
	l.log.Info("Started listening", zap.String(logging.KeyAddress, l.ListenAddress()), zap.String("flag", l.flag))
	err := l.server.Serve(l.listener)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve --%s %s: %w", l.flag, l.address, err)
}

// closeTimeout is the time for calls in progress at the end. They take milliseconds, unless their client stopped.
const closeTimeout = time.Second

// StartDraining asks clients to use other connections for their next calls. All calls are still answered.
func (l *Listener) StartDraining() { l.connections.StartDraining() }

// DrainAll refuses picks, waits until the last open one has its outcome, and then until clients have left their connections. It returns
// the number of picks that were still open when ctx ended. Then Close cuts what is open.
func (l *Listener) DrainAll(ctx context.Context) int {
	n := l.Server.DrainPicks(ctx)
	l.connections.WaitForConns(ctx, l.listener, l.server)
	return n
}

// Close stops the server, and ends the open picks.
func (l *Listener) Close() {
	bounded, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if l.server.Shutdown(bounded) != nil {
		_ = l.server.Close() // calls are in progress after the timeout: cut their connections
	}
	if l.listener != nil {
		_ = l.listener.Close() // a server that ran has closed it
	}
	l.Server.Close()
}
