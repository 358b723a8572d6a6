package scaler

import (
	"net"
	"sync"
)

// limited is a listener that closes connections beyond a number at once.
type limited struct {
	net.Listener
	places chan struct{}
}

func limit(l net.Listener, connections int) *limited {
	return &limited{Listener: l, places: make(chan struct{}, connections)}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.places <- struct{}{}:
			return &placed{Conn: conn, leave: sync.OnceFunc(func() { <-l.places })}, nil
		default:
			_ = conn.Close() // nothing was written
		}
	}
}

// placed is a connection that has a place.
type placed struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (p *placed) Close() error {
	defer p.leave()
	return p.Conn.Close()
}
