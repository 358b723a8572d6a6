package ocilb_test

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/oracle/oci-go-sdk/v65/loadbalancer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
)

const id = "ocid1.loadbalancer.oc1..a"

// pollInterval is longer than a work request takes: half of the processor time of these tests goes into the requests of the SDK.
const pollInterval = 1100 * time.Millisecond

// The key of the caller is no work of bubbles.
func TestMain(m *testing.M) {
	ocilbtest.Key()
	os.Exit(m.Run())
}

// quick are modes in which a work request takes a second and reads are current.
func quick() ocilb.Options {
	o := ocilbtest.Options()
	o.Modes.Latency, o.Modes.LatencyTail, o.Modes.Stale = ocilb.Duration(time.Second), 0, 0
	return o
}

func start(t *testing.T, o ocilb.Options) *ocilbtest.Service {
	t.Helper()
	s := ocilbtest.Start(t, o)
	s.Create(id, ocilbtest.Compartment, "chat")
	return s
}

// await waits until a work request has finished, and returns its state.
func await(t *testing.T, s *ocilbtest.Service, work *string) loadbalancer.WorkRequest {
	t.Helper()
	require.NotNil(t, work)
	for {
		got, err := s.Client.GetWorkRequest(t.Context(), loadbalancer.GetWorkRequestRequest{WorkRequestId: work})
		require.NoError(t, err)
		if got.TimeFinished != nil {
			return got.WorkRequest
		}
		time.Sleep(pollInterval)
	}
}

func createSet(t *testing.T, s *ocilbtest.Service, name string, backends ...loadbalancer.BackendDetails) {
	t.Helper()
	created, err := s.Client.CreateBackendSet(t.Context(), loadbalancer.CreateBackendSetRequest{
		LoadBalancerId: common.String(id), CreateBackendSetDetails: loadbalancer.CreateBackendSetDetails{
			Name: &name, Policy: common.String("ROUND_ROBIN"), Backends: backends, HealthChecker: &loadbalancer.HealthCheckerDetails{Protocol: common.String("TCP")},
		},
	})
	require.NoError(t, err)
	require.Equal(t, loadbalancer.WorkRequestLifecycleStateSucceeded, await(t, s, created.OpcWorkRequestId).LifecycleState)
}

func getSet(t *testing.T, s *ocilbtest.Service, name string) loadbalancer.GetBackendSetResponse {
	t.Helper()
	got, err := s.Client.GetBackendSet(t.Context(), loadbalancer.GetBackendSetRequest{LoadBalancerId: common.String(id), BackendSetName: &name})
	require.NoError(t, err)
	return got
}

func TestAMutationTakesEffectWhenItsWorkRequestSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, quick())
		createSet(t, s, "chat", loadbalancer.BackendDetails{IpAddress: common.String("10.0.0.1"), Port: common.Int(8080)})
		before := getSet(t, s, "chat")
		require.Len(t, before.Backends, 1)
		assert.Equal(t, "10.0.0.1:8080", *before.Backends[0].Name)
		assert.Equal(t, 1, *before.Backends[0].Weight)
		assert.Equal(t, 10_000, *before.HealthChecker.IntervalInMillis)

		updated, err := s.Client.UpdateBackend(t.Context(), loadbalancer.UpdateBackendRequest{
			LoadBalancerId: common.String(id), BackendSetName: common.String("chat"), BackendName: common.String("10.0.0.1:8080"), IfMatch: before.ETag,
			UpdateBackendDetails: loadbalancer.UpdateBackendDetails{Weight: common.Int(3), Backup: common.Bool(false), Drain: common.Bool(true), Offline: common.Bool(false)},
		})
		require.NoError(t, err)
		assert.False(t, *getSet(t, s, "chat").Backends[0].Drain)
		await(t, s, updated.OpcWorkRequestId)
		after := getSet(t, s, "chat")
		assert.True(t, *after.Backends[0].Drain)
		assert.Equal(t, 3, *after.Backends[0].Weight)
		assert.NotEqual(t, *before.ETag, *after.ETag)
	})
}
