package modelserver

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
)

const (
	maxHeader = 64 << 10 // of a response, in total
	maxHeads  = 5        // responses before the final one (1xx)

	lengthUnknown = -1 // until the connection ends
)

var (
	errNotHTTP = errors.New("answer is not HTTP")
	errHeader  = errors.New("answer has invalid headers")
)

// head contains the needed part of a response's header.
type head struct {
	status  int
	length  int64 // lengthUnknown if missing
	chunked bool
	last    bool // the connection ends after the response
}

// readHead reads a response up to its body.
func readHead(r *bufio.Reader) (head, error) {
	left := maxHeader
	for range maxHeads {
		h, err := readOneHead(r, &left)
		if err != nil {
			return head{}, err
		}
		if h.status >= 200 {
			return h, nil
		}
	}
	return head{}, errNotHTTP
}

func readOneHead(r *bufio.Reader, left *int) (head, error) {
	line, err := headerLine(r, left)
	if err != nil {
		return head{}, err
	}
	h, err := parseStatus(line)
	if err != nil {
		return head{}, err
	}
	for {
		if line, err = headerLine(r, left); err != nil {
			return head{}, err
		}
		if len(line) == 0 {
			return h, nil
		}
		if err = h.addHeader(line); err != nil {
			return head{}, err
		}
	}
}

// headerLine reads a line and removes its end.
func headerLine(r *bufio.Reader, left *int) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	*left -= len(line)
	switch {
	case errors.Is(err, bufio.ErrBufferFull), *left < 0:
		return nil, fmt.Errorf("%w: over %d bytes", errHeader, maxHeader)
	case errors.Is(err, io.EOF):
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'}), nil
}

// parseStatus parses a line such as "HTTP/1.1 200 OK".
func parseStatus(line []byte) (head, error) {
	rest, ok := bytes.CutPrefix(line, []byte("HTTP/1."))
	if !ok || len(rest) < 5 || (rest[0] != '0' && rest[0] != '1') || rest[1] != ' ' || (len(rest) > 5 && rest[5] != ' ') {
		return head{}, errNotHTTP
	}
	status, err := strconv.ParseUint(string(rest[2:5]), 10, 16)
	if err != nil || status < 100 || status == http.StatusSwitchingProtocols {
		return head{}, errNotHTTP
	}
	return head{status: int(status), length: lengthUnknown, last: rest[0] == '0'}, nil // HTTP/1.0 does not keep connections
}

// addHeader processes one header.
func (h *head) addHeader(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte{':'})
	if !ok || len(name) == 0 || bytes.ContainsAny(name, " \t") {
		return errHeader
	}
	value = bytes.Trim(value, " \t")
	understood := true
	switch {
	case bytes.EqualFold(name, []byte("content-length")):
		understood = h.setLength(value)
	case bytes.EqualFold(name, []byte("transfer-encoding")):
		understood = !h.chunked && bytes.EqualFold(value, []byte("chunked"))
		h.chunked = true
	case bytes.EqualFold(name, []byte("content-encoding")): // it was not requested
		understood = bytes.EqualFold(value, []byte("identity"))
	case bytes.EqualFold(name, []byte("connection")):
		for token := range bytes.SplitSeq(value, []byte{','}) {
			h.last = h.last || bytes.EqualFold(bytes.Trim(token, " \t"), []byte("close"))
		}
	}
	if !understood {
		return fmt.Errorf("%w: %q", errHeader, line)
	}
	return nil
}

// setLength returns false for an invalid or a second, different length.
func (h *head) setLength(value []byte) bool {
	n, err := strconv.ParseUint(string(value), 10, 63)
	if err != nil || (h.length != lengthUnknown && h.length != int64(n)) {
		return false
	}
	h.length = int64(n)
	return true
}

// body is a response's body. It returns io.EOF at the end of the response.
type body struct {
	buffered  *bufio.Reader
	chunks    io.Reader // nil if not chunked
	remaining int64     // bytes, if not chunked; lengthUnknown
}

func newBody(r *bufio.Reader, h head) *body {
	b := &body{buffered: r, remaining: h.length}
	if h.chunked {
		b.chunks = httputil.NewChunkedReader(r)
	}
	return b
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	switch {
	case b.chunks != nil:
		n, err := b.chunks.Read(p)
		if errors.Is(err, io.EOF) {
			if trailers := b.skipTrailers(); trailers != nil {
				return n, trailers
			}
		}
		return n, err
	case b.remaining == lengthUnknown:
		return b.buffered.Read(p)
	case b.remaining == 0:
		return 0, io.EOF
	}
	n, err := b.buffered.Read(p[:min(int64(len(p)), b.remaining)])
	b.remaining -= int64(n)
	if b.remaining > 0 && errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// skipTrailers reads the trailers after the last chunk.
func (b *body) skipTrailers() error {
	for left := maxHeader; ; {
		line, err := headerLine(b.buffered, &left)
		if err != nil || len(line) == 0 {
			return err
		}
	}
}
