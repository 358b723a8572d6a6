package ociapi

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/oracle/oci-go-sdk/v65/loadbalancer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// LoadBalancer is a load balancer as it was read.
type LoadBalancer struct {
	ID     string
	Active bool   // neither being created or deleted, nor failed
	State  string // life-cycle state
	ETag   string // changes with every part of the load balancer
	// Addresses are the addresses of the load balancer.
	Addresses []string

	used map[string]bool
	raw  loadbalancer.LoadBalancer
}

// SetSizes returns the names of the backend sets and the number of their backends.
func (l *LoadBalancer) SetSizes() map[string]int {
	sizes := make(map[string]int, len(l.raw.BackendSets))
	for name := range l.raw.BackendSets {
		sizes[name] = len(l.raw.BackendSets[name].Backends)
	}
	return sizes
}

// BackendAddresses returns the IP addresses of all backends, as package netip writes them.
func (l *LoadBalancer) BackendAddresses() map[string]bool {
	addresses := map[string]bool{}
	for _, s := range l.raw.BackendSets {
		for i := range s.Backends {
			if a, err := netip.ParseAddr(valueOf(s.Backends[i].IpAddress)); err == nil {
				addresses[a.Unmap().String()] = true
			}
		}
	}
	return addresses
}

// BackendSet is a backend set as it was read.
type BackendSet struct {
	Name          string
	Backends      []plan.Backend
	HealthChecker plan.HealthChecker

	raw loadbalancer.BackendSet
}

// BackendSet returns a backend set, or nil if the load balancer has no set of this name.
func (l *LoadBalancer) BackendSet(name string) (*BackendSet, error) {
	raw, found := l.raw.BackendSets[name]
	if !found {
		return nil, nil
	}
	set := &BackendSet{Name: name, raw: raw, Backends: make([]plan.Backend, 0, len(raw.Backends))}
	for i := range raw.Backends {
		b := &raw.Backends[i]
		address, err := netip.ParseAddr(valueOf(b.IpAddress))
		if err != nil {
			return nil, fmt.Errorf("read backend %q of set %s: %w", valueOf(b.Name), name, err)
		}
		set.Backends = append(set.Backends, plan.Backend{
			Address: netip.AddrPortFrom(address, uint16(valueOf(b.Port))), Weight: valueOf(b.Weight),
			MaxConnections: valueOf(b.MaxConnections), Drain: valueOf(b.Drain), Backup: valueOf(b.Backup), Offline: valueOf(b.Offline),
		})
	}
	if h := raw.HealthChecker; h != nil {
		set.HealthChecker = plan.HealthChecker{
			Protocol: valueOf(h.Protocol), URLPath: valueOf(h.UrlPath), Port: valueOf(h.Port), ReturnCode: valueOf(h.ReturnCode),
			Retries: valueOf(h.Retries),
			Timeout: durationOf(h.TimeoutInMillis), Interval: durationOf(h.IntervalInMillis),
		}
	}
	return set, nil
}

func valueOf[T any](p *T) T {
	var zero T
	return ptr.Deref(p, zero)
}

func durationOf(p *int) time.Duration { return time.Duration(valueOf(p)) * time.Millisecond }

// ReadLoadBalancer reads a load balancer with everything in it.
func (c *Client) ReadLoadBalancer(ctx context.Context, p Priority, id string) (*LoadBalancer, error) {
	r, err := callAPI(ctx, c, call{"GetLoadBalancer", p}, sdkClient.GetLoadBalancer,
		loadbalancer.GetLoadBalancerRequest{LoadBalancerId: &id, RequestMetadata: noRetries()})
	if err != nil {
		return nil, err
	}
	return &LoadBalancer{
		ID: id, State: string(r.LifecycleState),
		Active: r.LifecycleState == loadbalancer.LoadBalancerLifecycleStateActive || r.LifecycleState == updating,
		ETag:   valueOf(r.ETag), Addresses: addressesOf(&r.LoadBalancer),
		used: usedSets(&r.LoadBalancer), raw: r.LoadBalancer,
	}, nil
}

// updating is a state of network load balancers. Documents have it for them only, users have seen it elsewhere.
const updating loadbalancer.LoadBalancerLifecycleStateEnum = "UPDATING"

// WorkRequest is a work request.
type WorkRequest struct {
	ID, Type string
	Done     bool
	Accepted time.Time
	Failed   string // the problem of a work request that failed, empty otherwise
}

func newWorkRequest(w *loadbalancer.WorkRequest) WorkRequest {
	request := WorkRequest{ID: valueOf(w.Id), Type: valueOf(w.Type)}
	if w.TimeAccepted != nil {
		request.Accepted = w.TimeAccepted.Time
	}
	switch w.LifecycleState {
	case loadbalancer.WorkRequestLifecycleStateSucceeded:
		request.Done = true
	case loadbalancer.WorkRequestLifecycleStateFailed:
		request.Done = true
		request.Failed = cleanText(valueOf(w.Message))
		for _, e := range w.ErrorDetails {
			request.Failed = cleanText(fmt.Sprintf("%s: %s", e.ErrorCode, valueOf(e.Message)))
		}
		request.Failed = cmp.Or(request.Failed, "the service gives no reason")
	}
	return request
}

