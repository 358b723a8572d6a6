package ocilb_test

import (
	"net/http"
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

// newDetails returns a request for a load balancer with a backend set and a listener.
func newDetails(name string) loadbalancer.CreateLoadBalancerDetails {
	return loadbalancer.CreateLoadBalancerDetails{
		CompartmentId: common.String(ocilbtest.Compartment), DisplayName: &name, ShapeName: common.String("Flexible"), SubnetIds: []string{"ocid1.subnet.oc1..a"},
		ShapeDetails: &loadbalancer.ShapeDetails{MinimumBandwidthInMbps: common.Int(10), MaximumBandwidthInMbps: common.Int(400)},
		Hostnames:    map[string]loadbalancer.HostnameDetails{"api": {Name: common.String("api"), Hostname: common.String("api.example.com")}},
		BackendSets: map[string]loadbalancer.BackendSetDetails{"chat": {
			Policy: common.String("ROUND_ROBIN"), HealthChecker: &loadbalancer.HealthCheckerDetails{Protocol: common.String("TCP")},
			Backends: []loadbalancer.BackendDetails{{IpAddress: common.String("10.0.0.1"), Port: common.Int(8080)}},
		}},
		Listeners: map[string]loadbalancer.ListenerDetails{"web": {
			DefaultBackendSetName: common.String("chat"), Port: common.Int(8443), Protocol: common.String("HTTP"), HostnameNames: []string{"api"},
		}},
		NetworkSecurityGroupIds: []string{"ocid1.networksecuritygroup.oc1..a"}, FreeformTags: map[string]string{"team": "blue"},
	}
}

func create(t *testing.T, s *ocilbtest.Service, d loadbalancer.CreateLoadBalancerDetails, token *string) (work loadbalancer.WorkRequest, err error) {
	t.Helper()
	created, err := s.Client.CreateLoadBalancer(t.Context(), loadbalancer.CreateLoadBalancerRequest{CreateLoadBalancerDetails: d, OpcRetryToken: token})
	if err != nil {
		return work, err
	}
	got, err := s.Client.GetWorkRequest(t.Context(), loadbalancer.GetWorkRequestRequest{WorkRequestId: created.OpcWorkRequestId})
	require.NoError(t, err)
	return got.WorkRequest, nil
}

func getBalancer(t *testing.T, s *ocilbtest.Service, id *string) (loadbalancer.GetLoadBalancerResponse, error) {
	t.Helper()
	return s.Client.GetLoadBalancer(t.Context(), loadbalancer.GetLoadBalancerRequest{LoadBalancerId: id})
}

func remove(t *testing.T, s *ocilbtest.Service, id *string) (loadbalancer.DeleteLoadBalancerResponse, error) {
	t.Helper()
	return s.Client.DeleteLoadBalancer(t.Context(), loadbalancer.DeleteLoadBalancerRequest{LoadBalancerId: id})
}

// assertState checks the state of a load balancer in a read of it.
func assertState(t *testing.T, s *ocilbtest.Service, id *string, want loadbalancer.LoadBalancerLifecycleStateEnum) loadbalancer.LoadBalancer {
	t.Helper()
	got, err := getBalancer(t, s, id)
	require.NoError(t, err)
	assert.Equal(t, want, got.LifecycleState)
	return got.LoadBalancer
}

func TestLifeOfALoadBalancer(t *testing.T) {
	t.Parallel()
	for _, mode := range []ocilb.Concurrency{ocilb.Queue, ocilb.Parallel, ocilb.Busy, ocilb.Conflict} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := startWithSets(t, func(m *ocilb.Modes) { m.Concurrency = mode })
				work, err := create(t, s, newDetails("new"), nil)
				require.NoError(t, err)
				assert.Equal(t, "CreateLoadBalancer", *work.Type)
				lb := assertState(t, s, work.LoadBalancerId, loadbalancer.LoadBalancerLifecycleStateCreating)
				assert.Empty(t, lb.IpAddresses)
				assert.Empty(t, lb.BackendSets)
				_, err = s.Client.CreateBackend(t.Context(), loadbalancer.CreateBackendRequest{
					LoadBalancerId: lb.Id, BackendSetName: common.String("chat"), CreateBackendDetails: loadbalancer.CreateBackendDetails{IpAddress: common.String("10.0.0.2"), Port: common.Int(1)},
				})
				assertRefused(t, err, http.StatusConflict, "IncorrectState")
				_, err = remove(t, s, lb.Id)
				assertRefused(t, err, http.StatusConflict, "IncorrectState")

				await(t, s, work.Id)
				lb = assertState(t, s, lb.Id, loadbalancer.LoadBalancerLifecycleStateActive)
				require.Len(t, lb.IpAddresses, 1)
				assert.Equal(t, ocilbtest.Address, *lb.IpAddresses[0].IpAddress)
				assert.True(t, *lb.IpAddresses[0].IsPublic)
				assert.Equal(t, "flexible", *lb.ShapeName)
				assert.Equal(t, 400, *lb.ShapeDetails.MaximumBandwidthInMbps)
				assert.Equal(t, "10.0.0.1:8080", *lb.BackendSets["chat"].Backends[0].Name)
				assert.Equal(t, "api.example.com", *lb.Hostnames["api"].Hostname)
				assert.Equal(t, int64(60), *lb.Listeners["web"].ConnectionConfiguration.IdleTimeout)
				assert.Equal(t, map[string]string{"team": "blue"}, lb.FreeformTags)

				deleted, err := remove(t, s, lb.Id)
				require.NoError(t, err)
				assertState(t, s, lb.Id, loadbalancer.LoadBalancerLifecycleStateDeleting)
				_, err = remove(t, s, lb.Id)
				assertRefused(t, err, http.StatusConflict, "IncorrectState")
				assert.Equal(t, "DeleteLoadBalancer", *await(t, s, deleted.OpcWorkRequestId).Type)
				_, err = getBalancer(t, s, lb.Id)
				assertRefused(t, err, http.StatusNotFound, "NotAuthorizedOrNotFound")
				_, err = remove(t, s, lb.Id)
				assertRefused(t, err, http.StatusNotFound, "NotAuthorizedOrNotFound")
				_, err = s.Client.ListWorkRequests(t.Context(), loadbalancer.ListWorkRequestsRequest{LoadBalancerId: lb.Id})
				assertRefused(t, err, http.StatusNotFound, "NotAuthorizedOrNotFound")

				calls := s.Calls("CreateLoadBalancer", "DeleteLoadBalancer")
				require.Len(t, calls, 5)
				assert.Equal(t, *work.Id, calls[0].WorkRequest)
				assert.Equal(t, "IncorrectState", calls[1].Code)
				assert.Equal(t, *deleted.OpcWorkRequestId, calls[2].WorkRequest)
			})
		})
	}
}

