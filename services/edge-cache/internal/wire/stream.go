package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"fairlead.dev/pkg/protoscan"
)

// magic begins every protobuf message of the Kubernetes API, except for the frames of a watch.
const magic = "k8s\x00"

// maxSmall limits the type and the metadata of a list: they are below 1 KiB, unless an API server lies.
const maxSmall = 64 << 10

var errTooLarge = errors.New("message exceeds the limit")

// ListMeta is the type and the metadata of a list.
type ListMeta struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
}

// ListParams are the arguments of ReadList.
type ListParams struct {
	Format  Format
	MaxItem int                     // limit of the size of one item
	Item    func(item []byte) error // is called for each item; item is valid during the call
}

// ReadList reads the answer to a list request, and holds one item at a time.
func ReadList(r io.Reader, p ListParams) (ListMeta, error) {
	if p.Format == JSON {
		return readJSONList(r, p)
	}
	l := &listReader{r: bufio.NewReaderSize(r, 64<<10), params: p}
	var start [len(magic)]byte
	if _, err := io.ReadFull(l.r, start[:]); err != nil {
		return ListMeta{}, fmt.Errorf("read list: %w", unexpectedEOF(err))
	}
	if string(start[:]) != magic {
		return ListMeta{}, errors.New("read list: it is not Kubernetes protobuf")
	}
	if err := l.readEnvelope(); err != nil {
		return ListMeta{}, fmt.Errorf("read list: %w", err)
	}
	return l.meta, nil
}

type listReader struct {
	r      *bufio.Reader
	params ListParams
	meta   ListMeta
	buffer messageBuffer
}

