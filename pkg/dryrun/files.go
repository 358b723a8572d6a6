package dryrun

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// Stdin is the path of the standard input.
const Stdin = "-"

// ReadFiles reads manifests, YAML or JSON, from files, folders and Stdin. In a folder and its sub-folders it reads the files
// that end with .yaml, .yml or .json; it skips hidden sub-folders, such as those in which the kubelet mounts ConfigMaps. It
// skips documents that are not Kubernetes manifests, such as the values of a Helm chart, with a message. All kinds count as
// served, because there is no cluster.
func ReadFiles(paths []string, stdin io.Reader) (*World, error) {
	w := &World{}
	for _, path := range paths {
		var err error
		if path == Stdin {
			err = w.decodeObjects("stdin", stdin)
		} else {
			err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				return w.readEntry(path, file, entry)
			})
		}
		if err != nil {
			return nil, fmt.Errorf("read manifests: %w", err)
		}
	}
	return w, nil
}

func (w *World) readEntry(root, file string, entry fs.DirEntry) error {
	if file != root {
		switch {
		case entry.IsDir() && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)):
			return nil
		}
	}
	if entry.IsDir() {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return w.decodeObjects(file, bytes.NewReader(text))
}

// decodeObjects reads the objects of one text.
func (w *World) decodeObjects(name string, in io.Reader) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(in, 4096)
	for {
		u, err := decodeManifest(decoder)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errNoManifest):
			w.recordSkipped("%s: skipped a document without apiVersion and kind: it is not a Kubernetes manifest", name)
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		case u == nil:
		case u.IsList():
			list, err := u.ToList()
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			for i := range list.Items {
				w.Objects = append(w.Objects, &list.Items[i])
			}
		default:
			w.Objects = append(w.Objects, u)
		}
	}
}

var errNoManifest = errors.New("the document is not a Kubernetes manifest")

// decodeManifest reads the next document. It returns nil for an empty one.
func decodeManifest(decoder *utilyaml.YAMLOrJSONDecoder) (*unstructured.Unstructured, error) {
	var raw json.RawMessage
	if err := decoder.Decode(&raw); err != nil {
		return nil, err
	}
	if text := bytes.TrimSpace(raw); len(text) == 0 || string(text) == "null" {
		return nil, nil //nolint:nilnil // an empty document is neither an object nor an error
	}
	var head metav1.TypeMeta
	if json.Unmarshal(raw, &head) != nil || head.APIVersion == "" || head.Kind == "" {
		return nil, errNoManifest
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return u, nil
}
