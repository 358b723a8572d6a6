package ocilb_test

import (
	"context"
	"errors"
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

// errUnchangeable says that an object cannot be updated.
var errUnchangeable = errors.New("cannot be updated")

// object is a kind of sub-resources by the SDK, with an object of it.
type object struct {
	name, operation string
	create          func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (work *string, err error)
	update          func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (work *string, err error)
	delete          func(ctx context.Context, c *loadbalancer.LoadBalancerClient, ifMatch *string) (work *string, err error)
	get             func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (value string, etag *string, err error)
	list            func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (n int, err error)
	before, after   string // values that get returns before and after the update
	use             func(l *ocilb.Listener)
	inUse           int // status of the deletion of an object that a listener uses
}

// objects returns an object of each kind but backend sets and listeners, which have tests of their own.
func objects() []object {
	lb := common.String(id)
	name := common.String("one")
	suite, policy, paths := "one", "one", "one"
	route := func(path string) []loadbalancer.PathRoute {
		return []loadbalancer.PathRoute{{
			Path: &path, PathMatchType: &loadbalancer.PathMatchType{MatchType: loadbalancer.PathMatchTypeMatchTypeExactMatch}, BackendSetName: common.String("chat"),
		}}
	}
	rule := func(condition string) []loadbalancer.RoutingRule {
		return []loadbalancer.RoutingRule{{Name: name, Condition: &condition, Actions: []loadbalancer.Action{loadbalancer.ForwardToBackendSet{BackendSetName: common.String("chat")}}}}
	}
	header := func(value string) []loadbalancer.Rule {
		return []loadbalancer.Rule{loadbalancer.AddHttpRequestHeaderRule{Header: common.String("X-Team"), Value: &value}}
	}
	return []object{
		{
			name: "hostname", operation: "Hostname", before: "a.example.com", after: "b.example.com", inUse: http.StatusBadRequest,
			use: func(l *ocilb.Listener) { l.HostnameNames = []string{"one"} },
			create: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (*string, error) {
				r, err := c.CreateHostname(ctx, loadbalancer.CreateHostnameRequest{LoadBalancerId: lb, CreateHostnameDetails: loadbalancer.CreateHostnameDetails{Name: name, Hostname: common.String("a.example.com")}})
				return r.OpcWorkRequestId, err
			},
			update: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (*string, error) {
				r, err := c.UpdateHostname(ctx, loadbalancer.UpdateHostnameRequest{LoadBalancerId: lb, Name: name, UpdateHostnameDetails: loadbalancer.UpdateHostnameDetails{Hostname: common.String("b.example.com")}})
				return r.OpcWorkRequestId, err
			},
			delete: func(ctx context.Context, c *loadbalancer.LoadBalancerClient, ifMatch *string) (*string, error) {
				r, err := c.DeleteHostname(ctx, loadbalancer.DeleteHostnameRequest{LoadBalancerId: lb, Name: name, IfMatch: ifMatch})
				return r.OpcWorkRequestId, err
			},
			get: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (string, *string, error) {
				r, err := c.GetHostname(ctx, loadbalancer.GetHostnameRequest{LoadBalancerId: lb, Name: name})
				if err != nil {
					return "", nil, err
				}
				return *r.Hostname.Hostname, r.ETag, nil
			},
			list: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (int, error) {
				r, err := c.ListHostnames(ctx, loadbalancer.ListHostnamesRequest{LoadBalancerId: lb})
				return len(r.Items), err
			},
		},
		{
			name: "rule set", operation: "RuleSet", before: "a", after: "b", inUse: http.StatusBadRequest,
			use: func(l *ocilb.Listener) { l.RuleSetNames = []string{"one"} },
			create: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (*string, error) {
				r, err := c.CreateRuleSet(ctx, loadbalancer.CreateRuleSetRequest{LoadBalancerId: lb, CreateRuleSetDetails: loadbalancer.CreateRuleSetDetails{Name: name, Items: header("a")}})
				return r.OpcWorkRequestId, err
			},
			update: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (*string, error) {
				r, err := c.UpdateRuleSet(ctx, loadbalancer.UpdateRuleSetRequest{LoadBalancerId: lb, RuleSetName: name, UpdateRuleSetDetails: loadbalancer.UpdateRuleSetDetails{Items: header("b")}})
				return r.OpcWorkRequestId, err
			},
			delete: func(ctx context.Context, c *loadbalancer.LoadBalancerClient, ifMatch *string) (*string, error) {
				r, err := c.DeleteRuleSet(ctx, loadbalancer.DeleteRuleSetRequest{LoadBalancerId: lb, RuleSetName: name, IfMatch: ifMatch})
				return r.OpcWorkRequestId, err
			},
			get: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (string, *string, error) {
				r, err := c.GetRuleSet(ctx, loadbalancer.GetRuleSetRequest{LoadBalancerId: lb, RuleSetName: name})
				if err != nil {
					return "", nil, err
				}
				return *r.Items[0].(loadbalancer.AddHttpRequestHeaderRule).Value, r.ETag, nil
			},
			list: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (int, error) {
				r, err := c.ListRuleSets(ctx, loadbalancer.ListRuleSetsRequest{LoadBalancerId: lb})
				return len(r.Items), err
			},
		},
		{
			name: "path route set", operation: "PathRouteSet", before: "/a", after: "/b", inUse: http.StatusBadRequest,
			use: func(l *ocilb.Listener) { l.PathRouteSetName = &paths },
			create: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (*string, error) {
				r, err := c.CreatePathRouteSet(ctx, loadbalancer.CreatePathRouteSetRequest{LoadBalancerId: lb, CreatePathRouteSetDetails: loadbalancer.CreatePathRouteSetDetails{Name: name, PathRoutes: route("/a")}})
				return r.OpcWorkRequestId, err
			},
			update: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (*string, error) {
				r, err := c.UpdatePathRouteSet(ctx, loadbalancer.UpdatePathRouteSetRequest{LoadBalancerId: lb, PathRouteSetName: name, UpdatePathRouteSetDetails: loadbalancer.UpdatePathRouteSetDetails{PathRoutes: route("/b")}})
				return r.OpcWorkRequestId, err
			},
			delete: func(ctx context.Context, c *loadbalancer.LoadBalancerClient, ifMatch *string) (*string, error) {
				r, err := c.DeletePathRouteSet(ctx, loadbalancer.DeletePathRouteSetRequest{LoadBalancerId: lb, PathRouteSetName: name, IfMatch: ifMatch})
				return r.OpcWorkRequestId, err
			},
			get: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (string, *string, error) {
				r, err := c.GetPathRouteSet(ctx, loadbalancer.GetPathRouteSetRequest{LoadBalancerId: lb, PathRouteSetName: name})
				if err != nil {
					return "", nil, err
				}
				return *r.PathRoutes[0].Path, r.ETag, nil
			},
			list: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (int, error) {
				r, err := c.ListPathRouteSets(ctx, loadbalancer.ListPathRouteSetsRequest{LoadBalancerId: lb})
				return len(r.Items), err
			},
		},
		{
			name: "cipher suite", operation: "SSLCipherSuite", before: "AES128-SHA", after: "AES256-SHA", inUse: http.StatusBadRequest,
			use: func(l *ocilb.Listener) { l.SSLConfiguration = &ocilb.SSLConfiguration{CipherSuiteName: &suite} },
			create: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (*string, error) {
				r, err := c.CreateSSLCipherSuite(ctx, loadbalancer.CreateSSLCipherSuiteRequest{LoadBalancerId: lb, CreateSslCipherSuiteDetails: loadbalancer.CreateSslCipherSuiteDetails{Name: name, Ciphers: []string{"AES128-SHA"}}})
				return r.OpcWorkRequestId, err
			},
			update: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (*string, error) {
				r, err := c.UpdateSSLCipherSuite(ctx, loadbalancer.UpdateSSLCipherSuiteRequest{LoadBalancerId: lb, Name: name, UpdateSslCipherSuiteDetails: loadbalancer.UpdateSslCipherSuiteDetails{Ciphers: []string{"AES256-SHA"}}})
				return r.OpcWorkRequestId, err
			},
			delete: func(ctx context.Context, c *loadbalancer.LoadBalancerClient, ifMatch *string) (*string, error) {
				r, err := c.DeleteSSLCipherSuite(ctx, loadbalancer.DeleteSSLCipherSuiteRequest{LoadBalancerId: lb, Name: name, IfMatch: ifMatch})
				return r.OpcWorkRequestId, err
			},
			get: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (string, *string, error) {
				r, err := c.GetSSLCipherSuite(ctx, loadbalancer.GetSSLCipherSuiteRequest{LoadBalancerId: lb, Name: name})
				if err != nil {
					return "", nil, err
				}
				return r.Ciphers[0], r.ETag, nil
			},
			list: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (int, error) {
				r, err := c.ListSSLCipherSuites(ctx, loadbalancer.ListSSLCipherSuitesRequest{LoadBalancerId: lb})
				return len(r.Items), err
			},
		},
		{
			name: "routing policy", operation: "RoutingPolicy", before: "http.request.url.path eq '/a'", after: "http.request.url.path eq '/b'", inUse: http.StatusBadRequest,
			use: func(l *ocilb.Listener) { l.RoutingPolicyName = &policy },
			create: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (*string, error) {
				r, err := c.CreateRoutingPolicy(ctx, loadbalancer.CreateRoutingPolicyRequest{LoadBalancerId: lb, CreateRoutingPolicyDetails: loadbalancer.CreateRoutingPolicyDetails{
					Name: name, ConditionLanguageVersion: loadbalancer.CreateRoutingPolicyDetailsConditionLanguageVersionV1, Rules: rule("http.request.url.path eq '/a'"),
				}})
				return r.OpcWorkRequestId, err
			},
			update: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (*string, error) {
				r, err := c.UpdateRoutingPolicy(ctx, loadbalancer.UpdateRoutingPolicyRequest{LoadBalancerId: lb, RoutingPolicyName: name, UpdateRoutingPolicyDetails: loadbalancer.UpdateRoutingPolicyDetails{Rules: rule("http.request.url.path eq '/b'")}})
				return r.OpcWorkRequestId, err
			},
			delete: func(ctx context.Context, c *loadbalancer.LoadBalancerClient, ifMatch *string) (*string, error) {
				r, err := c.DeleteRoutingPolicy(ctx, loadbalancer.DeleteRoutingPolicyRequest{LoadBalancerId: lb, RoutingPolicyName: name, IfMatch: ifMatch})
				return r.OpcWorkRequestId, err
			},
			get: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (string, *string, error) {
				r, err := c.GetRoutingPolicy(ctx, loadbalancer.GetRoutingPolicyRequest{LoadBalancerId: lb, RoutingPolicyName: name})
				if err != nil {
					return "", nil, err
				}
				return *r.Rules[0].Condition, r.ETag, nil
			},
			list: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (int, error) {
				r, err := c.ListRoutingPolicies(ctx, loadbalancer.ListRoutingPoliciesRequest{LoadBalancerId: lb})
				return len(r.Items), err
			},
		},
		certificateObject(),
	}
}

// certificateObject returns a certificate of an authority: those with keys have tests of their own.
func certificateObject() object {
	lb, name := common.String(id), "one"
	authority := ""
	return object{
		name: "certificate", operation: "Certificate", before: "one", after: "one", inUse: http.StatusConflict,
		use: func(l *ocilb.Listener) { l.SSLConfiguration = &ocilb.SSLConfiguration{CertificateName: &name} },
		create: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (*string, error) {
			if authority == "" {
				authority = ctx.Value(testKey{}).(*ocilbtest.Authority).PEM()
			}
			r, err := c.CreateCertificate(ctx, loadbalancer.CreateCertificateRequest{LoadBalancerId: lb, CreateCertificateDetails: loadbalancer.CreateCertificateDetails{CertificateName: &name, CaCertificate: &authority}})
			return r.OpcWorkRequestId, err
		},
		update: func(context.Context, *loadbalancer.LoadBalancerClient) (*string, error) { return nil, errUnchangeable },
		delete: func(ctx context.Context, c *loadbalancer.LoadBalancerClient, ifMatch *string) (*string, error) {
			r, err := c.DeleteCertificate(ctx, loadbalancer.DeleteCertificateRequest{LoadBalancerId: lb, CertificateName: &name, IfMatch: ifMatch})
			return r.OpcWorkRequestId, err
		},
		get: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (string, *string, error) {
			r, err := c.GetLoadBalancer(ctx, loadbalancer.GetLoadBalancerRequest{LoadBalancerId: lb})
			if err != nil {
				return "", nil, err
			}
			certificate, ok := r.Certificates[name]
			if !ok {
				return "", nil, nil
			}
			return *certificate.CertificateName, r.ETag, nil
		},
		list: func(ctx context.Context, c *loadbalancer.LoadBalancerClient) (int, error) {
			r, err := c.ListCertificates(ctx, loadbalancer.ListCertificatesRequest{LoadBalancerId: lb})
			return len(r.Items), err
		},
	}
}

// testKey is the key of an authority in a context.
type testKey struct{}

// eachObject runs a test for each kind of objects.
func eachObject(t *testing.T, test func(t *testing.T, o *object)) {
	t.Helper()
	for _, o := range objects() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			test(t, &o)
		})
	}
}