// A deletion waits for what was accepted before it, and refuses what comes after.
func TestDeletionComesLast(t *testing.T) {
	t.Parallel()
	for _, mode := range []ocilb.Concurrency{ocilb.Queue, ocilb.Parallel} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := startWithSets(t, func(m *ocilb.Modes) { m.Concurrency = mode })
				changed, err := put(t, s, "chat", nil, 1)
				require.NoError(t, err)
				deleted, err := remove(t, s, common.String(id))
				require.NoError(t, err)
				_, err = put(t, s, "chat", nil, 2)
				assertRefused(t, err, http.StatusConflict, "IncorrectState")
				assert.Equal(t, loadbalancer.WorkRequestLifecycleStateSucceeded, await(t, s, changed.OpcWorkRequestId).LifecycleState)
				lb := assertState(t, s, common.String(id), loadbalancer.LoadBalancerLifecycleStateDeleting)
				assert.Len(t, lb.BackendSets["chat"].Backends, 1)
				assert.Equal(t, loadbalancer.WorkRequestLifecycleStateSucceeded, await(t, s, deleted.OpcWorkRequestId).LifecycleState)
				assert.True(t, s.Idle())
				assert.Nil(t, s.Current(id))
			})
		})
	}
}

func TestCreationsAndDeletionsThatFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, nil)
		modes := s.Modes()
		fail := func(every int) {
			modes.FailEvery = every
			s.SetModes(modes)
		}
		fail(1)
		work, err := create(t, s, newDetails("new"), common.String("token"))
		require.NoError(t, err)
		assert.Equal(t, loadbalancer.WorkRequestErrorErrorCodeInternalError, await(t, s, work.Id).ErrorDetails[0].ErrorCode)
		lb := assertState(t, s, work.LoadBalancerId, loadbalancer.LoadBalancerLifecycleStateFailed)
		assert.Empty(t, lb.BackendSets)
		_, err = s.Client.UpdateLoadBalancer(t.Context(), loadbalancer.UpdateLoadBalancerRequest{LoadBalancerId: lb.Id, UpdateLoadBalancerDetails: loadbalancer.UpdateLoadBalancerDetails{DisplayName: common.String("x")}})
		assertRefused(t, err, http.StatusConflict, "IncorrectState")
		again, err := create(t, s, newDetails("new"), common.String("token"))
		require.NoError(t, err)
		assert.Equal(t, *work.Id, *again.Id, "the retry learns of the failure")

		deleted, err := remove(t, s, lb.Id)
		require.NoError(t, err)
		await(t, s, deleted.OpcWorkRequestId)
		assertState(t, s, lb.Id, loadbalancer.LoadBalancerLifecycleStateFailed)
		fail(0)
		deleted, err = remove(t, s, lb.Id)
		require.NoError(t, err)
		await(t, s, deleted.OpcWorkRequestId)
		_, err = getBalancer(t, s, lb.Id)
		assertRefused(t, err, http.StatusNotFound, "NotAuthorizedOrNotFound")
	})
}

