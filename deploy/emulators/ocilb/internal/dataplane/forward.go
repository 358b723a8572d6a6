package dataplane

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

var (
	errIdle = errors.New("idle timeout of the listener")
	errCut  = errors.New("the backend was removed")
)

// once is a body that cannot be sent again, even if it is empty: Go's transport repeats requests without a body. It is not read after
// its last byte, as the transport does: the server may have closed it when the answer began, and then the transport cuts the answer
// (https://github.com/golang/go/issues/40747).
type once struct {
	io.ReadCloser

	left int64 // negative: not known
}

func (o *once) Read(p []byte) (int, error) {
	if o.ReadCloser == nil || o.left == 0 {
		return 0, io.EOF
	}
	n, err := o.ReadCloser.Read(p)
	if o.left > 0 {
		o.left -= int64(n)
	}
	return n, err
}

func (o *once) Close() error {
	if o.ReadCloser == nil {
		return nil
	}
	return o.ReadCloser.Close()
}

// watched resets a timer with each read.
type watched struct {
	io.ReadCloser

	timer *time.Timer
	idle  time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if n > 0 {
		w.timer.Reset(w.idle)
	}
	return n, err
}

// upgraded is the connection to a backend after a change of the protocol, such as to WebSocket. Bytes in both directions reset the timer.
type upgraded struct {
	*watched

	to io.Writer
}

func (u *upgraded) Write(p []byte) (int, error) {
	n, err := u.to.Write(p)
	if n > 0 {
		u.timer.Reset(u.idle)
	}
	return n, err
}

// serveTCP forwards connections until the port closes. Connections end with ctx.
func serveTCP(ctx context.Context, l net.Listener, secure *tls.Config, route func() (*listener, *backendSet)) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		if secure != nil {
			client = tls.Server(client, secure)
		}
		go func() {
			defer client.Close()
			if _, s := route(); s != nil && handshake(ctx, client) == nil {
				forwardTCP(ctx, client, s)
			}
		}()
	}
}

// handshake ends the TLS handshake of a client, if there is one.
func handshake(ctx context.Context, client net.Conn) error {
	secure, ok := client.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	return secure.HandshakeContext(ctx)
}

// forwardTCP copies bytes between a client and a backend until one of them closes, or the backend is cut off.
func forwardTCP(ctx context.Context, client net.Conn, s *backendSet) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	host, _, _ := net.SplitHostPort(client.RemoteAddr().String())
	f := s.choose(host, nil, cancel)
	if f == nil {
		return
	}
	defer s.done(f)
	server, err := dial(ctx, s.o, f.tls, f.backend.address)
	if err != nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = server.Close()
	})
	defer stop()
	var copies sync.WaitGroup
	pipe := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
			return
		}
		_ = to.Close()
	}
	copies.Go(func() { pipe(server, client) })
	copies.Go(func() { pipe(client, server) })
	copies.Wait()
}
