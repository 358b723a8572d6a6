package ocilb_test

import (
	"context"
	"errors"
	"fmt"
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
	"fairlead.dev/pkg/testlane"
)

// listenerObject returns a listener. Listeners have no read of their own: they are parts of their load balancer.
func listenerObject() object {
	lb, name := common.String(id), common.String("one")
	details := func(idle int64) *loadbalancer.ConnectionConfiguration {
		return &loadbalancer.ConnectionConfiguration{IdleTimeout: &idle}
	}
	find := func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (*loadbalancer.Listener, *string, error) {
		r, err := c.GetLoadBalancer(ctx, loadbalancer.GetLoadBalancerRequest{LoadBalancerId: lb})
		if l, ok := r.Listeners["one"]; ok {
			return &l, r.ETag, err
		}
		return nil, r.ETag, err
	}
	return object{
		name: "listener", operation: "Listener", before: "3600", after: "7200", use: func(*ocilb.Listener) {},
		create: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (*string, error) {
			r, err := c.CreateListener(ctx, loadbalancer.CreateListenerRequest{LoadBalancerId: lb, CreateListenerDetails: loadbalancer.CreateListenerDetails{
				Name: name, DefaultBackendSetName: common.String("chat"), Port: common.Int(8080), Protocol: common.String("HTTP"), ConnectionConfiguration: details(3600),
			}})
			return r.OpcWorkRequestId, err
		},
		update: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (*string, error) {
			r, err := c.UpdateListener(ctx, loadbalancer.UpdateListenerRequest{LoadBalancerId: lb, ListenerName: name, UpdateListenerDetails: loadbalancer.UpdateListenerDetails{
				DefaultBackendSetName: common.String("chat"), Port: common.Int(8080), Protocol: common.String("HTTP"), ConnectionConfiguration: details(7200),
			}})
			return r.OpcWorkRequestId, err
		},
		delete: func(ctx context.Context, c *loadbalancer.LoadBalancerClient, ifMatch *string) (*string, error) {
			r, err := c.DeleteListener(ctx, loadbalancer.DeleteListenerRequest{LoadBalancerId: lb, ListenerName: name, IfMatch: ifMatch})
			return r.OpcWorkRequestId, err
		},
		get: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (string, *string, error) {
			l, etag, err := find(ctx, c)
			if l == nil {
				return "", etag, err
			}
			return fmt.Sprint(*l.ConnectionConfiguration.IdleTimeout), etag, err
		},
		list: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (int, error) {
			l, _, err := find(ctx, c)
			if l == nil {
				return 0, err
			}
			return 1, err
		},
	}
}

// withHeaders lets all requests of a client have headers, as a retry of the same mutation has them.
func withHeaders(c *loadbalancer.LoadBalancerClient, headers map[string]string) *loadbalancer.LoadBalancerClient {
	own := *c
	own.Interceptor = func(r *http.Request) error {
		for name, value := range headers {
			r.Header.Set(name, value)
		}
		return nil
	}
	return &own
}

// modesOfLane returns all modes in the long lane, and in the first one each mode of concurrency with each time at which the ETag changes.
func modesOfLane() map[string]*ocilb.Modes {
	if testlane.Long {
		return ocilbtest.AllModes()
	}
	return ocilbtest.SomeModes()
}

// TestObjectsInModes lets the objects that routes need obey each mode: listeners, routing policies, rule sets, certificates and
// hostnames.
func TestObjectsInModes(t *testing.T) {
	t.Parallel()
	for name, modes := range modesOfLane() {
		for _, o := range append(objects(), listenerObject()) {
			t.Run(o.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				change := func(m *ocilb.Modes) {
					latency, stale := m.Latency, m.Stale
					*m = *modes
					m.Latency, m.LatencyTail, m.Stale = latency, 0, stale
				}
				synctest.Test(t, func(t *testing.T) {
					s := startWithSets(t, change)
					ctx := context.WithValue(t.Context(), testKey{}, ocilbtest.NewAuthority(t))
					testObjectInMode(ctx, t, s, &o)
				})
			})
		}
	}
}

