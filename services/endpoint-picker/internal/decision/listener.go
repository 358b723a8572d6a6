package decision

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
)

const (
	// headerTimeout is the maximum time to receive the headers of a call, and for a TLS handshake. At half the value, a client on a
	// bad network may be cut; at double, one that stopped holds a connection for twice as long.
	headerTimeout = 10 * time.Second
	// writeTimeout is the maximum time for a client to take an answer, which is a few KiB: the same as for ext_proc's replies.
	writeTimeout = 30 * time.Second
	// idleTimeout is the time after which an unused connection is closed. Load balancers keep theirs for about a minute.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes is the maximum size of a call's headers: those of the request, in the raw form.
	maxHeaderBytes = 64 << 10
	// maxConnections is the maximum number of connections, 10 KiB each (50 KiB with TLS). Load balancers use as many as they have
	// calls in progress, which take a millisecond. At half, 20 load balancers with 100 each would not fit; at double, idle
	// connections hold up to 200 MiB.
	maxConnections = 2048
)

// A Listener serves the decision API on a port. An empty address disables it.
type Listener struct {
	*Server

	log         *zap.Logger
	flag        string // that sets the address, for messages
	address     string
	server      *http.Server
	listener    net.Listener // nil until Listen, and if it is disabled
	connections *shares
}

// ListenerParams are the parameters of NewListener.
type ListenerParams struct {
	Log     *zap.Logger
	Flag    string
	Address string
	TLS     *tls.Config // nil for plaintext
	Server  *Server
}

// NewListener returns a Listener. Listen opens its port.
func NewListener(p ListenerParams) *Listener {
	errorLog, err := zap.NewStdLogAt(p.Log, zap.DebugLevel)
	if err != nil {
		panic(err) // unreachable: zap has this level
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // a connection of HTTP/2 has any number of calls, which the limits here do not count
	timeout := p.Server.options.BodyTimeout
	return &Listener{
		Server: p.Server, log: p.Log, flag: p.Flag, address: p.Address, connections: newShares(maxConnections),
		server: &http.Server{
			Handler: p.Server, ErrorLog: errorLog, TLSConfig: p.TLS, Protocols: &protocols, MaxHeaderBytes: maxHeaderBytes,
			ReadHeaderTimeout: min(headerTimeout, timeout), ReadTimeout: timeout, WriteTimeout: timeout + writeTimeout, IdleTimeout: idleTimeout,
		},
	}
}

// Listen opens the port.
func (l *Listener) Listen() error {
	if l.address == "" {
		return nil
	}
	inner, err := net.Listen("tcp", l.address)
	if err != nil {
		return fmt.Errorf("listen on --%s %s: %w", l.flag, l.address, err)
	}
	l.listener = limited{inner, l.connections}
	return nil
}

// Address returns the address of the server, empty if it is disabled.
func (l *Listener) Address() string {
	if l.listener == nil {
		return ""
	}
	return l.listener.Addr().String()
}

// Run serves until Close, which may be called first.
func (l *Listener) Run() error {
	if l.listener == nil {
		return nil
	}
	l.log.Info("Started listening", zap.String(logging.KeyAddress, l.Address()), zap.String("flag", l.flag))
	var err error
	if l.server.TLSConfig == nil {
		err = l.server.Serve(l.listener)
	} else {
		err = l.server.ServeTLS(l.listener, "", "") // TLSConfig contains the certificate
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve --%s %s: %w", l.flag, l.address, err)
}

// closeTimeout is the time for calls in progress at the end. They take milliseconds, unless their client stopped.
const closeTimeout = time.Second

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

// limited closes the connections of clients that have too many.
type limited struct {
	net.Listener

	connections *shares
}

// Accept returns the next connection.
func (l limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // net/http examines it
		}
		address, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
		client := address.Addr().Unmap().WithZone("")
		if l.connections.take(client, 1) {
			return &counted{Conn: conn, release: sync.OnceFunc(func() { l.connections.give(client, 1) })}, nil
		}
		_ = conn.Close()
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn

	release func()
}

// Close closes the connection.
func (c *counted) Close() error {
	c.release()
	return c.Conn.Close() //nolint:wrapcheck // net/http examines it
}
