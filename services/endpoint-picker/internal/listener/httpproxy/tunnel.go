package httpproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/limits"
)

// isWebSocket reports whether a request opens a WebSocket (RFC 6455, 4.1). Offers of other protocols are ignored, as RFC 9110, 7.8 allows:
// HTTP clients offer TLS and HTTP/2, and can do without.
func isWebSocket(r *http.Request) bool {
	return r.Method == http.MethodGet && r.ProtoAtLeast(1, 1) && r.ProtoMajor == 1 && r.ContentLength == 0 &&
		hasToken(r.Header[headerConnection], tokenUpgrade) && hasToken(r.Header[headerUpgrade], protocolWebSocket)
}

// setWebSocket sets the headers that open a WebSocket.
func setWebSocket(h http.Header) {
	h[headerConnection], h[headerUpgrade] = []string{tokenUpgrade}, []string{protocolWebSocket}
}

// opensWebSocket reports whether both sides agree to a WebSocket.
func opensWebSocket(request, response http.Header) bool {
	return hasToken(request[headerUpgrade], protocolWebSocket) && hasToken(response[headerUpgrade], protocolWebSocket)
}

// runTunnel passes bytes in both directions until one side ends, nothing has passed for the time limit, or the listener is closed. Until
// then the request is open: for its client, and for the load of the model server.
func (a *attempt) runTunnel() error {
	client, buffered, err := a.control.Hijack()
	if err != nil {
		return errGone
	}
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered()) // its next read would end the request's context with the connection
	server, _ := a.response.Body.(io.ReadWriteCloser)            // of a response that switches protocols
	a.conn.tunnel.Store(true)
	limits.ConnOf(a.transfer.request).SwitchToTunnel()
	a.resetSilence()
	end := func() {
		_ = client.Close()
		_ = server.Close()
	}
	defer end()
	defer context.AfterFunc(a.request.Context(), end)()
	var sides sync.WaitGroup
	sides.Go(func() {
		defer end()
		a.copyBytes(server, io.MultiReader(bytes.NewReader(early), client), &a.requestContext.RequestBytes)
	})
	a.copyBytes(deadlineConn{client, a.server.params.Options.SendTimeout}, server, &a.requestContext.ResponseBytes)
	end()
	sides.Wait()
	switch {
	case a.request.Context().Err() == nil:
		return nil
	case errors.Is(context.Cause(a.request.Context()), errSilent):
		return errSilent
	}
	return errGone
}

// copyBytes passes bytes until either side ends, and counts them.
func (a *attempt) copyBytes(to io.Writer, from io.Reader, passed *int) {
	buffer, _ := pieceBuffers.Get().(*[pieceSize]byte)
	defer pieceBuffers.Put(buffer)
	for {
		n, err := from.Read(buffer[:])
		if n > 0 {
			a.resetSilence()
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
			*passed += n
		}
		if err != nil {
			return
		}
	}
}

// resetSilence begins the time limit for silence anew.
func (a *attempt) resetSilence() {
	if a.silence != nil {
		a.silence.Reset(a.server.params.Options.IdleTimeout)
	}
}

// A deadlineConn gives each write a time limit.
type deadlineConn struct {
	net.Conn

	limit time.Duration
}

// Write implements net.Conn.
func (c deadlineConn) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.limit))
	return c.Conn.Write(b)
}
