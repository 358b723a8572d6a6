package events

import (
	"context"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCut(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "nothing"},
		{name: "short", give: "why", want: "why"},
		{name: "as long as may be", give: strings.Repeat("a", 1024), want: strings.Repeat("a", 1024)},
		{name: "one more", give: strings.Repeat("a", 1025), want: strings.Repeat("a", 1021) + "..."},
		{name: "within a character", give: strings.Repeat("a", 1019) + strings.Repeat("€", 3), want: strings.Repeat("a", 1019) + "..."},
		{name: "after a character", give: strings.Repeat("a", 1018) + strings.Repeat("€", 3), want: strings.Repeat("a", 1018) + "€..."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := cut(tt.give)
			assert.Equal(t, tt.want, got)
			assert.LessOrEqual(t, len(got), 1024)
			assert.True(t, utf8.ValidString(got))
		})
	}
}

func TestEventsAreWritten(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	r := New(client, "ingress-reconciler")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	about := &corev1.ObjectReference{APIVersion: "ome.io/v1beta1", Kind: "InferenceService", Namespace: "models", Name: "chat", UID: "uid"}
	require.Eventually(t, func() bool { // those before it runs are lost
		r.Event(about, corev1.EventTypeWarning, "NoDomain", "100% of it is missing")
		list, err := client.EventsV1().Events("models").List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) > 0
	}, 10*time.Second, 10*time.Millisecond)
	list, err := client.EventsV1().Events("models").List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	e := list.Items[0]
	assert.Equal(t, *about, e.Regarding)
	assert.Equal(t, "ingress-reconciler", e.ReportingController)
	assert.Equal(t, []string{"Warning", "NoDomain", "Reconcile", "100% of it is missing"}, []string{e.Type, e.Reason, e.Action, e.Note}, "no format")
	cancel()
	<-done
}
