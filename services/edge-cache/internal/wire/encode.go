package wire

import (
	"bufio"
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// InitialEventsEnd is the annotation of the bookmark after the initial events of a watch.
const InitialEventsEnd = "k8s.io/initial-events-end"

// EncodeEnvelope returns an envelope around the encoding of an object.
func EncodeEnvelope(apiVersion, kind string, raw []byte) []byte {
	out := appendEnvelopeStart(make([]byte, 0, len(raw)+len(apiVersion)+len(kind)+24), apiVersion, kind, len(raw))
	return appendEnvelopeEnd(append(out, raw...))
}

// EnvelopeSize returns the size of what EncodeEnvelope returns.
func EnvelopeSize(apiVersion, kind string, size int) int {
	return len(appendEnvelopeEnd(appendEnvelopeStart(nil, apiVersion, kind, size))) + size
}

func appendEnvelopeStart(b []byte, apiVersion, kind string, size int) []byte {
	typeMeta := appendString(appendString(nil, typeAPIVersion, apiVersion), typeKind, kind)
	b = append(b, magic...)
	b = AppendField(b, unknownTypeMeta, typeMeta)
	b = appendTag(b, unknownRaw)
	return protowire.AppendVarint(b, uint64(size))
}

// appendEnvelopeEnd appends the empty contentEncoding and contentType that every encoder of Kubernetes writes.
func appendEnvelopeEnd(b []byte) []byte {
	return append(b, 3<<3|byte(protowire.BytesType), 0, 4<<3|byte(protowire.BytesType), 0)
}

// ItemSize returns the size that an item of a list adds to it.
func ItemSize(size int) int { return sizeField(fieldItems, size) }

// WriteListStart writes the start of a list in protobuf whose items take itemsSize bytes: the sum of ItemSize.
func WriteListStart(w *bufio.Writer, m ListMeta, itemsSize int) error {
	meta, err := m.ListMeta.Marshal()
	if err != nil {
		return fmt.Errorf("encode metadata: %w", err)
	}
	head := AppendField(nil, fieldMetadata, meta)
	_, err = w.Write(append(appendEnvelopeStart(nil, m.APIVersion, m.Kind, len(head)+itemsSize), head...))
	return err
}

// WriteListItem writes one item.
func WriteListItem(w *bufio.Writer, item []byte) error {
	_, _ = w.Write(protowire.AppendVarint(appendTag(make([]byte, 0, 12), fieldItems), uint64(len(item)))) // the next write has the error
	_, err := w.Write(item)
	return err
}

// WriteListEnd writes the end of a list.
func WriteListEnd(w *bufio.Writer) error {
	_, err := w.Write(appendEnvelopeEnd(nil))
	return err
}

// EncodeEvent returns a frame of a watch in protobuf.
func EncodeEvent(typ, apiVersion, kind string, raw []byte) []byte {
	sealed := EnvelopeSize(apiVersion, kind, len(raw))
	extension := sizeField(rawRaw, sealed)
	size := sizeField(eventType, len(typ)) + sizeField(eventObject, extension)
	out := binary.BigEndian.AppendUint32(make([]byte, 0, size+4), uint32(size))
	out = appendString(out, eventType, typ)
	out = protowire.AppendVarint(appendTag(out, eventObject), uint64(extension))
	out = protowire.AppendVarint(appendTag(out, rawRaw), uint64(sealed))
	out = appendEnvelopeStart(out, apiVersion, kind, len(raw))
	return appendEnvelopeEnd(append(out, raw...))
}
