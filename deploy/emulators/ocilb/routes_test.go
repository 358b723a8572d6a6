package ocilb_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
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

// withTwoSets returns a world with backend 1 in set chat and backend 2 in set embed, after their first health checks.
func withTwoSets(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, nil)
	for i, name := range []string{"chat", "embed"} {
		w.serve(t, i+1)
		w.set(t, name, backend(i+1))
	}
	time.Sleep(time.Minute)
	return w
}

// addPathRoutes creates the path route set "paths" with a rule for set embed.
func (w *world) addPathRoutes(t *testing.T, match loadbalancer.PathMatchTypeMatchTypeEnum, path string) {
	t.Helper()
	created, err := w.Client.CreatePathRouteSet(t.Context(), loadbalancer.CreatePathRouteSetRequest{
		LoadBalancerId: common.String(id), CreatePathRouteSetDetails: loadbalancer.CreatePathRouteSetDetails{Name: common.String("paths"), PathRoutes: []loadbalancer.PathRoute{
			{Path: &path, PathMatchType: &loadbalancer.PathMatchType{MatchType: match}, BackendSetName: common.String("embed")},
		}},
	})
	require.NoError(t, err)
	require.Equal(t, loadbalancer.WorkRequestLifecycleStateSucceeded, await(t, w.Service, created.OpcWorkRequestId).LifecycleState)
}

// answer returns the body of the answer to a request.
func (w *world) answer(t *testing.T, path string, change func(r *http.Request)) string {
	t.Helper()
	status, body, err := w.get(t, path, change)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, body)
	return body
}

func TestPathRouteSets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := withTwoSets(t)
		w.addPathRoutes(t, loadbalancer.PathMatchTypeMatchTypePrefixMatch, "/v1/Embeddings")
		assert.Equal(t, "1", w.answer(t, "/v1/embeddings", nil), "no listener uses it")
		health := func() loadbalancer.BackendHealthStatusEnum {
			got, err := w.Client.GetBackendHealth(t.Context(), loadbalancer.GetBackendHealthRequest{LoadBalancerId: common.String(id), BackendSetName: common.String("embed"), BackendName: common.String(backend(2).Name)})
			require.NoError(t, err)
			return got.Status
		}
		assert.Equal(t, loadbalancer.BackendHealthStatusUnknown, health())
		w.edit(t, func(lb *ocilb.LoadBalancer) {
			name := "paths"
			lb.Listeners["web"].PathRouteSetName = &name
		})
		assert.Equal(t, "2", w.answer(t, "/v1/embeddings/x", nil))
		assert.Equal(t, "1", w.answer(t, "/v1/chat", nil))
		assert.Equal(t, loadbalancer.BackendHealthStatusOk, health())

		w.edit(t, func(lb *ocilb.LoadBalancer) {
			lb.RoutingPolicies["policy"] = &ocilb.RoutingPolicy{Name: "policy", ConditionLanguageVersion: "V1", Rules: []ocilb.RoutingRule{{
				Name: "rule", Condition: "http.request.url.path sw '/v1/chat'", Actions: []ocilb.Action{{Name: "FORWARD_TO_BACKENDSET", BackendSetName: "embed"}},
			}}}
			name := "policy"
			lb.Listeners["web"].RoutingPolicyName = &name
		})
		assert.Equal(t, "1", w.answer(t, "/v1/embeddings/x", nil), "a routing policy disables path routes")
		assert.Equal(t, "2", w.answer(t, "/v1/chat", nil))
	})
}