func TestReadsOfNewAndDeletedLoadBalancersAreStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, func(m *ocilb.Modes) { m.Stale = ocilb.Duration(5 * time.Second) })
		work, err := create(t, s, newDetails("new"), nil)
		require.NoError(t, err)
		_, err = getBalancer(t, s, work.LoadBalancerId)
		assertRefused(t, err, http.StatusNotFound, "NotAuthorizedOrNotFound")
		time.Sleep(5 * time.Second)
		assertState(t, s, work.LoadBalancerId, loadbalancer.LoadBalancerLifecycleStateCreating)
		time.Sleep(time.Second)
		assertState(t, s, work.LoadBalancerId, loadbalancer.LoadBalancerLifecycleStateActive)
		deleted, err := remove(t, s, work.LoadBalancerId)
		require.NoError(t, err)
		await(t, s, deleted.OpcWorkRequestId)
		assertState(t, s, work.LoadBalancerId, loadbalancer.LoadBalancerLifecycleStateActive)
		_, err = remove(t, s, work.LoadBalancerId)
		assertRefused(t, err, http.StatusNotFound, "NotAuthorizedOrNotFound")
		time.Sleep(6 * time.Second)
		_, err = getBalancer(t, s, work.LoadBalancerId)
		assertRefused(t, err, http.StatusNotFound, "NotAuthorizedOrNotFound")
	})
}

// A port is free again after the deletion of its load balancer, and its requests in flight end.
func TestTrafficOfADeletedLoadBalancer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.serve(t, 1)
		w.set(t, "chat", backend(1))
		time.Sleep(time.Minute)
		deleted, err := remove(t, w.Service, common.String(id))
		require.NoError(t, err)
		assert.Equal(t, map[string]int{"1": 1}, w.answers(t, 1), "it still serves")
		_, _, err = w.get(t, "/slow", nil)
		require.Error(t, err)
		await(t, w.Service, deleted.OpcWorkRequestId)
		_, _, err = w.get(t, "/", nil)
		require.ErrorContains(t, err, "connection refused")
		l, err := w.network.Listen(ocilbtest.Address, 80)
		require.NoError(t, err)
		require.NoError(t, l.Close())
	})
}