// ReadWorkRequest reads a work request.
func (c *Client) ReadWorkRequest(ctx context.Context, id string) (WorkRequest, error) {
	r, err := callAPI(ctx, c, call{"GetWorkRequest", High}, sdkClient.GetWorkRequest,
		loadbalancer.GetWorkRequestRequest{WorkRequestId: &id, RequestMetadata: noRetries()})
	if err != nil {
		return WorkRequest{}, err
	}
	return newWorkRequest(&r.WorkRequest), nil
}

// ListInFlight returns the work requests of a load balancer that are not done, those of other clients too. The service also lists those
// that are done, in an order that is not documented: the list ends early if it begins with the newest, and has an end of old ones.
func (c *Client) ListInFlight(ctx context.Context, id string) ([]WorkRequest, error) {
	var inFlight []WorkRequest
	var page *string
	for range maxPages {
		r, err := callAPI(ctx, c, call{"ListWorkRequests", High}, sdkClient.ListWorkRequests,
			loadbalancer.ListWorkRequestsRequest{
				LoadBalancerId: &id, Limit: common.Int64(pageSize), Page: page, RequestMetadata: noRetries(),
			})
		if err != nil {
			return nil, err
		}
		var first, last time.Time
		for i := range r.Items {
			w := newWorkRequest(&r.Items[i])
			if !w.Done {
				inFlight = append(inFlight, w)
			}
			if last = w.Accepted; i == 0 {
				first = w.Accepted
			}
		}
		page = r.OpcNextPage
		if valueOf(page) == "" || first.After(last) && c.p.Clock.Since(last) > WorkRequestDeadline {
			break
		}
	}
	return inFlight, nil
}

// WorkRequestDeadline is the time after which a work request counts as lost. CCM waits as long; the longest that users report
// takes minutes.
const WorkRequestDeadline = 10 * time.Minute

// Health is the health of the backends of a set, by name.
type Health struct {
	Critical, Unknown sets.Set[string]
}

// ReadHealth reads the health of a backend set.
func (c *Client) ReadHealth(ctx context.Context, id, set string) (*Health, error) {
	r, err := callAPI(ctx, c, call{"GetBackendSetHealth", Low}, sdkClient.GetBackendSetHealth,
		loadbalancer.GetBackendSetHealthRequest{LoadBalancerId: &id, BackendSetName: &set, RequestMetadata: noRetries()})
	if err != nil {
		return nil, err
	}
	return &Health{Critical: sets.New(r.CriticalStateBackendNames...), Unknown: sets.New(r.UnknownStateBackendNames...)}, nil
}

// ReadCheckResult reads the result of the last health check of a backend, such as CONNECT_FAILED.
func (c *Client) ReadCheckResult(ctx context.Context, id, set, backend string) (string, error) {
	r, err := callAPI(ctx, c, call{"GetBackendHealth", Low}, sdkClient.GetBackendHealth,
		loadbalancer.GetBackendHealthRequest{
			LoadBalancerId: &id, BackendSetName: &set, BackendName: &backend, RequestMetadata: noRetries(),
		})
	if err != nil {
		return "", err
	}
	for _, result := range r.HealthCheckResults {
		if s := string(result.HealthCheckStatus); s != "OK" {
			return s, nil
		}
	}
	return string(r.Status), nil
}

// InService reports whether the load balancer sends requests to a backend, as far as is known. A backend with a warning counts: one
// of the nodes of the load balancer has not checked it yet, and sends it nothing. The health of a set that is not used is not known.
func (h *Health) InService(backend string, used bool) bool {
	return !h.Critical.Has(backend) && !(used && h.Unknown.Has(backend))
}

// IsUsed reports whether requests can reach a backend set: it is the default of a listener, or a routing policy or path route names it.
func (l *LoadBalancer) IsUsed(set string) bool { return l.used[set] }

// usedSets returns the names of the backend sets that requests can reach.
func usedSets(lb *loadbalancer.LoadBalancer) map[string]bool {
	used := map[string]bool{}
	for _, listener := range lb.Listeners {
		used[valueOf(listener.DefaultBackendSetName)] = true
		for _, rule := range policyOf(lb.RoutingPolicies[valueOf(listener.RoutingPolicyName)]).Rules {
			used[rule.Set] = true
		}
		for _, route := range lb.PathRouteSets[valueOf(listener.PathRouteSetName)].PathRoutes {
			used[valueOf(route.BackendSetName)] = true
		}
	}
	return used
}
