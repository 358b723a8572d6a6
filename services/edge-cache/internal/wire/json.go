package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

type rawJSON = json.RawMessage

// parseJSONMeta reads names exactly as a client does. Package json alone also takes "Metadata" for "metadata", and the author of a custom
// object may add such a field where its schema preserves unknown fields.
func parseJSONMeta(object []byte) (Meta, error) {
	_, meta, err := splitJSON(object)
	if err != nil {
		return Meta{}, err
	}
	var m Meta
	for _, f := range []struct {
		name string
		to   any
	}{
		{"namespace", &m.Namespace}, {"name", &m.Name}, {"resourceVersion", &m.ResourceVersion}, {"labels", &m.Labels},
	} {
		if raw, present := meta[f.name]; present {
			if err := json.Unmarshal(raw, f.to); err != nil {
				return Meta{}, fmt.Errorf("decode metadata.%s: %w", f.name, err)
			}
		}
	}
	if m.Name == "" {
		return Meta{}, errors.New("object has no metadata.name")
	}
	return m, nil
}

// splitJSON returns the fields of an object and of its metadata.
func splitJSON(object []byte) (fields, meta map[string]rawJSON, err error) {
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, nil, fmt.Errorf("decode object: %w", err)
	}
	if err := json.Unmarshal(fields["metadata"], &meta); err != nil {
		return nil, nil, fmt.Errorf("decode metadata: %w", err)
	}
	if meta == nil { // null
		return nil, nil, errors.New("object has no metadata")
	}
	return fields, meta, nil
}

// editJSONMeta returns a copy of an object with other metadata. It keeps the bytes of everything else.
func editJSONMeta(object []byte, edit func(meta map[string]rawJSON) error) ([]byte, error) {
	fields, meta, err := splitJSON(object)
	if err != nil {
		return nil, err
	}
	if err := edit(meta); err != nil {
		return nil, err
	}
	if fields["metadata"], err = json.Marshal(meta); err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	return json.Marshal(fields)
}

func stripJSON(object []byte) ([]byte, error) {
	return editJSONMeta(object, func(meta map[string]rawJSON) error {
		delete(meta, "managedFields")
		if len(meta["annotations"]) == 0 {
			return nil
		}
		var annotations map[string]string
		if err := json.Unmarshal(meta["annotations"], &annotations); err != nil {
			return fmt.Errorf("decode annotations: %w", err)
		}
		if _, present := annotations[lastApplied]; !present {
			return nil
		}
		delete(annotations, lastApplied)
		if len(annotations) == 0 {
			delete(meta, "annotations")
			return nil
		}
		var err error
		meta["annotations"], err = json.Marshal(annotations)
		return err
	})
}

// JSONMetadata returns the metadata object of a JSON object.
func JSONMetadata(object []byte) ([]byte, error) {
	fields, _, err := splitJSON(object)
	return fields["metadata"], err
}

// readJSONList reads a list in JSON, and holds one item at a time.
func readJSONList(r io.Reader, p ListParams) (ListMeta, error) {
	limited := &limitedReader{r: r, limit: p.MaxItem}
	d := json.NewDecoder(limited)
	if err := expectDelim(d, '{'); err != nil {
		return ListMeta{}, err
	}
	var meta ListMeta
	fields := map[any]any{"kind": &meta.Kind, "apiVersion": &meta.APIVersion, "metadata": &meta.ListMeta}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return ListMeta{}, fmt.Errorf("read list: %w", err)
		}
		field, known := fields[name]
		if !known {
			field = new(rawJSON)
		}
		if name == "items" {
			err = readJSONItems(d, limited, p)
		} else if err = d.Decode(field); err != nil {
			err = fmt.Errorf("read field %s of list: %w", name, err)
		}
		if err != nil {
			return ListMeta{}, err
		}
	}
	if err := expectDelim(d, '}'); err != nil {
		return ListMeta{}, err
	}
	return meta, nil
}

func readJSONItems(d *json.Decoder, limited *limitedReader, p ListParams) error {
	first, err := d.Token()
	if err != nil {
		return fmt.Errorf("read items: %w", err)
	}
	if first == nil { // an API server written in Go encodes no items as null
		return nil
	}
	if first != json.Delim('[') {
		return errors.New("read items: not an array")
	}
	for d.More() {
		limited.used = 0
		var item rawJSON
		if err := d.Decode(&item); err != nil {
			return fmt.Errorf("read item: %w", err)
		}
		if err := p.Item(item); err != nil {
			return err
		}
	}
	return expectDelim(d, ']')
}

func expectDelim(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err != nil {
		return fmt.Errorf("read list: %w", err)
	}
	if got != want {
		return fmt.Errorf("read list: got %v, expected %v", got, want)
	}
	return nil
}

// limitedReader fails after limit bytes without a reset of used, so that one value cannot fill the memory.
type limitedReader struct {
	r           io.Reader
	limit, used int
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.used > l.limit+1<<20 { // the decoder reads ahead
		return 0, errTooLarge
	}
	n, err := l.r.Read(p)
	l.used += n
	return n, err
}
