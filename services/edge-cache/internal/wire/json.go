package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

type rawJSON = json.RawMessage

func parseJSONMeta(object []byte) (Meta, error) {
	var o struct {
		Metadata struct {
			Namespace       string            `json:"namespace"`
			Name            string            `json:"name"`
			UID             string            `json:"uid"`
			ResourceVersion string            `json:"resourceVersion"`
			Labels          map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return Meta{}, fmt.Errorf("decode metadata: %w", err)
	}
	if o.Metadata.Name == "" {
		return Meta{}, errors.New("object has no metadata.name")
	}
	return Meta(o.Metadata), nil
}

// editJSONMeta returns a copy of an object with other metadata. It keeps the bytes of everything else.
func editJSONMeta(object []byte, edit func(meta map[string]rawJSON) error) ([]byte, error) {
	var whole, meta map[string]rawJSON
	if err := json.Unmarshal(object, &whole); err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	if err := json.Unmarshal(whole["metadata"], &meta); err != nil {
		return nil, fmt.Errorf("decode metadata: %w", err)
	}
	if err := edit(meta); err != nil {
		return nil, err
	}
	var err error
	if whole["metadata"], err = json.Marshal(meta); err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	return json.Marshal(whole)
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
	var whole struct {
		Metadata rawJSON `json:"metadata"`
	}
	if err := json.Unmarshal(object, &whole); err != nil {
		return nil, fmt.Errorf("decode metadata: %w", err)
	}
	return whole.Metadata, nil
}

// readJSONList reads a list in JSON, and holds one item at a time.
func readJSONList(r io.Reader, p ListParams) (ListMeta, error) {
	limited := &limitedReader{r: r, limit: p.MaxItem}
	d := json.NewDecoder(limited)
	if err := expectDelim(d, '{'); err != nil {
		return ListMeta{}, err
	}
	var meta ListMeta
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return ListMeta{}, fmt.Errorf("read list: %w", err)
		}
		if name == "items" {
			err = readJSONItems(d, limited, p)
		} else {
			err = meta.readJSONField(d, fmt.Sprint(name))
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

func (m *ListMeta) readJSONField(d *json.Decoder, name string) error {
	var err error
	switch name {
	case "kind":
		err = d.Decode(&m.Kind)
	case "apiVersion":
		err = d.Decode(&m.APIVersion)
	case "metadata":
		var meta struct {
			ResourceVersion string `json:"resourceVersion"`
			Continue        string `json:"continue"`
		}
		err = d.Decode(&meta)
		m.ResourceVersion, m.Continue = meta.ResourceVersion, meta.Continue
	default:
		var ignored rawJSON
		err = d.Decode(&ignored)
	}
	if err != nil {
		return fmt.Errorf("read field %s of list: %w", name, err)
	}
	return nil
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
