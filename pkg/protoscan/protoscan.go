// Package protoscan iterates over the fields of a protobuf message in the wire format.
//
// It decodes and copies nothing. Bytes of a field are a part of the message, and their offset is known, so callers can read
// the fields that they need and pass on the others by reference. After an invalid field the iteration ends, and Err reports
// it.
package protoscan

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrMalformed means that the input is not a message in the wire format.
var ErrMalformed = errors.New("malformed message")

// Tag is a field's number and wire type, as encoded before the field's value: number<<3 | type.
type Tag uint64

// Wire types of fields.
const (
	Varint  Tag = 0 // numbers, enums, bools
	Fixed64 Tag = 1 // doubles
	Bytes   Tag = 2 // text, bytes, messages, packed numbers, with their length
)

// Fields iterates over the fields of a message.
type Fields struct {
	message []byte
	start   int // offset of the field
	next    int // offset of the next field

	Tag    Tag
	Value  uint64 // of a Varint field
	Bytes  []byte // of a Bytes field, part of the message
	Offset int    // offset of Bytes in the message
	broken bool   // the rest is not a valid field
}

// Scan starts an iteration over the fields of a message.
func Scan(message []byte) Fields { return Fields{message: message} }

// Next advances to the next field. It returns false at the end of the message, or at an invalid field. Value and Bytes keep
// their values until the next field of the same wire type, so callers check the tag first.
func (f *Fields) Next() bool {
	if f.next == len(f.message) || f.broken {
		return false
	}
	rest := f.message[f.next:]
	number, kind, n := protowire.ConsumeTag(rest)
	if n < 0 {
		f.broken = true
		return false
	}
	f.Tag = Tag(protowire.EncodeTag(number, kind))
	var size int
	switch kind {
	case protowire.VarintType:
		f.Value, size = protowire.ConsumeVarint(rest[n:])
	case protowire.BytesType:
		f.Bytes, size = protowire.ConsumeBytes(rest[n:])
		f.Offset = f.next + n + size - len(f.Bytes)
	default:
		size = protowire.ConsumeFieldValue(number, kind, rest[n:])
	}
	if size < 0 {
		f.broken = true
		return false
	}
	f.start, f.next = f.next, f.next+n+size
	return true
}

// Encoding returns the tag and the value of the field, a part of the message.
func (f *Fields) Encoding() []byte { return f.message[f.start:f.next] }

// Err returns an error if the message was invalid.
func (f *Fields) Err() error {
	if f.broken {
		return ErrMalformed
	}
	return nil
}
