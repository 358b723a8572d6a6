package extproc

import (
	"encoding/binary"
	"math"
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"fairlead.dev/services/endpoint-picker/internal/scan/protoscan"
)

// lookup returns the value of a map's entry, nil if there is none. The last of several counts.
func lookup(whole []byte, key string) []byte {
	var found []byte
	for f := protoscan.Read(whole); f.Next(); {
		if f.Tag != mapEntry {
			continue
		}
		if name, value := entry(f.Bytes); string(name) == key {
			found = value
		}
	}
	return found
}

// entry reads one entry of a map. A missing value is an empty message.
func entry(whole []byte) (key, value []byte) {
	value = []byte{}
	for f := protoscan.Read(whole); f.Next(); {
		switch f.Tag {
		case entryKey:
			key = f.Bytes
		case entryValue:
			value = f.Bytes
		}
	}
	return key, value
}

// A writer writes a message. Messages in it are written in place.
type writer struct {
	out  []byte
	last mem.Buffer // the value of the last field, after out; nil if out is the whole message
}

func newWriter(size int) *writer { return &writer{out: make([]byte, 0, size)} }

// message returns the message, which refers to the buffer of the last field, if any. It has room for the marker of package peers.
func (w *writer) message() mem.BufferSlice {
	all := append(make(mem.BufferSlice, 0, 3), mem.SliceBuffer(w.out))
	if w.last != nil {
		all = append(all, w.last)
	}
	return all
}

// begin begins a message field. Its result is for end.
func (w *writer) begin(t tag) (start int) {
	w.out = append(protowire.AppendVarint(w.out, uint64(t)), 0) // a length of one byte, as of most
	return len(w.out)
}

// end ends the last message field that has begun.
func (w *writer) end(start int) {
	size := len(w.out) - start
	if w.last != nil {
		size += w.last.Len()
	}
	var room [binary.MaxVarintLen64]byte
	length := protowire.AppendVarint(room[:0], uint64(size))
	w.out = slices.Replace(w.out, start-1, start, length...)
}

// beginEntry begins an entry of a map from text to messages. Its result is for endEntry.
func (w *writer) beginEntry(key string) (entry [2]int) {
	entry[0] = w.begin(mapEntry)
	w.text(entryKey, key)
	entry[1] = w.begin(entryValue)
	return entry
}

func (w *writer) endEntry(entry [2]int) {
	w.end(entry[1])
	w.end(entry[0])
}

// reference writes a field by reference to a buffer, which the message takes over. It must be the last one of the message. A nil buffer is empty.
func (w *writer) reference(t tag, value mem.Buffer) {
	if value == nil {
		w.opening(t, 0)
		return
	}
	w.opening(t, value.Len())
	w.last = value
}

func (w *writer) bytes(t tag, value []byte) {
	w.opening(t, len(value))
	w.out = append(w.out, value...)
}

func (w *writer) text(t tag, value string) {
	w.opening(t, len(value))
	w.out = append(w.out, value...)
}

func (w *writer) integer(t tag, value uint64) {
	w.out = protowire.AppendVarint(protowire.AppendVarint(w.out, uint64(t)), value)
}

func (w *writer) number(t tag, value float64) {
	w.out = protowire.AppendFixed64(protowire.AppendVarint(w.out, uint64(t)), math.Float64bits(value))
}

// opening writes the start of a field whose value has size bytes.
func (w *writer) opening(t tag, size int) { w.integer(t, uint64(size)) }
