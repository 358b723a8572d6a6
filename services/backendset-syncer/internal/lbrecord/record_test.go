package lbrecord

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

const id = "ocid1.loadbalancer.oc1.iad.a"

func example() *Record {
	r := &Record{
		LoadBalancer: id, Gateways: []string{"infra/public"},
		Claims: map[string]Claim{ClaimHash("a.example.com/"): {Namespace: "models", Since: time.Unix(1, 0).UTC()}},
	}
	r.PutObject(Object{Kind: Listener, Name: "web", Key: ListenerKey(80, "A.example.com"), Owner: "infra/public"})
	r.PutObject(Object{Kind: BackendSet, Name: "models-chat-80", Key: "set Service/models/chat:80=1"})
	return r
}

func TestEncode(t *testing.T) {
	t.Parallel()
	r := example()
	parsed, err := Parse(r.Encode())
	require.NoError(t, err)
	assert.Equal(t, r.Encode(), parsed.Encode())
	assert.Equal(t, "web", parsed.FindByKey(Listener, "listener 80 a.example.com").Name)
	assert.True(t, parsed.HasObject(BackendSet, "models-chat-80"))
	assert.False(t, parsed.HasObject(Listener, "models-chat-80"))
	assert.Equal(t, map[string]string{"set Service/models/chat:80=1": "models-chat-80"}, parsed.NamesByKey(BackendSet))
	parsed.RemoveObject(Listener, "web")
	assert.Nil(t, parsed.FindByKey(Listener, "listener 80 a.example.com"))
	assert.True(t, r.HasObject(Listener, "web"))
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "{}", "[]", `{"loadBalancer":"a","objects":[{"kind":"pods","name":"a","key":"b"}]}`,
		`{"loadBalancer":"a","objects":[{"kind":"listeners","name":"a"}]}`,
	} {
		_, err := Parse(text)
		require.Error(t, err, text)
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	s := NewStore(client.CoreV1(), "fairlead", "test")
	_, err := s.Read(t.Context(), id)
	require.ErrorIs(t, err, ErrMissing)
	require.NoError(t, s.Write(t.Context(), example()))
	got, err := s.Read(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, example().Encode(), got.Encode())

	got.RemoveObject(Listener, "web")
	require.NoError(t, s.Write(t.Context(), got))
	other := NewStore(client.CoreV1(), "fairlead", "test")
	seen, err := other.Read(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, got.Encode(), seen.Encode())

	s.InvalidateStale(id, "")
	require.NoError(t, client.CoreV1().ConfigMaps("fairlead").Delete(t.Context(), ConfigMapName(id), metav1.DeleteOptions{}))
	_, err = s.Read(t.Context(), id)
	require.ErrorIs(t, err, ErrMissing, "what was noticed is read again")
	assert.True(t, apierrors.IsNotFound(other.Write(t.Context(), seen)), "a record that was deleted is not written again")
	require.NoError(t, s.Delete(t.Context(), id))
}

func TestFromConfigMapOfAnotherName(t *testing.T) {
	t.Parallel()
	_, err := FromConfigMap(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "other"}, Data: map[string]string{keyRecord: example().Encode()},
	})
	require.ErrorContains(t, err, "another load balancer")
}
