package informers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTypedObjects(t *testing.T) {
	t.Parallel()
	pod, service := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &corev1.Service{}
	assert.Equal(t, []*corev1.Pod{pod}, CastObjects[*corev1.Pod]([]any{service, pod, nil}))
	assert.Len(t, CastObjects[metav1.Object]([]any{service, pod, nil}), 2)

	index := IndexBy(func(p *corev1.Pod) []string { return []string{p.Name} })
	keys, err := index(pod)
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, keys)
	keys, err = index(service)
	require.NoError(t, err)
	assert.Empty(t, keys)
}