// withAuthority returns a context for the creation of objects, with an authority.
func withAuthority(t *testing.T) context.Context {
	t.Helper()
	return context.WithValue(t.Context(), testKey{}, ocilbtest.NewAuthority(t))
}

func TestObjects(t *testing.T) {
	t.Parallel()
	eachObject(t, func(t *testing.T, o *object) {
		synctest.Test(t, func(t *testing.T) {
			ctx, s := withAuthority(t), startWithSets(t, func(m *ocilb.Modes) { m.RefuseLate = false })
			count := func() int {
				n, err := o.list(ctx, &s.Client)
				require.NoError(t, err)
				return n
			}
			assertValue := func(want string) {
				t.Helper()
				value, _, err := o.get(ctx, &s.Client)
				if err != nil {
					assertRefused(t, err, http.StatusNotFound, "NotAuthorizedOrNotFound")
				}
				assert.Equal(t, want, value)
			}
			assert.Zero(t, count())
			assertValue("")
			_, err := o.delete(ctx, &s.Client, nil)
			assertRefused(t, err, http.StatusNotFound, "NotAuthorizedOrNotFound")
			if _, err = o.update(ctx, &s.Client); !errors.Is(err, errUnchangeable) {
				assertRefused(t, err, http.StatusNotFound, "NotAuthorizedOrNotFound")
			}

			created, err := o.create(ctx, &s.Client)
			require.NoError(t, err)
			assertValue("")
			assert.Equal(t, "Create"+o.operation, *await(t, s, created).Type)
			assertValue(o.before)
			assert.Equal(t, 1, count())
			_, err = o.create(ctx, &s.Client)
			assertRefused(t, err, http.StatusConflict, "NotAuthorizedOrResourceAlreadyExists")

			_, etag, err := o.get(ctx, &s.Client)
			require.NoError(t, err)
			if updated, err := o.update(ctx, &s.Client); !errors.Is(err, errUnchangeable) {
				require.NoError(t, err)
				assert.Equal(t, "Update"+o.operation, *await(t, s, updated).Type)
				assertValue(o.after)
				_, err = o.delete(ctx, &s.Client, etag)
				assertRefused(t, err, http.StatusPreconditionFailed, "NoEtagMatch")
			}

			require.Nil(t, s.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
				l := &ocilb.Listener{Name: "web", DefaultBackendSetName: "chat", Port: 80, Protocol: "HTTP"}
				o.use(l)
				lb.Listeners["web"] = l
				return nil
			}))
			_, err = o.delete(ctx, &s.Client, nil)
			assertRefused(t, err, o.inUse, map[int]string{http.StatusBadRequest: "InvalidParameter", http.StatusConflict: "Conflict"}[o.inUse])
			require.Nil(t, s.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
				delete(lb.Listeners, "web")
				return nil
			}))
			deleted, err := o.delete(ctx, &s.Client, nil)
			require.NoError(t, err)
			assert.Equal(t, "Delete"+o.operation, *await(t, s, deleted).Type)
			assert.Zero(t, count())

			calls := s.Calls("Create"+o.operation, "Delete"+o.operation)
			require.NotEmpty(t, calls)
			assert.Equal(t, *deleted, calls[len(calls)-1].WorkRequest)
		})
	})
}

