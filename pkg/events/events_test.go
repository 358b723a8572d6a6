package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	zaptest "go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/pkg/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// chat is an object that Events are about.
var chat = corev1.ObjectReference{APIVersion: "ome.io/v1beta1", Kind: "InferenceService", Namespace: "models", Name: "chat", UID: "uid"}

// rig is a Recorder that runs until its test ends.
type rig struct {
	*Recorder

	client *fake.Clientset
	clock  *clocktesting.FakePassiveClock
	logs   *zaptest.ObservedLogs
	start  func()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	core, logs := zaptest.New(zapcore.DebugLevel)
	r := &rig{client: fake.NewClientset(), clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)), logs: logs}
	r.Recorder = New(Params{Client: r.client, Controller: "ingress-reconciler", Instance: "pod-0", Log: zap.New(core), Clock: r.clock})
	r.retryDelay = time.Millisecond
	r.start = func() {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(ctx)
		}()
		t.Cleanup(func() { cancel(); <-done })
	}
	return r
}

// warn queues a Warning about chat, a second after the one before.
func (r *rig) warn(reason, message string) {
	r.clock.SetTime(r.clock.Now().Add(time.Second))
	r.Event(&chat, corev1.EventTypeWarning, reason, message)
}

func (r *rig) list(t *testing.T, namespace string) []corev1.Event {
	t.Helper()
	list, err := r.client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}

// notes returns the Events of namespace models as "message xcount".
func (r *rig) notes(t *testing.T) []string {
	t.Helper()
	var notes []string
	for _, e := range r.list(t, "models") {
		notes = append(notes, fmt.Sprintf("%s x%d", e.Message, e.Count))
	}
	return notes
}

func TestEventIsWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Event(&chat, corev1.EventTypeWarning, "NoDomain", "100% of it is missing") // waits for Run
	r.start()
	require.Eventually(t, func() bool { return len(r.list(t, "models")) == 1 }, kubetest.Patience, time.Millisecond)
	e := r.list(t, "models")[0]
	assert.Equal(t, chat, e.InvolvedObject)
	assert.Equal(t, []string{"Warning", "NoDomain", "100% of it is missing"}, []string{e.Type, e.Reason, e.Message})
	assert.Equal(t, []string{"ingress-reconciler", "pod-0"}, []string{e.ReportingController, e.ReportingInstance})
	assert.Equal(t, corev1.EventSource{Component: "ingress-reconciler", Host: "pod-0"}, e.Source)
	assert.True(t, strings.HasPrefix(e.Name, "chat."), e.Name)
	assert.True(t, r.clock.Now().Equal(e.FirstTimestamp.Time))
	assert.True(t, r.clock.Now().Equal(e.LastTimestamp.Time))
}

func TestLongMessageIsTruncated(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.warn("NoDomain", strings.Repeat("a", 2000))
	assert.Equal(t, strings.Repeat("a", 1021)+"...", (<-r.queue).Message)
}

func TestEventAboutClusterScopedObject(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	r.Event(&corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "a"}, corev1.EventTypeNormal, "Ready", "")
	require.Eventually(t, func() bool { return len(r.list(t, metav1.NamespaceDefault)) == 1 }, kubetest.Patience, time.Millisecond)
}

// TestMessagesOfOneReason is why tools/events is not used: it would count the second message in the Event of the first.
func TestMessagesOfOneReason(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	r.warn("Invalid", "line 3")
	r.warn("Invalid", "line 4")
	r.warn("Invalid", "line 4")
	require.Eventually(t, func() bool {
		return assert.ObjectsAreEqual([]string{"line 3 x1", "line 4 x2"}, r.notes(t))
	}, kubetest.Patience, time.Millisecond)
}

func TestRepeatedEventThatExpired(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	r.warn("Invalid", "line 3")
	require.Eventually(t, func() bool { return len(r.list(t, "models")) == 1 }, kubetest.Patience, time.Millisecond)
	require.NoError(t, r.client.CoreV1().Events("models").Delete(t.Context(), r.list(t, "models")[0].Name, metav1.DeleteOptions{}))
	r.warn("Invalid", "line 3")
	require.Eventually(t, func() bool { return assert.ObjectsAreEqual([]string{"line 3 x2"}, r.notes(t)) }, kubetest.Patience, time.Millisecond)
}

func TestEventsAboutOneObjectAreLimited(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	for i := range 100 {
		r.warn(fmt.Sprintf("Reason%d", i), "")
	}
	require.Eventually(t, func() bool { return r.logs.FilterMessage("Dropped Event").Len() == 75 }, kubetest.Patience, time.Millisecond)
	assert.Len(t, r.list(t, "models"), 25)
}

func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range maxQueued + 3 {
		r.Event(&corev1.ObjectReference{Namespace: "models", Name: fmt.Sprintf("chat-%d", i)}, corev1.EventTypeWarning, "Reason", "")
	}
	assert.Equal(t, 3, r.logs.FilterMessage("Dropped Event").Len())
}

func TestWriteThatFails(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(corev1.Resource("events"), "", errors.New("no"))
	terminating := apierrors.NewForbidden(corev1.Resource("events"), "", errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	tests := []struct {
		name   string
		times  int
		err    error
		wrote  bool
		warned bool
	}{
		{name: "the API server is busy for a moment", times: 2, err: apierrors.NewTooManyRequests("later", 1), wrote: true},
		{name: "no connection for a moment", times: 3, err: errors.New("connection refused"), wrote: true},
		{name: "no connection", times: maxAttempts, err: errors.New("connection refused"), warned: true},
		{name: "forbidden", times: 1, err: forbidden, warned: true},
		{name: "the namespace is going", times: 1, err: terminating},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			kubetest.FailNext(r.client, tt.times, "create", "events", tt.err)
			r.start()
			r.warn("Reason", "first")
			r.Event(&corev1.ObjectReference{Namespace: "other", Name: "next"}, corev1.EventTypeNormal, "Reason", "")
			require.Eventually(t, func() bool { return len(r.list(t, "other")) == 1 }, kubetest.Patience, time.Millisecond, "the next Event is written")
			assert.Equal(t, tt.wrote, len(r.list(t, "models")) == 1)
			assert.Equal(t, tt.warned, r.logs.FilterLevelExact(zap.WarnLevel).Len() == 1)
		})
	}
}

func TestRunEndsWhileItRetries(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.retryDelay = time.Hour
	kubetest.FailAlways(r.client, "create", "events", errors.New("connection refused"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	r.warn("Reason", "")
	require.Eventually(t, func() bool { return len(kubetest.Writes(r.client)) == 1 }, kubetest.Patience, time.Millisecond)
	cancel()
	<-done
	assert.Zero(t, r.logs.Len())
}
