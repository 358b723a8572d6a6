package settings

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// copied returns the labels and annotations that are copied from a service under a configuration.
func copied(t *testing.T, config string, labels, annotations map[string]string) Settings {
	t.Helper()
	d, err := Parse([]byte(config))
	require.NoError(t, err)
	s, err := (&Config{Document: d, ClusterDomain: "cluster.local"}).ResolveSettings(&isvc.Service{
		Namespace: "models", Name: "chat", Labels: labels, Annotations: annotations,
	})
	require.NoError(t, err)
	return s
}

func TestCopiedKeys(t *testing.T) {
	t.Parallel()
	const idle, limit = "service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout", "nginx.ingress.kubernetes.io/limit-rps"
	labels := map[string]string{"team": "llm", "example.com/a": "1", "example.com/b": "2", "istio.io/use-waypoint": "tenant"}
	annotations := map[string]string{"note": "x", "example.com/a": "1", "example.com/b": "2", limit: "5", idle: "4000"}
	tests := []struct {
		name, config string
		want         Copied
	}{
		{name: "by default, labels without a prefix and annotations that are safe", want: Copied{
			Labels: map[string]string{"team": "llm"}, Annotations: map[string]string{limit: "5"},
		}},
		{name: "keys", config: "copyLabels: [example.com/a]\ncopyAnnotations: [example.com/b]", want: Copied{
			Labels: map[string]string{"example.com/a": "1"}, Annotations: map[string]string{"example.com/b": "2"},
		}},
		{name: "all keys with a prefix", config: "copyLabels: [example.com/*]\ncopyAnnotations: [example.com/*]", want: Copied{
			Labels:      map[string]string{"example.com/a": "1", "example.com/b": "2"},
			Annotations: map[string]string{"example.com/a": "1", "example.com/b": "2"},
		}},
		{name: "all keys without a prefix", config: "copyAnnotations: ['*']", want: Copied{
			Labels: map[string]string{"team": "llm"}, Annotations: map[string]string{"note": "x"},
		}},
		{name: "nothing", config: "copyLabels: []\ncopyAnnotations: []"},
		{
			name:   "by default, how long a connection to a fallback Service may be idle",
			config: "copyLabels: []\ncopyAnnotations: []\nfallbackService: {enabled: true}", want: Copied{
				FallbackAnnotations: map[string]string{idle: "4000"},
			},
		},
		{
			name:   "a list for the fallback Service",
			config: "copyLabels: []\ncopyAnnotations: []\nfallbackService: {enabled: true, copyAnnotations: [note]}", want: Copied{
				FallbackAnnotations: map[string]string{"note": "x"},
			},
		},
		{
			name:   "nothing for the fallback Service",
			config: "copyLabels: []\ncopyAnnotations: []\nfallbackService: {enabled: true, copyAnnotations: []}",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := copied(t, tt.config, labels, annotations)
			assert.Equal(t, tt.want, got.Copied)
			assert.Empty(t, got.CopyProblem)
		})
	}
}

// Data planes, DNS and certificate controllers act on these: they can take hosts, paths, certificates and addresses.
func TestUnsafeKeys(t *testing.T) {
	t.Parallel()
	words := []string{
		"alias", "snippet", "priority", "group", "issuer", "external-dns", "auth", "mirror", "canary", "redirect", "rewrite", "middlewares",
		"entrypoints", "hash-by", "vhost", "scheme", "internal", "source-range", "name", "address", "custom-headers", "tls", "ssl", "log",
		"backend",
	}
	for _, key := range slices.Concat(defaultCopyAnnotations, defaultCopyFallbackAnnotations) {
		for _, word := range words {
			assert.NotContains(t, strings.ToLower(key), word)
		}
		assert.NotContains(t, key, "*", "the defaults contain no wildcards")
	}
	assert.NotEmpty(t, defaultCopyAnnotations)
	for _, c := range ingressclass.Controllers() {
		for _, safe := range c.Safe {
			assert.Contains(t, defaultCopyAnnotations, safe.Key)
		}
	}
	for _, key := range slices.Concat(defaultCopyAnnotations, defaultCopyFallbackAnnotations) {
		require.NoError(t, validateCopiedAnnotation(key))
	}
	for _, key := range defaultCopyLabels {
		require.NoError(t, validateCopiedKey(key))
	}
}

// Tools identify their objects by these keys: they would prune an object with a copied key.
func TestNeverCopied(t *testing.T) {
	t.Parallel()
	keys := []string{
		"argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance", "kubectl.kubernetes.io/last-applied-configuration",
		"meta.helm.sh/release-name", "helm.sh/chart", "kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name",
		"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "ome.io/inferenceservice", "networking.ome.io/visibility",
		"networking.knative.dev/visibility", "fairlead.dev/applied", "fairlead.dev/slot", "internal.ome.io/storage-initializer-sourceuri",
		"addonmanager.kubernetes.io/mode", "objectset.rio.cattle.io/hash", "kapp.k14s.io/app", "component",
	}
	labels := map[string]string{"other": "x"}
	for _, key := range keys {
		labels[key] = "x"
		assert.True(t, neverCopied(key), key)
		require.Error(t, validateCopiedKey(key), "a list cannot select these keys")
	}
	var lists []string
	for _, key := range keys {
		lists = append(lists, wildcardOf(key))
	}
	assert.Equal(t, map[string]string{"other": "x"}, selectKeys(labels, append(lists, keys...)))
}

func TestCopyLimits(t *testing.T) {
	t.Parallel()
	many := func(n, size int) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprintf("key-%03d", i)] = strings.Repeat("x", size)
		}
		return all
	}
	const everything = "copyAnnotations: ['*']\nfallbackService: {enabled: true, copyAnnotations: ['*']}"
	tests := []struct {
		name, config        string
		labels, annotations map[string]string
		exceeded            bool
	}{
		{name: "as many labels as may be", labels: many(64, 1)},
		{name: "one key too many", labels: many(65, 1), exceeded: true},
		{name: "labels and annotations", config: "copyAnnotations: ['*']", labels: many(32, 1), annotations: many(33, 1), exceeded: true},
		{name: "annotations of routes and of the fallback Service", config: everything, annotations: many(33, 1), exceeded: true},
		{name: "as many bytes as may be", config: "copyAnnotations: ['*']", annotations: many(16, 1024-7)},
		{name: "one byte too many", config: "copyAnnotations: ['*']", annotations: many(16, 1024-6), exceeded: true},
		{name: "keys that are not copied do not count", labels: many(1, 1), annotations: many(1000, 200)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := copied(t, tt.config, tt.labels, tt.annotations)
			assert.Equal(t, tt.exceeded, got.CopyProblem != "", got.CopyProblem)
			if tt.exceeded {
				assert.Zero(t, got.Copied, "none is copied")
				return
			}
			assert.NotZero(t, got.Copied)
		})
	}
	got := copied(t, "", many(65, 1), nil)
	assert.Equal(t,
		"65 labels and annotations with 520 bytes are selected for copying, more than 64 or 16384 bytes: none is copied; remove some",
		got.CopyProblem)
}

func TestDefaultsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/services/ingress-reconciler-security.md")
	require.NoError(t, err)
	for _, key := range slices.Concat(defaultCopyAnnotations, defaultCopyFallbackAnnotations) {
		prefix, name, _ := strings.Cut(key, "/")
		assert.Contains(t, string(text), "`"+prefix+"/`", key)
		assert.Contains(t, string(text), "`"+name+"`", key)
	}
}