func testObjectInMode(ctx context.Context, t *testing.T, s *ocilbtest.Service, o *object) {
	t.Helper()
	modes := s.Modes()
	late := func(work *string, err error, status int, code string) { // a refusal at once, or by the work request
		t.Helper()
		if !modes.RefuseLate {
			assertRefused(t, err, status, code)
			return
		}
		require.NoError(t, err)
		ended := await(t, s, work)
		require.Equal(t, loadbalancer.WorkRequestLifecycleStateFailed, ended.LifecycleState)
		assert.Equal(t, loadbalancer.WorkRequestErrorErrorCodeBadInput, ended.ErrorDetails[0].ErrorCode)
	}
	work, err := o.delete(ctx, &s.Client, nil)
	late(work, err, http.StatusNotFound, "NotAuthorizedOrNotFound")
	if work, err = o.update(ctx, &s.Client); !errors.Is(err, errUnchangeable) {
		late(work, err, http.StatusNotFound, "NotAuthorizedOrNotFound")
	}

	_, first, err := etagOf(ctx, s)
	require.NoError(t, err)
	retried := withHeaders(&s.Client, map[string]string{"opc-retry-token": "create-one", "if-match": first})
	created, err := o.create(ctx, retried)
	require.NoError(t, err)
	if value, _, err := o.get(ctx, &s.Client); err == nil {
		assert.Empty(t, value, "it takes effect when its work request succeeds")
	}
	checkSecondMutation(t, s, modes.Concurrency)
	require.Equal(t, loadbalancer.WorkRequestLifecycleStateSucceeded, await(t, s, created).LifecycleState)
	time.Sleep(5 * time.Second) // the other mutation, if it was accepted
	value, _, err := o.get(ctx, &s.Client)
	require.NoError(t, err)
	assert.Equal(t, o.before, value)

	again, err := o.create(ctx, retried)
	if modes.TokenFirst {
		require.NoError(t, err, "the token is looked up before the ETag is compared")
		assert.Equal(t, *created, *again, "it has no second effect")
	} else {
		assertRefused(t, err, http.StatusPreconditionFailed, "NoEtagMatch")
	}
	work, err = o.create(ctx, &s.Client)
	late(work, err, http.StatusConflict, "NotAuthorizedOrResourceAlreadyExists")

	_, err = o.delete(ctx, &s.Client, &first)
	assertRefused(t, err, http.StatusPreconditionFailed, "NoEtagMatch")
	_, current, err := etagOf(ctx, s)
	require.NoError(t, err)
	deleted, err := o.delete(ctx, &s.Client, &current)
	require.NoError(t, err)
	require.Equal(t, loadbalancer.WorkRequestLifecycleStateSucceeded, await(t, s, deleted).LifecycleState)
	n, err := o.list(ctx, &s.Client)
	require.NoError(t, err)
	assert.Zero(t, n)
}

// etagOf returns the state and the ETag of the load balancer.
func etagOf(ctx context.Context, s *ocilbtest.Service) (lb *loadbalancer.LoadBalancer, etag string, err error) {
	r, err := s.Client.GetLoadBalancer(ctx, loadbalancer.GetLoadBalancerRequest{LoadBalancerId: common.String(id)})
	if err != nil {
		return nil, "", err
	}
	return &r.LoadBalancer, *r.ETag, nil
}

// checkSecondMutation sends a mutation of another object while one is in progress.
func checkSecondMutation(t *testing.T, s *ocilbtest.Service, mode ocilb.Concurrency) {
	t.Helper()
	_, err := put(t, s, "embed", nil, 1)
	switch mode {
	case ocilb.Busy:
		assertRefused(t, err, http.StatusConflict, "IncorrectState")
	case ocilb.Conflict:
		assertRefused(t, err, http.StatusConflict, "Conflict")
		lb, _, err := etagOf(t.Context(), s)
		require.NoError(t, err)
		assert.EqualValues(t, "UPDATING", lb.LifecycleState)
	default:
		require.NoError(t, err)
	}
}

