package view

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ingress returns an Ingress in namespace a whose rules name Secrets.
func ingress(t *testing.T, class string, annotations map[string]string, secrets ...string) []byte {
	t.Helper()
	i := networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "i", Annotations: annotations}}
	if class != "" {
		i.Spec.IngressClassName = &class
	}
	for _, name := range secrets {
		i.Spec.TLS = append(i.Spec.TLS, networkingv1.IngressTLS{SecretName: name})
	}
	raw, err := i.Marshal()
	require.NoError(t, err)
	return raw
}

func TestReferencesOfAnIngress(t *testing.T) {
	t.Parallel()
	many := make([]string, 2*maxReferences)
	for i := range many {
		many[i] = fmt.Sprintf("s%05d", i)
	}
	tests := []struct {
		name string
		give []byte
		want []string
	}{
		{"TLS", ingress(t, "edge", nil, "x", "", "x", "y"), []string{"a/x", "a/y"}},
		{"another class", ingress(t, "other", map[string]string{classAnnotation: "edge"}, "x"), nil},
		{"class in an annotation", ingress(t, "", map[string]string{classAnnotation: "edge"}, "x"), []string{"a/x"}},
		{"no class", ingress(t, "", nil, "x"), nil},
		{"annotations", ingress(t, "edge", map[string]string{"auth-secret": "x", "tls-secret": "a/y", "secret-type": "z"}), []string{"a/x", "a/y"}},
		{"a Secret of another namespace", ingress(t, "edge", map[string]string{"auth-secret": "victim/x"}), nil},
		{"malformed", []byte{0xff}, nil},
		{"deleted", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := NewReferences("edge", []string{"b/always"}, zap.NewNop())
			assert.ElementsMatch(t, tt.want, r.Update(map[string][]byte{"a/i": tt.give}))
			assert.ElementsMatch(t, append(slices.Clone(tt.want), "b/always"), r.All())
			assert.True(t, r.Wanted("b/always"))
			assert.False(t, r.Wanted("victim/x"))
			assert.ElementsMatch(t, tt.want, r.Update(map[string][]byte{"a/i": nil}))
			assert.Equal(t, []string{"b/always"}, r.All())
		})
	}
	r := NewReferences("edge", nil, zap.NewNop())
	assert.Len(t, r.Update(map[string][]byte{"a/i": ingress(t, "edge", nil, many...)}), maxReferences)
}

func TestASecretIsWantedUntilTheLastIngressIsGone(t *testing.T) {
	t.Parallel()
	r := NewReferences("edge", nil, zap.NewNop())
	raw := ingress(t, "edge", nil, "x")
	assert.Equal(t, []string{"a/x"}, r.Update(map[string][]byte{"a/i": raw}))
	assert.Empty(t, r.Update(map[string][]byte{"a/j": raw}))
	assert.Empty(t, r.Update(map[string][]byte{"a/i": raw}), "the same again")
	assert.Empty(t, r.Update(map[string][]byte{"a/i": nil}))
	assert.True(t, r.Wanted("a/x"))
	assert.Equal(t, []string{"a/x"}, r.Update(map[string][]byte{"a/j": nil}))
	assert.False(t, r.Wanted("a/x"))
}
