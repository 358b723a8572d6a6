package api

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fairlead.dev/services/edge-cache/internal/store"
	"fairlead.dev/services/edge-cache/internal/wire"
)

// scheme has the kinds that exist in protobuf.
var scheme = newScheme()

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two kinds with one name
		}
	}
	return s
}

const (
	metaVersion  = "meta.k8s.io/v1"
	metadataKind = "PartialObjectMetadata"
)

// encoder encodes the objects of a store for a client.
type encoder struct {
	encoding

	stored     wire.Format
	apiVersion string // of the store
	kind       string
}

func newEncoder(s *store.Store, e encoding) encoder {
	enc := encoder{encoding: e, stored: s.Format()}
	enc.apiVersion, enc.kind = s.ObjectType()
	return enc
}

// outputType returns the apiVersion and the kind that the client gets.
func (e encoder) outputType() (apiVersion, kind string) {
	if e.metadataOnly {
		return metaVersion, metadataKind
	}
	return e.apiVersion, e.kind
}

func (e encoder) contentType() string {
	if e.format == wire.Protobuf {
		return protobufType
	}
	return jsonType
}

// message is implemented by all kinds that exist in protobuf.
type message interface {
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// decodeObject returns the Go object of a protobuf encoding.
func (e encoder) decodeObject(data []byte) (message, error) {
	group, err := schema.ParseGroupVersion(e.apiVersion)
	if err != nil {
		return nil, err
	}
	object, err := scheme.New(group.WithKind(e.kind))
	if err != nil {
		return nil, err
	}
	m, ok := object.(message)
	if !ok {
		return nil, fmt.Errorf("%s has no protobuf", e.kind)
	}
	if err := m.Unmarshal(data); err != nil {
		return nil, fmt.Errorf("decode %s: %w", e.kind, err)
	}
	return m, nil
}

// encodeProtobuf returns the protobuf message of an object, without an envelope.
func (e encoder) encodeProtobuf(data []byte) ([]byte, error) {
	switch {
	case e.stored == wire.Protobuf && e.metadataOnly:
		return wire.MetadataOnly(data)
	case e.stored == wire.Protobuf:
		return data, nil
	case !e.metadataOnly:
		return nil, errors.New("a custom object has no protobuf")
	}
	m, err := e.decodeMetadata(data)
	if err != nil {
		return nil, err
	}
	return m.Marshal()
}

// decodeMetadata returns the metadata of an object.
func (e encoder) decodeMetadata(data []byte) (*metav1.PartialObjectMetadata, error) {
	m := &metav1.PartialObjectMetadata{}
	if e.stored == wire.Protobuf {
		return m, m.Unmarshal(data) // it skips all other fields
	}
	raw, err := wire.JSONMetadata(data)
	if err != nil {
		return nil, err
	}
	return m, json.Unmarshal(raw, &m.ObjectMeta)
}

// itemType is whether an object in JSON has apiVersion and kind: the API server leaves them out of the items of a list.
type itemType uint8

const (
	typed itemType = iota
	untyped
)

// encodeJSON returns an object in JSON.
func (e encoder) encodeJSON(data []byte, t itemType) ([]byte, error) {
	if e.metadataOnly {
		m, err := e.decodeMetadata(data)
		if err != nil {
			return nil, err
		}
		m.TypeMeta = metav1.TypeMeta{APIVersion: metaVersion, Kind: metadataKind}
		return json.Marshal(m)
	}
	if e.stored == wire.JSON {
		return data, nil
	}
	m, err := e.decodeObject(data)
	if err != nil {
		return nil, err
	}
	if t == typed {
		m.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(e.apiVersion, e.kind))
	}
	return json.Marshal(m)
}

// encodeTyped returns an object with its type in JSON, or its message in protobuf.
func (e encoder) encodeTyped(data []byte) ([]byte, error) {
	if e.format == wire.JSON {
		return e.encodeJSON(data, typed)
	}
	return e.encodeProtobuf(data)
}

