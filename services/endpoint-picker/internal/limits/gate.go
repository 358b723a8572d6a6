package limits

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"

	"fairlead.dev/pkg/connlimit"
)

// A Gate counts the connections of one listener for their clients. It closes those of clients beyond their share. It is safe for
// concurrent use.
type Gate struct {
	ledger        *Ledger
	open, refused atomic.Int64
}

// NewGate returns a Gate without connections.
func NewGate(l *Ledger) *Gate { return &Gate{ledger: l} }

// OpenConns returns the number of open connections.
func (g *Gate) OpenConns() int { return int(g.open.Load()) }

// RefusedConns returns the number of connections that were closed because their clients were beyond their share.
func (g *Gate) RefusedConns() int64 { return g.refused.Load() }

// CountingListener returns a listener whose connections the gate counts. With a configuration, it speaks TLS with protocols of ALPN, and
// the server serves it like plaintext, so that requests can be followed; HTTP/2 begins with its preface. The server must have WithConn as
// its ConnContext. The listener can be closed before the server and by the server: Accept then returns http.ErrServerClosed.
func (g *Gate) CountingListener(inner net.Listener, config *tls.Config, protocols ...string) net.Listener {
	if config != nil {
		config = config.Clone()
		config.NextProtos = protocols
	}
	return &listener{Listener: inner, gate: g, config: config}
}

type listener struct {
	net.Listener

	gate   *Gate
	config *tls.Config // nil for plaintext
	closed atomic.Bool
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		switch {
		case err != nil && l.closed.Load():
			return nil, http.ErrServerClosed
		case err != nil:
			return nil, err
		}
		if c := l.gate.admitConn(raw); c != nil {
			if l.config != nil {
				c.Conn = tls.Server(c.Conn, l.config)
			}
			return c, nil
		}
		_ = raw.Close()
	}
}

// Close implements net.Listener. It may be called again.
func (l *listener) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	return l.Listener.Close()
}

// admitConn counts a connection. It returns nil if its client is beyond its share.
func (g *Gate) admitConn(raw net.Conn) *Conn {
	c := &Conn{gate: g, account: g.ledger.OpenAccount(connlimit.AddressOf(raw.RemoteAddr()))}
	c.Conn = countedConn{Conn: raw, client: c}
	c.account.AddUse(Bytes, connBytes)
	if c.account.IsOverdrawn() {
		g.refused.Add(1)
		c.releaseAccount()
		return nil
	}
	g.open.Add(1)
	return c
}
