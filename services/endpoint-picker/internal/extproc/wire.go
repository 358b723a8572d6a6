package extproc

import "google.golang.org/protobuf/encoding/protowire"

// fields iterates over the fields of a message in the wire format.
type fields struct {
	whole []byte
	next  int // offset of the next field

	tag    tag
	number uint64 // of an integer field
	bytes  []byte // of a message field, part of whole
	at     int    // offset of bytes in whole
	broken bool   // the rest is not a valid field
}

// more advances to the next field. It returns false at the end of the message, or at an invalid field.
func (f *fields) more() bool {
	if f.next == len(f.whole) || f.broken {
		return false
	}
	rest := f.whole[f.next:]
	number, kind, n := protowire.ConsumeTag(rest)
	if n < 0 {
		f.broken = true
		return false
	}
	f.tag = tag(protowire.EncodeTag(number, kind))
	var size int
	switch kind {
	case protowire.VarintType:
		f.number, size = protowire.ConsumeVarint(rest[n:])
	case protowire.BytesType:
		f.bytes, size = protowire.ConsumeBytes(rest[n:])
		f.at = f.next + n + size - len(f.bytes)
	default:
		size = protowire.ConsumeFieldValue(number, kind, rest[n:])
	}
	if size < 0 {
		f.broken = true
		return false
	}
	f.next += n + size
	return true
}

// err returns an error if the message was invalid.
func (f *fields) err() error {
	if f.broken {
		return errMalformed
	}
	return nil
}

// lookup returns the value of a map's entry, nil if there is none. The last of several counts.
func lookup(whole []byte, key string) []byte {
	var found []byte
	for f := (fields{whole: whole}); f.more(); {
		if f.tag != mapEntry {
			continue
		}
		if name, value := entry(f.bytes); string(name) == key {
			found = value
		}
	}
	return found
}

// entry reads one entry of a map. A missing value is an empty message.
func entry(whole []byte) (key, value []byte) {
	value = []byte{}
	for f := (fields{whole: whole}); f.more(); {
		switch f.tag {
		case entryKey:
			key = f.bytes
		case entryValue:
			value = f.bytes
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
