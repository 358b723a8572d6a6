package decisionapi

import (
	"errors"
	"io"
	"net/http"
	"os"

	"fairlead.dev/pkg/connlimit"
	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

const (
	// callBytes is the memory of a call besides its connection, its headers and its body (BenchmarkMemoryOfCalls: a pick whose body does
	// not come takes 24 kB together with its connection).
	callBytes = 4 << 10
	// firstRead is the size of the first read of a body of unknown length, in bytes.
	firstRead = 4 << 10
	// objectCopies is the memory of a pick in the form of an object, in relation to its length: the text, and the body without
	// escapes.
	objectCopies = 2
)

// A call is a call in progress. What it holds counts for its client.
type call struct {
	*http.Request

	server    *Server
	account   *limits.Account
	control   *http.ResponseController
	heldBytes int64 // bytes of the body
}

// countCalls returns a handler that counts the memory of a call, until it ends.
func (s *Server) countCalls(serve func(w http.ResponseWriter, c *call)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		account := s.params.Ledger.OpenAccount(connlimit.ClientOf(r))
		c := &call{Request: r, server: s, account: account, control: http.NewResponseController(w)}
		defer c.account.Close()
		fixed := int64(callBytes + limits.HeadersSize(r.Header))
		c.account.AddUse(limits.Bytes, fixed)
		defer c.account.AddUse(limits.Bytes, -fixed)
		defer c.releaseBody()
		serve(w, c)
	}
}

// tryAddBytes counts bytes of the body. It returns false if the client would be beyond its share.
func (c *call) tryAddBytes(n int64) bool {
	if !c.account.TryAddUse(limits.Bytes, n) {
		c.server.refusedBytes.Add(1)
		return false
	}
	c.heldBytes += n
	return true
}

// addBytes counts bytes of the body, also beyond the share of the client.
func (c *call) addBytes(n int64) bool {
	c.account.AddUse(limits.Bytes, n)
	c.heldBytes += n
	return true
}

// releaseBody returns the bytes of the body, which nobody needs anymore.
func (c *call) releaseBody() {
	c.account.AddUse(limits.Bytes, -c.heldBytes)
	c.heldBytes = 0
}

// readBody reads the body. It counts its memory as it grows, so that a client holds only what it has sent.
func (c *call) readBody(most, copies int, count func(n int64) bool) ([]byte, *Problem) {
	if c.ContentLength > int64(most) {
		return nil, tooLarge(most)
	}
	var body []byte
	for {
		if len(body) == cap(body) {
			size := min(max(2*cap(body), firstRead), most+1)
			if c.ContentLength >= 0 {
				size = min(size, int(c.ContentLength)+1) // and a byte for the end
			}
			if !count(int64((size - cap(body)) * copies)) {
				return nil, limitProblem("too many bytes of bodies and open picks: report outcomes, or send fewer requests at a time")
			}
			body = append(make([]byte, 0, size), body...)
		}
		n, err := c.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > most:
			return nil, tooLarge(most)
		case errors.Is(err, io.EOF):
			return body, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, errSlow
		case err != nil:
			return nil, errBroken
		}
	}
}

func tooLarge(most int) *Problem { return toProblem(request.TooLarge(most)) }