func (l *listReader) readEnvelope() error {
	hasRaw := false
	for {
		tag, size, err := l.readTag()
		if errors.Is(err, io.EOF) {
			if !hasRaw {
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		if err != nil {
			return err
		}
		if tag == unknownRaw {
			hasRaw = true
			if err := l.readRaw(size); err != nil {
				return err
			}
			continue
		}
		content, err := l.buffer.readMessage(l.r, size, maxSmall)
		if err != nil {
			return err
		}
		if tag == unknownTypeMeta {
			var typ runtime.TypeMeta
			if err := typ.Unmarshal(content); err != nil {
				return fmt.Errorf("decode type: %w", err)
			}
			l.meta.APIVersion, l.meta.Kind = typ.APIVersion, typ.Kind
		}
	}
}

// readRaw reads the fields of a list whose encoding has size bytes.
func (l *listReader) readRaw(size uint64) error {
	for read := uint64(0); read < size; {
		tag, length, err := l.readTag()
		if err != nil {
			return unexpectedEOF(err)
		}
		limit := maxSmall
		if tag == fieldItems {
			limit = l.params.MaxItem
		}
		content, err := l.buffer.readMessage(l.r, length, limit)
		if err != nil {
			return err
		}
		if read += uint64(protowire.SizeVarint(uint64(tag))+protowire.SizeVarint(length)) + length; read > size {
			return protoscan.ErrMalformed
		}
		switch tag {
		case fieldMetadata:
			if err = l.meta.ListMeta.Unmarshal(content); err != nil {
				err = fmt.Errorf("decode metadata: %w", err)
			}
		case fieldItems:
			err = l.params.Item(content)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readTag reads the tag and the length of a length-delimited field. Envelopes and lists have no other fields.
func (l *listReader) readTag() (protoscan.Tag, uint64, error) {
	tag, err := binary.ReadUvarint(l.r)
	if err != nil {
		return 0, 0, err
	}
	if num, typ := protowire.DecodeTag(tag); num < 1 || typ != protowire.BytesType {
		return 0, 0, protoscan.ErrMalformed
	}
	size, err := binary.ReadUvarint(l.r)
	if err != nil {
		return 0, 0, unexpectedEOF(err)
	}
	return protoscan.Tag(tag), size, nil
}

// messageBuffer is the memory of one message after another.
type messageBuffer []byte

// readMessage reads a message, which is valid until the next one is read.
func (b *messageBuffer) readMessage(r io.Reader, size uint64, limit int) ([]byte, error) {
	if size > uint64(limit) {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", errTooLarge, size, limit)
	}
	if uint64(cap(*b)) < size {
		*b = make([]byte, size+size/4)
	}
	message := (*b)[:size]
	_, err := io.ReadFull(r, message)
	return message, unexpectedEOF(err)
}

func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// DecodeEnvelope returns the content of a protobuf envelope and its type.
func DecodeEnvelope(message []byte) (apiVersion, kind string, raw []byte, err error) {
	rest, found := bytes.CutPrefix(message, []byte(magic))
	if !found {
		return "", "", nil, errors.New("message is not Kubernetes protobuf")
	}
	var typ runtime.TypeMeta
	f := protoscan.Scan(rest)
	for f.Next() {
		switch f.Tag {
		case unknownTypeMeta:
			if err := typ.Unmarshal(f.Bytes); err != nil {
				return "", "", nil, fmt.Errorf("decode type: %w", err)
			}
		case unknownRaw:
			raw = f.Bytes
		}
	}
	return typ.APIVersion, typ.Kind, raw, f.Err()
}

// Event is one event of a watch. Object is valid until the next event is read.
type Event struct {
	Type, APIVersion, Kind string

	Object []byte // the inner message, or JSON
}

// EventReader reads the events of a watch.
type EventReader struct {
	format  Format
	r       io.Reader
	max     int
	buffer  messageBuffer
	limited *limitedReader
	decoder *json.Decoder
}

// NewEventReader returns a reader of events that are at most limit bytes long.
func NewEventReader(format Format, r io.Reader, limit int) *EventReader {
	e := &EventReader{format: format, r: r, max: limit}
	if format == JSON {
		e.limited = &limitedReader{r: r, limit: limit}
		e.decoder = json.NewDecoder(e.limited)
	}
	return e
}

// Next returns the next event. It returns io.EOF at the end of the stream.
func (e *EventReader) Next() (Event, error) {
	if e.format == JSON {
		return e.nextJSON()
	}
	var length [4]byte
	if _, err := io.ReadFull(e.r, length[:]); err != nil {
		return Event{}, err
	}
	frame, err := e.buffer.readMessage(e.r, uint64(binary.BigEndian.Uint32(length[:])), e.max)
	if err != nil {
		return Event{}, fmt.Errorf("read event: %w", err)
	}
	return parseEvent(frame)
}

func parseEvent(frame []byte) (Event, error) {
	var out Event
	var object []byte
	f := protoscan.Scan(frame)
	for f.Next() {
		switch f.Tag {
		case eventType:
			out.Type = string(f.Bytes)
		case eventObject:
			object = findField(f.Bytes, rawRaw)
		}
	}
	if f.Err() != nil {
		return Event{}, f.Err()
	}
	var err error
	out.APIVersion, out.Kind, out.Object, err = DecodeEnvelope(object)
	return out, err
}

func (e *EventReader) nextJSON() (Event, error) {
	e.limited.used = 0
	var event struct {
		Type   string  `json:"type"`
		Object rawJSON `json:"object"`
	}
	if err := e.decoder.Decode(&event); err != nil {
		return Event{}, err
	}
	var fields map[string]rawJSON // a struct would also take "Kind" for "kind"
	if err := json.Unmarshal(event.Object, &fields); err != nil {
		return Event{}, fmt.Errorf("decode object: %w", err)
	}
	out := Event{Type: event.Type, Object: event.Object}
	if err := errors.Join(unmarshalText(fields["apiVersion"], &out.APIVersion), unmarshalText(fields["kind"], &out.Kind)); err != nil {
		return Event{}, fmt.Errorf("decode type of object: %w", err)
	}
	return out, nil
}

func unmarshalText(raw rawJSON, to *string) error {
	if raw == nil {
		return nil
	}
	return json.Unmarshal(raw, to)
}