func TestRuleSetsOfListeners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.network.Serve(t, backend(1).Name, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Server", "secret")
			fmt.Fprint(rw, r.Header.Get("X-Team"), r.Header.Get("X-Forwarded-Proto"))
		}))
		w.set(t, "chat", backend(1))
		created, err := w.Client.CreateRuleSet(t.Context(), loadbalancer.CreateRuleSetRequest{
			LoadBalancerId: common.String(id), CreateRuleSetDetails: loadbalancer.CreateRuleSetDetails{Name: common.String("rules"), Items: []loadbalancer.Rule{
				loadbalancer.AddHttpRequestHeaderRule{Header: common.String("X-Team"), Value: common.String("blue")},
				loadbalancer.RemoveHttpResponseHeaderRule{Header: common.String("server")},
				loadbalancer.ControlAccessUsingHttpMethodsRule{AllowedMethods: []string{"GET"}},
				loadbalancer.RedirectRule{
					Conditions:  []loadbalancer.RuleCondition{loadbalancer.PathMatchCondition{AttributeValue: common.String("/old"), Operator: loadbalancer.PathMatchConditionOperatorPrefixMatch}},
					RedirectUri: &loadbalancer.RedirectUri{Path: common.String("/new")}, ResponseCode: common.Int(301),
				},
			}},
		})
		require.NoError(t, err)
		require.Equal(t, loadbalancer.WorkRequestLifecycleStateSucceeded, await(t, w.Service, created.OpcWorkRequestId).LifecycleState)
		w.edit(t, func(lb *ocilb.LoadBalancer) { lb.Listeners["web"].RuleSetNames = []string{"rules"} })
		time.Sleep(time.Minute)

		response, body := w.response(t, http.MethodGet, "/", func(r *http.Request) { r.Header.Set("X-Team", "red") })
		assert.Equal(t, "bluehttp", body)
		assert.NotContains(t, response.Header, "Server")
		response, _ = w.response(t, http.MethodPost, "/", nil)
		assert.Equal(t, http.StatusMethodNotAllowed, response.StatusCode)
		w.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		response, _ = w.response(t, http.MethodGet, "/old/page?a=b", nil)
		assert.Equal(t, http.StatusMovedPermanently, response.StatusCode)
		assert.Equal(t, "http://"+ocilbtest.Address+"/new?a=b", response.Header.Get("Location"))

		list, err := w.Client.ListListenerRules(t.Context(), loadbalancer.ListListenerRulesRequest{LoadBalancerId: common.String(id), ListenerName: common.String("web")})
		require.NoError(t, err)
		require.Len(t, list.Items, 4)
		assert.Equal(t, "rules", *list.Items[0].RuleSetName)
		assert.IsType(t, loadbalancer.ControlAccessUsingHttpMethodsRule{}, list.Items[0].Rule)
		assert.Equal(t, 405, *list.Items[0].Rule.(loadbalancer.ControlAccessUsingHttpMethodsRule).StatusCode)
		assert.IsType(t, loadbalancer.RedirectRule{}, list.Items[1].Rule)
		assert.IsType(t, loadbalancer.AddHttpRequestHeaderRule{}, list.Items[2].Rule)
		assert.IsType(t, loadbalancer.RemoveHttpResponseHeaderRule{}, list.Items[3].Rule)
		assert.NotEmpty(t, *list.ETag)
		_, err = w.Client.ListListenerRules(t.Context(), loadbalancer.ListListenerRulesRequest{LoadBalancerId: common.String(id), ListenerName: common.String("none")})
		assertRefused(t, err, http.StatusNotFound, "NotAuthorizedOrNotFound")
	})
}

