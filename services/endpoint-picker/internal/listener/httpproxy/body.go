package httpproxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/mem"

	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// firstRead is the size of the first buffer of a body. It doubles while the body goes on, so that a client that announces a large body and
// sends little of it gets little memory.
const firstRead = 16 << 10

// errGone means that the client has closed the connection, or its stream.
var errGone = errors.New("the client has gone")

// collectBody reads the body of the request into memory. It returns a refusal, or errGone, if the body does not come.
func (t *transfer) collectBody() (*request.Refusal, error) {
	r := t.request
	if r.Body == nil || r.Body == http.NoBody {
		t.bodyComplete = true
		return nil, nil
	}
	limit := t.server.params.Options.MaxRequestBody
	if r.ContentLength > int64(limit) {
		return request.TooLarge(limit), nil
	}
	_ = t.control.SetReadDeadline(time.Now().Add(t.server.params.Options.BodyTimeout))
	pool := t.account.BufferPool()
	size := firstRead
	if r.ContentLength > 0 {
		size = int(min(r.ContentLength, firstRead))
	}
	buffer, n := pool.Get(size), 0
	for {
		k, err := r.Body.Read((*buffer)[n:])
		n += k
		switch {
		case n > limit:
			pool.Put(buffer)
			return request.TooLarge(limit), nil
		case errors.Is(err, io.EOF):
			_ = t.control.SetReadDeadline(time.Time{}) // net/http reads on, to see whether the client goes
			t.storeBody(buffer, n)
			t.bodyComplete = true
			return nil, nil
		case err != nil:
			pool.Put(buffer)
			return t.bodyError(err)
		case t.account.IsBeyondShare(limits.Bytes):
			pool.Put(buffer)
			return request.Exhausted(limits.ErrTooManyBytes), nil
		case n == len(*buffer):
			buffer = t.growBuffer(buffer)
		}
	}
}

// growBuffer returns a larger buffer with the same contents, up to one byte more than the body can have.
func (t *transfer) growBuffer(buffer *[]byte) *[]byte {
	size := min(2*len(*buffer), t.server.params.Options.MaxRequestBody+1)
	if announced := t.request.ContentLength; announced > int64(len(*buffer)) {
		size = int(min(int64(size), announced))
	}
	pool := t.account.BufferPool()
	larger := pool.Get(size)
	copy(*larger, *buffer)
	pool.Put(buffer)
	return larger
}

// storeBody takes over the first n bytes of a buffer as the body.
func (t *transfer) storeBody(buffer *[]byte, n int) {
	pool := t.account.BufferPool()
	if n == 0 {
		pool.Put(buffer)
		return
	}
	*buffer = (*buffer)[:n]
	t.body = mem.NewBuffer(buffer, pool)
	t.requestContext.RequestBytes = n
}

// bodyError returns the answer to a body that could not be read.
func (t *transfer) bodyError(err error) (*request.Refusal, error) {
	var network net.Error
	malformed := limits.ConnOf(t.request).Violation()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return request.TimedOut(), nil
	case malformed != nil: // after which net/http takes the client for gone
		return request.BadRequest(malformed), nil
	case errors.As(err, &network), errors.Is(err, io.ErrUnexpectedEOF), t.request.Context().Err() != nil, t.request.ProtoMajor == 2:
		return nil, errGone
	}
	return request.BadRequest(err), nil // for example the length of a chunk
}

// freeBody frees the body when no attempt reads it anymore.
func (t *transfer) freeBody() {
	if t.body != nil {
		t.body.Free()
		t.body = nil
	}
}

// bodyBytes returns the body, nil if there is none.
func (t *transfer) bodyBytes() []byte {
	if t.body == nil {
		return nil
	}
	return t.body.ReadOnlyData()
}

// A sentBody is the body of one attempt: the collected one with the edit of the pick. The transport may read it in a goroutine
// of its own for a while after the attempt has failed, so it holds the memory until it is closed.
type sentBody struct {
	mu     sync.Mutex
	buffer mem.Buffer // nil when closed
	pieces [3][]byte
	rest   net.Buffers // of pieces
}

// newSentBody returns the body for the transport, and its length. It is http.NoBody if there is none.
func (t *transfer) newSentBody() (io.ReadCloser, int64) {
	if t.body == nil {
		return http.NoBody, 0
	}
	t.body.Ref()
	b, body := &sentBody{buffer: t.body}, t.body.ReadOnlyData()
	edit := t.requestContext.Edit
	if b.pieces[0] = body; edit.Replacement != nil {
		b.pieces = [3][]byte{body[:edit.From], edit.Replacement, body[edit.To:]}
	}
	b.rest = b.pieces[:]
	return b, int64(len(body) + edit.GrowthBytes())
}

// Read implements io.Reader.
func (b *sentBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buffer == nil {
		return 0, os.ErrClosed
	}
	return b.rest.Read(p)
}

// Close implements io.Closer.
func (b *sentBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buffer != nil {
		b.buffer.Free()
		b.buffer, b.pieces, b.rest = nil, [3][]byte{}, nil
	}
	return nil
}
