package kubetest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// LoadObjects decodes the YAML documents of a file into objects of scheme, for example for a fake clientset. Unknown kinds and
// fields fail the test.
func LoadObjects(tb testing.TB, scheme *runtime.Scheme, path string) []runtime.Object {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	objects, err := decodeObjects(scheme, data)
	if err != nil {
		tb.Fatalf("decode %s: %v", path, err)
	}
	return objects
}

func decodeObjects(scheme *runtime.Scheme, data []byte) ([]runtime.Object, error) {
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var objects []runtime.Object
	for i := 1; ; i++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
		if isEmpty(document) {
			continue
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
		objects = append(objects, object)
	}
}

// isEmpty reports whether a document contains only comments.
func isEmpty(document []byte) bool {
	var content any
	return yaml.Unmarshal(document, &content) == nil && content == nil
}
