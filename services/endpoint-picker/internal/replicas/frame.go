package replicas

import (
	"bufio"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
)

const (
	// maxHashes is the maximum number of hashes in a frame: two million tokens. The publisher cuts longer prompts.
	maxHashes = 1 << 17
	// maxFrame is the maximum size of a frame: its hashes, and less than a hundred bytes for all other fields.
	maxFrame = 8*maxHashes + 128
	// maxTime is the longest time since a replica's start: a century.
	maxTime = 100 * 365 * 24 * time.Hour
)

var errFrame = errors.New("invalid frame from another replica")

// idOf returns a number for an endpoint that is the same in all replicas, and another one for a later pod with the same name.
func idOf(e *endpoint.Endpoint) uint64 {
	const odd = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	return e.NameHash()*odd ^ xxhash.Sum64String(e.Identity().UID)
}

// appendFrame appends a frame, after its length.
func appendFrame(to []byte, f *Frame) []byte {
	to = protowire.AppendVarint(to, uint64(proto.Size(f)))
	to, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(to, f)
	if err != nil {
		panic(err) // unreachable: numbers always encode
	}
	return to
}

// appendClock appends a frame with the time since the sender's start.
func appendClock(to []byte, now time.Duration) []byte {
	return appendFrame(to, &Frame{Kind: Kind_CLOCK, Time: uint64(now.Microseconds())})
}

// appendEvent appends a frame with an event at a time since the sender's start.
func appendEvent(to []byte, at time.Duration, e estimate.Event) []byte {
	f := &Frame{
		Kind: Kind(e.Kind), Time: uint64(at.Microseconds()), Request: e.Request, Tokens: e.Tokens, Context: e.Context,
		Answer: uint32(e.Answer),
		Chain:  e.Chain[:min(len(e.Chain), maxHashes)],
	}
	if e.Endpoint != nil {
		f.Endpoint = idOf(e.Endpoint)
	}
	return appendFrame(to, f)
}

// readFrame reads the next frame.
func readFrame(from *bufio.Reader, f *Frame) error {
	options := protodelim.UnmarshalOptions{UnmarshalOptions: proto.UnmarshalOptions{DiscardUnknown: true}, MaxSize: maxFrame}
	if err := options.UnmarshalFrom(from, f); err != nil {
		return fmt.Errorf("read frame of another replica: %w", err)
	}
	switch {
	case Kind_name[int32(f.GetKind())] == "":
		return fmt.Errorf("%w: unknown kind %d", errFrame, f.GetKind())
	case f.GetTime() > uint64(maxTime.Microseconds()):
		return fmt.Errorf("%w: time %d is later than a century", errFrame, f.GetTime())
	case f.GetAnswer() > uint32(estimate.Whole):
		return fmt.Errorf("%w: unknown form of answer %d", errFrame, f.GetAnswer())
	}
	return nil
}