// TestDependenciesInModes creates a policy before its set, and deletes what is still used: the service refuses both at once, in each
// mode, and nothing has changed.
func TestDependenciesInModes(t *testing.T) {
	t.Parallel()
	for name, modes := range modesOfLane() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := func(m *ocilb.Modes) {
				latency := m.Latency
				*m = *modes
				m.Latency, m.LatencyTail, m.Stale = latency, 0, 0
			}
			synctest.Test(t, func(t *testing.T) { testDependencies(t, startWithSets(t, change)) })
		})
	}
}

func testDependencies(t *testing.T, s *ocilbtest.Service) {
	t.Helper()
	lb := common.String(id)
	createPolicy := func() (loadbalancer.CreateRoutingPolicyResponse, error) {
		return s.Client.CreateRoutingPolicy(t.Context(), loadbalancer.CreateRoutingPolicyRequest{LoadBalancerId: lb, CreateRoutingPolicyDetails: loadbalancer.CreateRoutingPolicyDetails{
			Name: common.String("routes"), ConditionLanguageVersion: loadbalancer.CreateRoutingPolicyDetailsConditionLanguageVersionV1,
			Rules: []loadbalancer.RoutingRule{{
				Name: common.String("first"), Condition: common.String("any(http.request.url.path sw '/')"),
				Actions: []loadbalancer.Action{loadbalancer.ForwardToBackendSet{BackendSetName: common.String("new")}},
			}},
		}})
	}
	created, err := s.Client.CreateBackendSet(t.Context(), loadbalancer.CreateBackendSetRequest{LoadBalancerId: lb, CreateBackendSetDetails: loadbalancer.CreateBackendSetDetails{
		Name: common.String("new"), Policy: common.String("ROUND_ROBIN"), HealthChecker: &loadbalancer.HealthCheckerDetails{Protocol: common.String("TCP")},
	}})
	require.NoError(t, err)
	_, err = createPolicy()
	if mode := s.Modes().Concurrency; mode == ocilb.Busy || mode == ocilb.Conflict {
		_, refused := common.IsServiceError(err)
		assert.True(t, refused)
	} else {
		assertRefused(t, err, http.StatusBadRequest, "InvalidParameter")
		require.ErrorContains(t, err, "BackendSet 'new' which does not exist")
	}
	await(t, s, created.OpcWorkRequestId)
	policy, err := createPolicy()
	require.NoError(t, err)
	require.Equal(t, loadbalancer.WorkRequestLifecycleStateSucceeded, await(t, s, policy.OpcWorkRequestId).LifecycleState)

	listener, err := s.Client.CreateListener(t.Context(), loadbalancer.CreateListenerRequest{LoadBalancerId: lb, CreateListenerDetails: loadbalancer.CreateListenerDetails{
		Name: common.String("web"), DefaultBackendSetName: common.String("chat"), Port: common.Int(80), Protocol: common.String("HTTP"), RoutingPolicyName: common.String("routes"),
	}})
	require.NoError(t, err)
	require.Equal(t, loadbalancer.WorkRequestLifecycleStateSucceeded, await(t, s, listener.OpcWorkRequestId).LifecycleState)

	_, etag, err := etagOf(t.Context(), s)
	require.NoError(t, err)
	_, err = s.Client.DeleteBackendSet(t.Context(), loadbalancer.DeleteBackendSetRequest{LoadBalancerId: lb, BackendSetName: common.String("new")})
	assertRefused(t, err, http.StatusBadRequest, "InvalidParameter")
	require.ErrorContains(t, err, "since it is used in routing policy")
	_, err = s.Client.DeleteBackendSet(t.Context(), loadbalancer.DeleteBackendSetRequest{LoadBalancerId: lb, BackendSetName: common.String("chat")})
	assertRefused(t, err, http.StatusBadRequest, "InvalidParameter")
	_, err = s.Client.DeleteRoutingPolicy(t.Context(), loadbalancer.DeleteRoutingPolicyRequest{LoadBalancerId: lb, RoutingPolicyName: common.String("routes")})
	assertRefused(t, err, http.StatusBadRequest, "InvalidParameter")
	_, unchanged, err := etagOf(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, etag, unchanged, "what is refused has no effect")
}
