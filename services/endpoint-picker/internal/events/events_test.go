package events

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/pkg/kubetest"
)

func TestReport(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	client, found := fake.NewClientset(), newMockPools(t)
	pool := corev1.ObjectReference{APIVersion: "inference.networking.k8s.io/v1", Kind: "InferencePool", Namespace: "ns", Name: "pool", UID: "1"}
	found.EXPECT().PoolReference().Return(pool)
	r := NewReporter(Params{Client: client, Pools: found, Instance: "picker-0", Clock: clocktesting.NewFakePassiveClock(noon)})
	require.NoError(t, r.Report(t.Context(), corev1.EventTypeWarning, "Reason", "What happened."))

	list, err := client.CoreV1().Events("ns").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	event := list.Items[0]
	assert.Equal(t, pool, event.InvolvedObject)
	assert.Equal(t, []string{"Warning", "Reason", "What happened.", "picker-0"}, []string{event.Type, event.Reason, event.Message, event.ReportingInstance})
	assert.Equal(t, "pool.", event.GenerateName)
	assert.True(t, noon.Equal(event.LastTimestamp.Time))

	kubetest.FailAlways(client, "create", "events", apierrors.NewServiceUnavailable("later"))
	require.EqualError(t, r.Report(t.Context(), corev1.EventTypeNormal, "Reason", ""), "create event Reason of InferencePool ns/pool: later")
}