func TestDeleteProtection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, nil)
		d := newDetails("new")
		d.IsDeleteProtectionEnabled = common.Bool(true)
		work, err := create(t, s, d, nil)
		require.NoError(t, err)
		await(t, s, work.Id)
		_, err = remove(t, s, work.LoadBalancerId)
		assertRefused(t, err, http.StatusConflict, "IncorrectState")
		updated, err := s.Client.UpdateLoadBalancer(t.Context(), loadbalancer.UpdateLoadBalancerRequest{LoadBalancerId: work.LoadBalancerId, UpdateLoadBalancerDetails: loadbalancer.UpdateLoadBalancerDetails{IsDeleteProtectionEnabled: common.Bool(false)}})
		require.NoError(t, err)
		await(t, s, updated.OpcWorkRequestId)
		_, err = remove(t, s, work.LoadBalancerId)
		require.NoError(t, err)
	})
}

func TestRefusedCreations(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(d *loadbalancer.CreateLoadBalancerDetails)
		code   string
	}{
		{name: "no compartment", change: func(d *loadbalancer.CreateLoadBalancerDetails) { d.CompartmentId = common.String("") }, code: "MissingParameter"},
		{name: "no name", change: func(d *loadbalancer.CreateLoadBalancerDetails) { d.DisplayName = common.String("") }, code: "MissingParameter"},
		{name: "no subnet", change: func(d *loadbalancer.CreateLoadBalancerDetails) { d.SubnetIds = []string{} }, code: "MissingParameter"},
		{name: "no OCID", change: func(d *loadbalancer.CreateLoadBalancerDetails) { d.SubnetIds = []string{"a"} }, code: "InvalidParameter"},
		{name: "three subnets", change: func(d *loadbalancer.CreateLoadBalancerDetails) {
			d.SubnetIds = []string{"ocid1.a", "ocid1.b", "ocid1.c"}
		}, code: "InvalidParameter"},
		{name: "a withdrawn shape", change: func(d *loadbalancer.CreateLoadBalancerDetails) { d.ShapeName = common.String("100Mbps") }, code: "InvalidParameter"},
		{name: "no bandwidths", change: func(d *loadbalancer.CreateLoadBalancerDetails) { d.ShapeDetails = nil }, code: "MissingParameter"},
		{name: "too little bandwidth", change: func(d *loadbalancer.CreateLoadBalancerDetails) { d.ShapeDetails.MinimumBandwidthInMbps = common.Int(9) }, code: "InvalidParameter"},
		{name: "too much bandwidth", change: func(d *loadbalancer.CreateLoadBalancerDetails) {
			d.ShapeDetails.MaximumBandwidthInMbps = common.Int(8001)
		}, code: "InvalidParameter"},
		{name: "many security groups", change: func(d *loadbalancer.CreateLoadBalancerDetails) {
			d.NetworkSecurityGroupIds = []string{"ocid1.a", "ocid1.b", "ocid1.c", "ocid1.d", "ocid1.e", "ocid1.f"}
		}, code: "InvalidParameter"},
		{name: "a listener without its set", change: func(d *loadbalancer.CreateLoadBalancerDetails) { d.BackendSets = nil }, code: "InvalidParameter"},
		{name: "another name than its key", change: func(d *loadbalancer.CreateLoadBalancerDetails) {
			d.Hostnames["api"] = loadbalancer.HostnameDetails{Name: common.String("web"), Hostname: common.String("a")}
		}, code: "InvalidParameter"},
		{name: "a header for ids of requests", change: func(d *loadbalancer.CreateLoadBalancerDetails) { d.RequestIdHeader = common.String("Id") }, code: "InvalidParameter"},
	}
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, func(m *ocilb.Modes) { m.Limits.LoadBalancers = 2 })
		for _, tt := range tests {
			d := newDetails("new")
			tt.change(&d)
			_, err := create(t, s, d, nil)
			require.Error(t, err, tt.name)
			assertRefused(t, err, http.StatusBadRequest, tt.code)
		}
		_, err := create(t, s, newDetails("second"), nil)
		require.NoError(t, err)
		_, err = create(t, s, newDetails("third"), nil)
		assertRefused(t, err, http.StatusBadRequest, "LimitExceeded")
		deleted, err := remove(t, s, common.String(id))
		require.NoError(t, err)
		await(t, s, deleted.OpcWorkRequestId)
		_, err = create(t, s, newDetails("third"), nil)
		require.NoError(t, err)
	})
}

