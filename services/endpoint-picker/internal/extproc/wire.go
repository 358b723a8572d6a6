package extproc

import (
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

// appendField appends a message field.
func appendField(b []byte, t tag, value []byte) []byte {
	return append(appendOpening(b, t, len(value)), value...)
}

// appendText is appendField for text.
func appendText(b []byte, t tag, value string) []byte {
	return append(appendOpening(b, t, len(value)), value...)
}

// appendInteger appends an integer field.
func appendInteger(b []byte, t tag, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendVarint(b, uint64(t)), value)
}

// appendOpening appends the start of a message field whose value, of size bytes, follows.
func appendOpening(b []byte, t tag, size int) []byte { return appendInteger(b, t, uint64(size)) }

// fieldSize returns the length of a message field, including its opening.
func fieldSize(t tag, size int) int {
	return protowire.SizeVarint(uint64(t)) + protowire.SizeBytes(size)
}