// The modes of concurrency are those of all operations.
func TestConcurrencyOfObjects(t *testing.T) {
	t.Parallel()
	for mode, want := range map[ocilb.Concurrency]string{ocilb.Busy: "IncorrectState", ocilb.Conflict: "Conflict", ocilb.Queue: "2s", ocilb.Parallel: "1s"} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			eachObject(t, func(t *testing.T, o *object) {
				synctest.Test(t, func(t *testing.T) {
					ctx, s := withAuthority(t), startWithSets(t, func(m *ocilb.Modes) { m.Concurrency = mode })
					begun := time.Now()
					_, err := put(t, s, "chat", nil, 1)
					require.NoError(t, err)
					created, err := o.create(ctx, &s.Client)
					if err != nil {
						assertRefused(t, err, http.StatusConflict, want)
						return
					}
					await(t, s, created)
					assert.Equal(t, want, time.Since(begun).Truncate(time.Second).String())
				})
			})
		})
	}
}

func TestCatalogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, nil)
		compartment := common.String(ocilbtest.Compartment)
		policies, err := s.Client.ListPolicies(t.Context(), loadbalancer.ListPoliciesRequest{CompartmentId: compartment, Limit: common.Int64(2)})
		require.NoError(t, err)
		require.Len(t, policies.Items, 2)
		assert.Equal(t, "ROUND_ROBIN", *policies.Items[0].Name)
		rest, err := s.Client.ListPolicies(t.Context(), loadbalancer.ListPoliciesRequest{CompartmentId: compartment, Page: policies.OpcNextPage})
		require.NoError(t, err)
		require.Len(t, rest.Items, 1)
		assert.Nil(t, rest.OpcNextPage)
		protocols, err := s.Client.ListProtocols(t.Context(), loadbalancer.ListProtocolsRequest{CompartmentId: compartment})
		require.NoError(t, err)
		assert.Len(t, protocols.Items, 4)
		shapes, err := s.Client.ListShapes(t.Context(), loadbalancer.ListShapesRequest{CompartmentId: compartment})
		require.NoError(t, err)
		require.Len(t, shapes.Items, 1)
		assert.Equal(t, "flexible", *shapes.Items[0].Name)
		_, err = s.Client.ListShapes(t.Context(), loadbalancer.ListShapesRequest{CompartmentId: common.String("")})
		assertRefused(t, err, http.StatusBadRequest, "MissingParameter")
	})
}