func TestRetryTokensOfCreations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, nil)
		token := common.String("token")
		first, err := create(t, s, newDetails("new"), token)
		require.NoError(t, err)
		again, err := create(t, s, newDetails("new"), token)
		require.NoError(t, err)
		assert.Equal(t, *first.Id, *again.Id)
		_, err = create(t, s, newDetails("other"), token)
		assertRefused(t, err, http.StatusConflict, "InvalidatedRetryToken")
		await(t, s, first.Id)
		_, err = create(t, s, newDetails("new"), token)
		require.NoError(t, err)

		deleted, err := remove(t, s, first.LoadBalancerId)
		require.NoError(t, err)
		_, err = create(t, s, newDetails("new"), token)
		require.NoError(t, err, "the deletion has not had its effect")
		await(t, s, deleted.OpcWorkRequestId)
		_, err = create(t, s, newDetails("new"), token)
		assertRefused(t, err, http.StatusConflict, "InvalidatedRetryToken")
		time.Sleep(25 * time.Hour)
		again, err = create(t, s, newDetails("new"), token)
		require.NoError(t, err)
		assert.NotEqual(t, *first.LoadBalancerId, *again.LoadBalancerId)
	})
}

func TestChangesOfLoadBalancersThemselves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, nil)
		work, err := create(t, s, newDetails("new"), nil)
		require.NoError(t, err)
		await(t, s, work.Id)
		lb := work.LoadBalancerId
		before, err := getBalancer(t, s, lb)
		require.NoError(t, err)

		updated, err := s.Client.UpdateLoadBalancer(t.Context(), loadbalancer.UpdateLoadBalancerRequest{
			LoadBalancerId: lb, IfMatch: before.ETag, UpdateLoadBalancerDetails: loadbalancer.UpdateLoadBalancerDetails{DisplayName: common.String("renamed")},
		})
		require.NoError(t, err)
		assert.Equal(t, "UpdateLoadBalancer", *await(t, s, updated.OpcWorkRequestId).Type)
		shaped, err := s.Client.UpdateLoadBalancerShape(t.Context(), loadbalancer.UpdateLoadBalancerShapeRequest{LoadBalancerId: lb, UpdateLoadBalancerShapeDetails: loadbalancer.UpdateLoadBalancerShapeDetails{
			ShapeName: common.String("flexible"), ShapeDetails: &loadbalancer.ShapeDetails{MinimumBandwidthInMbps: common.Int(100), MaximumBandwidthInMbps: common.Int(100)},
		}})
		require.NoError(t, err)
		await(t, s, shaped.OpcWorkRequestId)
		grouped, err := s.Client.UpdateNetworkSecurityGroups(t.Context(), loadbalancer.UpdateNetworkSecurityGroupsRequest{LoadBalancerId: lb, UpdateNetworkSecurityGroupsDetails: loadbalancer.UpdateNetworkSecurityGroupsDetails{
			NetworkSecurityGroupIds: []string{"ocid1.networksecuritygroup.oc1..b"},
		}})
		require.NoError(t, err)
		await(t, s, grouped.OpcWorkRequestId)
		moved, err := s.Client.ChangeLoadBalancerCompartment(t.Context(), loadbalancer.ChangeLoadBalancerCompartmentRequest{
			LoadBalancerId: lb, ChangeLoadBalancerCompartmentDetails: loadbalancer.ChangeLoadBalancerCompartmentDetails{CompartmentId: common.String("ocid1.compartment.oc1..other")},
		})
		require.NoError(t, err)
		await(t, s, moved.OpcWorkRequestId)

		after, err := getBalancer(t, s, lb)
		require.NoError(t, err)
		assert.NotEqual(t, *before.ETag, *after.ETag)
		assert.Equal(t, "renamed", *after.DisplayName)
		assert.Equal(t, 100, *after.ShapeDetails.MinimumBandwidthInMbps)
		assert.Equal(t, []string{"ocid1.networksecuritygroup.oc1..b"}, after.NetworkSecurityGroupIds)
		assert.Equal(t, "ocid1.compartment.oc1..other", *after.CompartmentId)
		assert.Equal(t, before.FreeformTags, after.FreeformTags, "what an update does not name stays")
		assert.Equal(t, before.BackendSets, after.BackendSets)

		_, err = s.Client.UpdateLoadBalancer(t.Context(), loadbalancer.UpdateLoadBalancerRequest{
			LoadBalancerId: lb, IfMatch: before.ETag, UpdateLoadBalancerDetails: loadbalancer.UpdateLoadBalancerDetails{DisplayName: common.String("late")},
		})
		assertRefused(t, err, http.StatusPreconditionFailed, "NoEtagMatch")
		assert.Equal(t, 5, s.Writes(time.Time{}))
	})
}