// Listeners share a port by the names of hosts. With TLS, each has its certificate.
func TestVirtualHosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := withTwoSets(t)
		hosts := map[string]string{"exact": "api.example.com", "before": "*.example.com", "behind": "api.b.example.*"}
		for name, host := range hosts {
			created, err := w.Client.CreateHostname(t.Context(), loadbalancer.CreateHostnameRequest{LoadBalancerId: common.String(id), CreateHostnameDetails: loadbalancer.CreateHostnameDetails{Name: &name, Hostname: &host}})
			require.NoError(t, err)
			require.Equal(t, loadbalancer.WorkRequestLifecycleStateSucceeded, await(t, w.Service, created.OpcWorkRequestId).LifecycleState)
		}
		authority := ocilbtest.NewAuthority(t)
		add := func(name, set string, hostnames ...string) {
			public, private := authority.Issue(t, name+".test")
			w.addCertificate(t, loadbalancer.CreateCertificateDetails{CertificateName: &name, PublicCertificate: &public, PrivateKey: &private})
			w.addListener(t, loadbalancer.CreateListenerDetails{
				Name: &name, DefaultBackendSetName: &set, HostnameNames: hostnames, SslConfiguration: &loadbalancer.SslConfigurationDetails{CertificateName: &name},
			})
		}
		// certificate returns the name in the certificate that a client of a host gets, and the answer.
		certificate := func(host string) (name, answer string) {
			response, body, err := w.askTLS(t, &tls.Config{InsecureSkipVerify: true, ServerName: host})
			require.NoError(t, err)
			return response.TLS.PeerCertificates[0].DNSNames[0], body
		}
		add("exact", "embed", "exact")
		add("before", "embed", "before")
		for range 5 {
			name, answer := certificate("other.test")
			assert.Equal(t, "before.test 2", name+" "+answer, "the first listener takes what no other one does")
		}
		add("default", "chat")
		add("behind", "embed", "behind")
		for host, want := range map[string]string{
			"api.example.com": "exact.test 2", "API.Example.com": "exact.test 2", "a.b.example.com": "before.test 2", "api.b.example.com": "before.test 2", "api.b.example.test": "behind.test 2", "example.com": "default.test 1", "other.test": "default.test 1",
		} {
			name, answer := certificate(host)
			assert.Equal(t, want, name+" "+answer, host)
		}
		w.edit(t, func(lb *ocilb.LoadBalancer) { delete(lb.Listeners, "exact") })
		name, answer := certificate("api.example.com")
		assert.Equal(t, "before.test 2", name+" "+answer)
	})
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.network.Serve(t, backend(1).Name, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, r.Header.Get("X-Request-Id")) }))
		w.set(t, "chat", backend(1))
		time.Sleep(time.Minute)
		response, body := w.response(t, http.MethodGet, "/", nil)
		assert.Empty(t, body)
		assert.NotContains(t, response.Header, "X-Request-Id")
		updated, err := w.Client.UpdateLoadBalancer(t.Context(), loadbalancer.UpdateLoadBalancerRequest{
			LoadBalancerId: common.String(id), UpdateLoadBalancerDetails: loadbalancer.UpdateLoadBalancerDetails{IsRequestIdEnabled: common.Bool(true)},
		})
		require.NoError(t, err)
		await(t, w.Service, updated.OpcWorkRequestId)
		response, body = w.response(t, http.MethodGet, "/", nil)
		assert.NotEmpty(t, body)
		assert.Equal(t, body, response.Header.Get("X-Request-Id"))
		_, body = w.response(t, http.MethodGet, "/", func(r *http.Request) { r.Header.Set("X-Request-Id", "mine") })
		assert.Equal(t, "mine", body)
	})
}

// TestUpgrades keeps a connection whose protocol has changed, such as that of a WebSocket, as long as bytes flow, and ends it when it is idle.
func TestUpgrades(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.network.Serve(t, backend(1).Name, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			conn, buffer, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			fmt.Fprint(buffer, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_ = buffer.Flush()
			_, _ = io.Copy(conn, buffer)
		}))
		w.set(t, "chat", backend(1))
		time.Sleep(time.Minute)
		conn, err := w.network.Dial(t.Context(), "tcp", ocilbtest.Address+":80")
		require.NoError(t, err)
		defer conn.Close()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		reader := bufio.NewReader(conn)
		response, err := http.ReadResponse(reader, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
		for range 5 {
			time.Sleep(50 * time.Second) // the idle timeout is a minute
			fmt.Fprint(conn, "ping\n")
			line, err := reader.ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, "ping\n", line)
		}
		time.Sleep(2 * time.Minute)
		_, err = reader.ReadString('\n')
		require.Error(t, err)
	})
}
