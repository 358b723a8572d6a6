package replicas

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
)

// Kinds of frames that are no events.
const (
	frameClock    = 0
	frameContents = 9
)

// maxHashes is the maximum number of hashes in a frame: two million tokens. The publisher cuts longer prompts.
const maxHashes = 1 << 17

var errFrame = errors.New("malformed frame from another replica")

// idOf returns a number for an endpoint that is the same in all replicas, and another one for a later pod with the same name.
func idOf(e *endpoint.Endpoint) uint64 {
	const odd = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	return e.NameHash()*odd ^ xxhash.Sum64String(e.Identity().UID)
}

// appendClock appends a frame with the time since the sender's start.
func appendClock(to []byte, now time.Duration) []byte {
	return binary.AppendUvarint(append(to, frameClock), uint64(now.Microseconds()))
}

// appendEvent appends a frame with an event at a time since the sender's start.
func appendEvent(to []byte, at time.Duration, e estimate.Event) []byte {
	to = binary.AppendUvarint(append(to, byte(e.Kind)), uint64(at.Microseconds()))
	switch e.Kind {
	case estimate.EventBegun, estimate.EventFirst, estimate.EventMoved, estimate.EventEnded, estimate.EventLost:
		to = binary.AppendUvarint(to, e.Request)
	case estimate.EventCached, estimate.EventAnswered, estimate.EventOccupied:
	}
	if e.Endpoint != nil {
		to = binary.LittleEndian.AppendUint64(to, idOf(e.Endpoint))
	}
	switch e.Kind {
	case estimate.EventBegun:
		to = binary.AppendUvarint(binary.AppendUvarint(to, uint64(e.Tokens)), uint64(e.Context))
		to = append(to, byte(e.Answer))
	case estimate.EventCached:
		to = binary.AppendUvarint(to, uint64(e.Tokens))
		chain := e.Chain[:min(len(e.Chain), maxHashes)]
		to = binary.AppendUvarint(to, uint64(len(chain)))
		for _, hash := range chain {
			to = binary.LittleEndian.AppendUint64(to, hash)
		}
	case estimate.EventAnswered, estimate.EventOccupied:
		to = binary.AppendUvarint(to, uint64(e.Tokens))
	case estimate.EventFirst, estimate.EventMoved, estimate.EventEnded, estimate.EventLost:
	}
	return to
}

// frame is a decoded frame.
type frame struct {
	kind     byte
	at       time.Duration // since the sender's start; of a clock, its time
	endpoint uint64        // 0 if the event has none
	event    estimate.Event
}

// frameReader reads frames.
type frameReader struct {
	from  *bufio.Reader
	chain []uint64
	bytes []byte
}

// readFrame reads the next frame. Its chain is valid until the next call.
func (r *frameReader) readFrame(f *frame) error {
	*f = frame{}
	kind, err := r.from.ReadByte()
	if err != nil {
		return fmt.Errorf("read from another replica: %w", err)
	}
	f.kind = kind
	if kind == frameContents {
		return nil
	}
	if kind > frameContents {
		return fmt.Errorf("%w: unknown kind %d", errFrame, kind)
	}
	if err := r.readBody(f); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	return nil
}

func (r *frameReader) readBody(f *frame) error {
	at, err := r.readNumber(uint64(maxTime.Microseconds()))
	f.at = time.Duration(at) * time.Microsecond
	if f.kind == frameClock || err != nil {
		return err
	}
	f.event.Kind = estimate.EventKind(f.kind)
	switch f.event.Kind {
	case estimate.EventBegun:
		return errors.Join(r.readRequest(f), r.readEndpoint(f), r.readTokens(f), r.readContext(f), r.readAnswer(f))
	case estimate.EventMoved:
		return errors.Join(r.readRequest(f), r.readEndpoint(f))
	case estimate.EventCached:
		return errors.Join(r.readEndpoint(f), r.readTokens(f), r.readHashes(f))
	case estimate.EventAnswered, estimate.EventOccupied:
		return errors.Join(r.readEndpoint(f), r.readTokens(f))
	case estimate.EventFirst, estimate.EventEnded, estimate.EventLost:
	}
	return r.readRequest(f)
}

// maxTime is the longest time since a replica's start: a century.
const maxTime = 100 * 365 * 24 * time.Hour

// readNumber reads a number up to a maximum.
func (r *frameReader) readNumber(most uint64) (uint64, error) {
	n, err := binary.ReadUvarint(r.from)
	if err != nil {
		return 0, toUnexpectedEOF(err)
	}
	if n > most {
		return 0, fmt.Errorf("%d is more than %d", n, most)
	}
	return n, nil
}

func (r *frameReader) readRequest(f *frame) (err error) {
	f.event.Request, err = r.readNumber(1<<63 - 1)
	return err
}

func (r *frameReader) readTokens(f *frame) error {
	n, err := r.readNumber(1<<63 - 1)
	f.event.Tokens = int64(n)
	return err
}

func (r *frameReader) readContext(f *frame) error {
	n, err := r.readNumber(1<<63 - 1)
	f.event.Context = int64(n)
	return err
}

func (r *frameReader) readAnswer(f *frame) error {
	b, err := r.from.ReadByte()
	f.event.Answer = estimate.AnswerMode(b)
	if err == nil && f.event.Answer != estimate.Streamed && f.event.Answer != estimate.Whole {
		return fmt.Errorf("unknown form of answer %d", b)
	}
	return toUnexpectedEOF(err)
}

func (r *frameReader) readEndpoint(f *frame) error {
	var b [8]byte
	_, err := io.ReadFull(r.from, b[:])
	f.endpoint = binary.LittleEndian.Uint64(b[:])
	return toUnexpectedEOF(err)
}

func (r *frameReader) readHashes(f *frame) error {
	n, err := r.readNumber(maxHashes)
	if err != nil {
		return err
	}
	r.bytes = slices.Grow(r.bytes[:0], int(n)*8)[:n*8]
	if _, err := io.ReadFull(r.from, r.bytes); err != nil {
		return toUnexpectedEOF(err)
	}
	r.chain = r.chain[:0]
	for b := r.bytes; len(b) > 0; b = b[8:] {
		r.chain = append(r.chain, binary.LittleEndian.Uint64(b))
	}
	f.event.Chain = r.chain
	return nil
}

// toUnexpectedEOF makes the end of the stream an error inside of a frame.
func toUnexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