func TestListsOfLoadBalancers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, nil)
		for _, name := range []string{"b", "a"} {
			work, err := create(t, s, newDetails(name), nil)
			require.NoError(t, err)
			await(t, s, work.Id)
		}
		_, err := create(t, s, newDetails("c"), nil)
		require.NoError(t, err)
		tests := []struct {
			name    string
			request loadbalancer.ListLoadBalancersRequest
			want    []string
		}{
			{name: "all", want: []string{"chat", "b", "a", "c"}},
			{name: "one", request: loadbalancer.ListLoadBalancersRequest{DisplayName: common.String("a")}, want: []string{"a"}},
			{name: "those of a state", request: loadbalancer.ListLoadBalancersRequest{LifecycleState: loadbalancer.LoadBalancerLifecycleStateCreating}, want: []string{"c"}},
			{name: "by name", request: loadbalancer.ListLoadBalancersRequest{SortBy: loadbalancer.ListLoadBalancersSortByDisplayname}, want: []string{"a", "b", "c", "chat"}},
			{name: "by name, descending", request: loadbalancer.ListLoadBalancersRequest{SortBy: loadbalancer.ListLoadBalancersSortByDisplayname, SortOrder: loadbalancer.ListLoadBalancersSortOrderDesc}, want: []string{"chat", "c", "b", "a"}},
			{name: "by time", request: loadbalancer.ListLoadBalancersRequest{SortBy: loadbalancer.ListLoadBalancersSortByTimecreated}, want: []string{"c", "a", "b", "chat"}},
			{name: "by time, ascending", request: loadbalancer.ListLoadBalancersRequest{SortBy: loadbalancer.ListLoadBalancersSortByTimecreated, SortOrder: loadbalancer.ListLoadBalancersSortOrderAsc}, want: []string{"chat", "b", "a", "c"}},
			{name: "of another compartment", request: loadbalancer.ListLoadBalancersRequest{CompartmentId: common.String("ocid1.compartment.oc1..none")}},
			{name: "a page", request: loadbalancer.ListLoadBalancersRequest{Limit: common.Int64(1), Page: common.String("1")}, want: []string{"b"}},
		}
		for _, tt := range tests {
			if tt.request.CompartmentId == nil {
				tt.request.CompartmentId = common.String(ocilbtest.Compartment)
			}
			got, err := s.Client.ListLoadBalancers(t.Context(), tt.request)
			require.NoError(t, err, tt.name)
			var names []string
			for _, lb := range got.Items {
				names = append(names, *lb.DisplayName)
			}
			assert.Equal(t, tt.want, names, tt.name)
		}
		_, err = s.Client.ListLoadBalancers(t.Context(), loadbalancer.ListLoadBalancersRequest{CompartmentId: common.String(ocilbtest.Compartment), Detail: common.String("none")})
		assertRefused(t, err, http.StatusBadRequest, "InvalidParameter")
	})
}
