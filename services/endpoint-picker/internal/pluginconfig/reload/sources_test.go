package reload

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kubetest"
)

func TestText(t *testing.T) {
	t.Parallel()
	text, err := Text("a").Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "a", string(text))
	assert.Zero(t, Text("a").Interval())
	assert.Equal(t, "--config-text", Text("a").String())
}

// TestFile writes a file as the kubelet mounts a ConfigMap: the path goes through a link that moves.
func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(version, text string) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, version, "config.yaml"), []byte(text), 0o600))
		require.NoError(t, os.Symlink(version, filepath.Join(dir, "next")))
		require.NoError(t, os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "data")))
	}
	file := File(filepath.Join(dir, "data", "config.yaml"))
	_, err := file.Read(t.Context())
	require.ErrorIs(t, err, ErrUnusable)
	require.ErrorIs(t, err, os.ErrNotExist)
	for version, text := range map[string]string{"1": "one", "2": "two"} {
		write(version, text)
		got, err := file.Read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	}
	write("3", strings.Repeat("x", 2<<20))
	got, err := file.Read(t.Context())
	require.NoError(t, err)
	assert.Len(t, got, 1<<20+1, "enough to be refused")
	_, err = File(dir).Read(t.Context())
	require.ErrorIs(t, err, ErrUnusable)
	assert.Equal(t, time.Second, file.Interval())
	assert.Equal(t, "--config-file "+string(file), file.String())
}

func TestConfigMap(t *testing.T) {
	t.Parallel()
	name := cache.NewObjectName("ns", "picker")
	tests := []struct {
		name string
		data map[string]string
		key  string
		want string
		err  string
	}{
		{name: "the only key", data: map[string]string{"a": "text"}, want: "text"},
		{name: "by its key", data: map[string]string{"a": "text", "b": "other"}, key: "b", want: "other"},
		{name: "which of two", data: map[string]string{"a": "text", "b": "other"}, err: "configuration of plugins: it has 2 keys: choose one with --config-map-key"},
		{name: "no key", err: "configuration of plugins: it has 0 keys: choose one with --config-map-key"},
		{name: "another key", data: map[string]string{"a": "text"}, key: "b", err: `configuration of plugins: it has no key "b"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "picker"}, Data: tt.data})
			text, err := NewConfigMap(client, name, tt.key).Read(t.Context())
			if tt.err != "" {
				require.EqualError(t, err, tt.err)
				require.ErrorIs(t, err, ErrUnusable)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(text))
		})
	}

	client := fake.NewClientset()
	source := NewConfigMap(client, name, "")
	_, err := source.Read(t.Context())
	require.ErrorIs(t, err, ErrUnusable, "it is not there")
	kubetest.FailAlways(client, "get", "configmaps", apierrors.NewServiceUnavailable("later"))
	_, err = source.Read(t.Context())
	require.EqualError(t, err, "get ConfigMap ns/picker: later")
	require.NotErrorIs(t, err, ErrUnusable, "the cluster is away")
	assert.Equal(t, "--config-map ns/picker", source.String())
	assert.Equal(t, "--config-map ns/picker/k", NewConfigMap(client, name, "k").String())
	assert.Positive(t, source.Interval())
}
