package extproc

import (
	"encoding/binary"
	"math"
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"fairlead.dev/pkg/protoscan"
)

// lookupEntry returns the value of a map's entry, nil if there is none. The last of several counts.
func lookupEntry(message []byte, key string) []byte {
	var found []byte
	for f := protoscan.Scan(message); f.Next(); {
		if f.Tag != mapEntry {
			continue
		}
		if name, value := readEntry(f.Bytes); string(name) == key {
			found = value
		}
	}
	return found
}

// readEntry reads one entry of a map. A missing value is an empty message.
func readEntry(message []byte) (key, value []byte) {
	value = []byte{}
	for f := protoscan.Scan(message); f.Next(); {
		switch f.Tag {
		case entryKey:
			key = f.Bytes
		case entryValue:
			value = f.Bytes
		}
	}
	return key, value
}

// A messageWriter writes a message. Messages in it are written in place.
type messageWriter struct {
	out  []byte
	last mem.Buffer // the value of the last field, after out; nil if out is the whole message
}

func newMessageWriter(size int) *messageWriter { return &messageWriter{out: make([]byte, 0, size)} }

// toBuffers returns the message, which refers to the buffer of the last field, if any. It has room for the marker of package grpcserver.
func (w *messageWriter) toBuffers() mem.BufferSlice {
	all := append(make(mem.BufferSlice, 0, 3), mem.SliceBuffer(w.out))
	if w.last != nil {
		all = append(all, w.last)
	}
	return all
}

// beginField begins a message field. Its result is for endField.
func (w *messageWriter) beginField(t tag) (start int) {
	w.out = append(protowire.AppendVarint(w.out, uint64(t)), 0) // a length of one byte, as of most
	return len(w.out)
}

// endField ends the last message field that has begun.
func (w *messageWriter) endField(start int) {
	size := len(w.out) - start
	if w.last != nil {
		size += w.last.Len()
	}
	var room [binary.MaxVarintLen64]byte
	length := protowire.AppendVarint(room[:0], uint64(size))
	w.out = slices.Replace(w.out, start-1, start, length...)
}

// beginEntry begins an entry of a map from text to messages. Its result is for endEntry.
func (w *messageWriter) beginEntry(key string) (entry [2]int) {
	entry[0] = w.beginField(mapEntry)
	w.writeText(entryKey, key)
	entry[1] = w.beginField(entryValue)
	return entry
}

func (w *messageWriter) endEntry(entry [2]int) {
	w.endField(entry[1])
	w.endField(entry[0])
}

// writeBuffer writes a field by reference to a buffer, which the message takes over. It must be the last one of the message. A nil buffer
// is empty.
func (w *messageWriter) writeBuffer(t tag, value mem.Buffer) {
	if value == nil {
		w.writeTagAndLength(t, 0)
		return
	}
	w.writeTagAndLength(t, value.Len())
	w.last = value
}

func (w *messageWriter) writeBytes(t tag, value []byte) {
	w.writeTagAndLength(t, len(value))
	w.out = append(w.out, value...)
}

func (w *messageWriter) writeText(t tag, value string) {
	w.writeTagAndLength(t, len(value))
	w.out = append(w.out, value...)
}

func (w *messageWriter) writeVarint(t tag, value uint64) {
	w.out = protowire.AppendVarint(protowire.AppendVarint(w.out, uint64(t)), value)
}

func (w *messageWriter) writeDouble(t tag, value float64) {
	w.out = protowire.AppendFixed64(protowire.AppendVarint(w.out, uint64(t)), math.Float64bits(value))
}

// writeTagAndLength writes the start of a field whose value has size bytes.
func (w *messageWriter) writeTagAndLength(t tag, size int) { w.writeVarint(t, uint64(size)) }
