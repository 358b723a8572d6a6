package reload

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
)

const (
	fileInterval      = time.Second
	configMapInterval = 5 * time.Second
	configMapTimeout  = 10 * time.Second

	maxBytes = pluginconfig.MaxBytes + 1 // so that a larger text is refused as too large
)

// noText is the source of the default configuration, for which only files change.
type noText struct{}

// Read returns no text.
func (noText) Read(context.Context) ([]byte, error) { return nil, nil }

// Interval returns 0.
func (noText) Interval() time.Duration { return 0 }

// String names the configuration.
func (noText) String() string { return "the default configuration" }

// Text is a constant source.
type Text string

// Read returns the text.
func (t Text) Read(context.Context) ([]byte, error) { return []byte(t), nil }

// Interval returns 0.
func (Text) Interval() time.Duration { return 0 }

// String names the flag.
func (Text) String() string { return "--config-text" }

// File is the source at a path.
type File string

// Read returns the file's text.
func (f File) Read(context.Context) ([]byte, error) {
	file, err := os.Open(string(f))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	defer func() { _ = file.Close() }() // opened only for reading
	text, err := io.ReadAll(io.LimitReader(file, maxBytes))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	return text, nil
}

// Interval returns a second.
func (File) Interval() time.Duration { return fileInterval }

// String names the flag and the path.
func (f File) String() string { return "--config-file " + string(f) }

// ConfigMap is a source in the cluster.
type ConfigMap struct {
	client kube.Clientset
	name   cache.ObjectName
	key    string
}

// NewConfigMap returns the source of a ConfigMap's text under a key; an empty key means the only key.
func NewConfigMap(client kube.Clientset, name cache.ObjectName, key string) *ConfigMap {
	return &ConfigMap{client: client, name: name, key: key}
}

// Read gets the text from the API server.
func (m *ConfigMap) Read(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, configMapTimeout)
	defer cancel()
	object, err := m.client.CoreV1().ConfigMaps(m.name.Namespace).Get(ctx, m.name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	case err != nil:
		return nil, fmt.Errorf("get ConfigMap %s: %w", m.name, err)
	}
	if m.key == "" && len(object.Data) == 1 {
		for _, text := range object.Data {
			return []byte(text), nil
		}
	}
	text, ok := object.Data[m.key]
	switch {
	case m.key == "":
		return nil, fmt.Errorf("%w: it has %d keys: choose one with --config-map-key", ErrUnusable, len(object.Data))
	case !ok:
		return nil, fmt.Errorf("%w: it has no key %q", ErrUnusable, m.key)
	}
	return []byte(text), nil
}

// Interval returns a few seconds.
func (*ConfigMap) Interval() time.Duration { return configMapInterval }

// String names the flag, the object and the key.
func (m *ConfigMap) String() string {
	return strings.TrimSuffix(fmt.Sprintf("--config-map %s/%s", m.name, m.key), "/")
}