// encodeObject returns an object as the body of an answer.
func (e encoder) encodeObject(data []byte) ([]byte, error) {
	raw, err := e.encodeTyped(data)
	if err != nil || e.format == wire.JSON {
		return raw, err
	}
	apiVersion, kind := e.outputType()
	return wire.EncodeEnvelope(apiVersion, kind, raw), nil
}

// encodeEvent returns an event as a frame of a watch.
func (e encoder) encodeEvent(t store.EventType, data []byte) ([]byte, error) {
	raw, err := e.encodeTyped(data)
	if err != nil {
		return nil, err
	}
	apiVersion, kind := e.outputType()
	return e.encodeFrame(string(t), apiVersion, kind, raw), nil
}

// encodeFrame returns a frame of a watch.
func (e encoder) encodeFrame(t, apiVersion, kind string, object []byte) []byte {
	if e.format == wire.Protobuf {
		return wire.EncodeEvent(t, apiVersion, kind, object)
	}
	out := make([]byte, 0, len(object)+len(t)+24)
	out = append(append(append(out, `{"type":"`...), t...), `","object":`...)
	return append(append(out, object...), '}', '\n')
}

// encodeBookmark returns a bookmark as a frame of a watch.
func (e encoder) encodeBookmark(rv uint64, annotations map[string]string) []byte {
	apiVersion, kind := e.outputType()
	m := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}}
	m.ResourceVersion, m.Annotations = strconv.FormatUint(rv, 10), annotations
	return e.encodeFrame("BOOKMARK", apiVersion, kind, marshal(e.format, m)) // every kind has its metadata in the same field
}

// encodeError returns an error as a frame of a watch.
func (e encoder) encodeError(err error) []byte {
	status := toStatus(err)
	return e.encodeFrame("ERROR", "v1", "Status", marshal(e.format, &status))
}

// marshal returns a message that consists of strings and numbers, which can always be encoded.
func marshal(format wire.Format, m interface{ Marshal() ([]byte, error) }) []byte {
	encode := m.Marshal
	if format == wire.JSON {
		encode = func() ([]byte, error) { return json.Marshal(m) }
	}
	raw, err := encode()
	if err != nil {
		panic(err)
	}
	return raw
}

// writeList writes a list. It encodes one item at a time, so that a long list takes no more memory than a short one.
func (e encoder) writeList(to io.Writer, objects []*store.Object, listMeta metav1.ListMeta) error {
	w := bufio.NewWriterSize(to, 32<<10)
	apiVersion, kind := e.outputType()
	meta := wire.ListMeta{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind + "List"}, ListMeta: listMeta}
	var err error
	if e.format == wire.Protobuf {
		err = e.writeProtobufList(w, objects, meta)
	} else {
		err = e.writeJSONList(w, objects, meta)
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

func (e encoder) writeProtobufList(w *bufio.Writer, objects []*store.Object, meta wire.ListMeta) error {
	size := 0
	for _, o := range objects {
		raw, err := e.encodeProtobuf(o.Data)
		if err != nil {
			return err
		}
		size += wire.ItemSize(len(raw))
	}
	if err := wire.WriteListStart(w, meta, size); err != nil {
		return err
	}
	for _, o := range objects {
		raw, err := e.encodeProtobuf(o.Data)
		if err != nil {
			return err
		}
		if err := wire.WriteListItem(w, raw); err != nil {
			return err
		}
	}
	return wire.WriteListEnd(w)
}

func (e encoder) writeJSONList(w *bufio.Writer, objects []*store.Object, meta wire.ListMeta) error {
	head, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	_, _ = w.Write(head[:len(head)-1])
	_, _ = w.WriteString(`,"items":[`)
	for i, o := range objects {
		raw, err := e.encodeJSON(o.Data, untyped)
		if err != nil {
			return err
		}
		if i > 0 {
			_ = w.WriteByte(',')
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
	}
	_, err = w.WriteString("]}\n")
	return err
}
