package dataplane

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// port is an open port of a load balancer. Listeners that share it have the same kind.
type port struct {
	number int
	kind   kind
	net    net.Listener // nil if the port could not be opened
	err    error
	server *http.Server       // of HTTP
	cancel context.CancelFunc // ends the connections of TCP
	ended  chan struct{}
}

// kind is what a port does with connections.
type kind struct {
	protocol string // HTTP, HTTP2 or TCP
	tls      bool
}

func kindOf(l *lbapi.Listener) kind {
	k := kind{protocol: l.Protocol, tls: l.SSLConfiguration != nil}
	if l.Protocol == lbapi.GRPC {
		k.protocol = lbapi.HTTP2
	}
	return k
}

// updatePorts opens and closes the ports of a load balancer. The first listener of a port by name decides about its kind: the API
// refuses listeners of different kinds.
func (p *Plane) updatePorts(id string, b *balancer) {
	wanted := map[int]kind{}
	for _, l := range b.listeners {
		wanted[l.port] = b.sharing(l.port)[0].kind
	}
	for number, open := range b.ports {
		if k, ok := wanted[number]; !ok || k != open.kind {
			open.close()
			delete(b.ports, number)
		}
	}
	for number, k := range wanted {
		if b.ports[number] == nil {
			b.ports[number] = p.open(id, b.address, number, k)
		}
	}
}

var errNoListener = errors.New("the port has no listener with TLS")

// open opens a port.
func (p *Plane) open(id, address string, number int, k kind) *port {
	o := &port{number: number, kind: k, ended: make(chan struct{}), cancel: func() {}}
	if o.net, o.err = p.o.Listen(address, number); o.err != nil {
		close(o.ended)
		return o
	}
	var secure *tls.Config
	if k.tls {
		// The configuration is that of the listener at the time of the handshake.
		secure = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if l := p.listenerFor(id, number, hello.ServerName); l != nil && l.tls != nil {
				return l.tls, nil
			}
			return nil, errNoListener
		}}
	}
	if k.protocol == lbapi.TCP {
		ctx, cancel := context.WithCancel(context.Background())
		o.cancel = cancel
		go func() {
			defer close(o.ended)
			serveTCP(ctx, o.net, secure, func() (*listener, *backendSet) { return p.route(id, number, nil) })
		}()
		return o
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(k.protocol == lbapi.HTTP2)
	o.server = &http.Server{
		Handler: p.handler(id, number), Protocols: protocols, ReadHeaderTimeout: time.Minute, TLSConfig: secure,
		ErrorLog: zap.NewStdLog(zap.NewNop()),
	}
	go func() {
		defer close(o.ended)
		if k.tls {
			_ = o.server.ServeTLS(o.net, "", "")
			return
		}
		_ = o.server.Serve(o.net)
	}()
	return o
}

// close closes the port and its connections.
func (o *port) close() {
	o.cancel()
	if o.server != nil {
		_ = o.server.Close()
	} else if o.net != nil {
		_ = o.net.Close()
	}
	<-o.ended
}

// listenerFor returns the listener of a port for the name of a host, or nil.
func (p *Plane) listenerFor(id string, number int, host string) *listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.balancers[id]; b != nil {
		return b.listenerFor(number, host)
	}
	return nil
}

// route returns the listener and the backend set for a request to a port, which is nil for a connection. The set is nil if it does
// not exist.
func (p *Plane) route(id string, number int, r *http.Request) (*listener, *backendSet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.balancers[id]
	if b == nil {
		return nil, nil
	}
	host := ""
	if r != nil {
		host = r.Host
	}
	l := b.listenerFor(number, host)
	if l == nil {
		return nil, nil
	}
	return l, b.sets[l.route(r)]
}
