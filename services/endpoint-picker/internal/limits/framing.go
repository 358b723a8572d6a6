package limits

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// errFraming means that a request violates RFC 9112 in a way that net/http may accept. Two parsers of one connection could disagree on
// where the request ends.
var errFraming = errors.New("malformed request")

var (
	errBareLF    = fmt.Errorf("%w: a line ends with LF in place of CRLF (RFC 9112, 2.2)", errFraming)
	errFolded    = fmt.Errorf("%w: a header is folded (RFC 9112, 5.2)", errFraming)
	errTwoFrames = fmt.Errorf("%w: it has Content-Length and Transfer-Encoding (RFC 9112, 6.3)", errFraming)
	errOldChunks = fmt.Errorf("%w: HTTP/1.0 has no Transfer-Encoding (RFC 9112, 6.1)", errFraming)
	errLength    = fmt.Errorf("%w: its Content-Length is not one number (RFC 9112, 6.3)", errFraming)
	errChunk     = fmt.Errorf("%w: the size or the end of a chunk is wrong (RFC 9112, 7.1)", errFraming)
)

const (
	// maxStoredLine is the beginning of a line that is examined, in bytes: the longest header that matters has 35. A longer one is refused
	// if it matters.
	maxStoredLine = 128
	// maxHexDigits is the maximum number of digits of a chunk's size: one below where int64 ends.
	maxHexDigits = 15

	preface     = "PRI * HTTP/2.0"
	suffixHTTP1 = " HTTP/1.0"
)

// The names of headers that matter, to be compared without an allocation.
var contentLength, transferEncoding, upgrade = []byte("content-length"), []byte("transfer-encoding"), []byte("upgrade")

// part is the part of a request that a line belongs to.
type part uint8

const (
	atRequest part = iota
	atHeader
	atChunk    // its size
	atChunkEnd // the end of its data
	atTrailer
)

// A framingParser follows the requests of a client over HTTP/1.1, to find where their lines violate RFC 9112. It reads headers and the
// sizes of chunks, and skips bodies. Connections of HTTP/2 pass unread, and so does what follows a request for a WebSocket, until the
// handler of the request has decided.
type framingParser struct {
	part      part
	remaining int64 // bytes of a body or a chunk that have not come
	blind     bool  // nothing is read anymore
	undecided bool  // a WebSocket may follow

	text       [maxStoredLine]byte // the beginning of the line
	lineLength int
	tail       []byte // the end of the line

	length             int64 // from Content-Length; -1 without that header
	chunks, old, opens bool  // Transfer-Encoding; HTTP/1.0; Upgrade: websocket
}

// scanBytes follows bytes that have come. It returns how many of them may pass: less than all if an error or a decision is in the way. The
// end of the line with an error does not pass, so that the request is never whole.
func (f *framingParser) scanBytes(b []byte) (n int, err error) {
	for n < len(b) && !f.blind && !f.undecided {
		if f.remaining > 0 {
			k := min(f.remaining, int64(len(b)-n))
			f.remaining -= k
			n += int(k)
			continue
		}
		end := bytes.IndexByte(b[n:], '\n')
		if end < 0 {
			f.storeLine(b[n:])
			return len(b), nil
		}
		f.storeLine(b[n : n+end])
		n += end
		if err := f.endLine(); err != nil {
			return n, err
		}
		n++
	}
	if f.undecided {
		return n, nil
	}
	return len(b), nil
}

// storeLine stores what is examined of a line.
func (f *framingParser) storeLine(b []byte) {
	const most = len(suffixHTTP1 + "\r")
	f.lineLength += copy(f.text[f.lineLength:], b)
	f.tail = append(f.tail, b[max(len(b)-most, 0):]...)
	if surplus := len(f.tail) - most; surplus > 0 {
		f.tail = append(f.tail[:0], f.tail[surplus:]...)
	}
}

// endLine reads a line when its end has come.
func (f *framingParser) endLine() error {
	if !bytes.HasSuffix(f.tail, []byte("\r")) {
		return errBareLF
	}
	line := f.text[:f.lineLength]
	if f.lineLength < maxStoredLine || f.text[maxStoredLine-1] == '\r' {
		line = bytes.TrimSuffix(line, []byte("\r"))
	}
	old := string(f.tail[:len(f.tail)-1]) == suffixHTTP1
	f.lineLength, f.tail = 0, f.tail[:0]
	switch f.part {
	case atRequest:
		return f.readRequest(line, old)
	case atHeader:
		return f.readHeader(line)
	case atChunk:
		return f.readChunk(line)
	case atChunkEnd:
		if f.part = atChunk; len(line) > 0 {
			return errChunk
		}
	case atTrailer:
		if len(line) == 0 {
			f.part = atRequest
		} else if isBlank(line[0]) {
			return errFolded
		}
	}
	return nil
}

func (f *framingParser) readRequest(line []byte, old bool) error {
	switch {
	case len(line) == 0: // some clients send an empty line after a body
		return nil
	case string(line) == preface:
		f.blind = true
		return nil
	}
	f.part, f.length, f.chunks, f.opens, f.old = atHeader, -1, false, false, old
	return nil
}

func (f *framingParser) readHeader(line []byte) error {
	if len(line) == 0 {
		return f.endHead()
	}
	if isBlank(line[0]) {
		return errFolded
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	switch {
	case bytes.EqualFold(name, contentLength):
		n, err := strconv.ParseUint(string(bytes.Trim(value, " \t")), 10, 63)
		if err != nil || f.length >= 0 && f.length != int64(n) {
			return errLength
		}
		f.length = int64(n)
	case bytes.EqualFold(name, transferEncoding):
		f.chunks = true
	case bytes.EqualFold(name, upgrade):
		f.opens = bytes.Contains(bytes.ToLower(value), []byte("websocket"))
	}
	return nil
}

// endHead decides what follows the headers.
func (f *framingParser) endHead() error {
	f.part = atRequest
	switch {
	case f.chunks && f.length >= 0:
		return errTwoFrames
	case f.chunks && f.old:
		return errOldChunks
	case f.chunks:
		f.part = atChunk
	case f.length > 0:
		f.remaining = f.length
	default:
		f.undecided = f.opens
	}
	return nil
}

func (f *framingParser) readChunk(line []byte) error {
	digits := line
	if i := bytes.IndexAny(line, "; \t"); i >= 0 {
		digits = line[:i]
	}
	size, err := strconv.ParseUint(string(digits), 16, 4*maxHexDigits)
	switch {
	case err != nil:
		return errChunk
	case size == 0:
		f.part = atTrailer
	default:
		f.part, f.remaining = atChunkEnd, int64(size)
	}
	return nil
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }
