package cluster_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// resolve asks the cluster's DNS.
func resolve(t *testing.T, c *cluster.Cluster, name string, kind uint16) *dns.Msg {
	t.Helper()
	conn, err := c.Dial(t.Context(), "10.96.0.10:53")
	require.NoError(t, err)
	defer conn.Close()
	q := new(dns.Msg)
	q.SetQuestion(name, kind)
	answer, _, err := (&dns.Client{Net: "tcp"}).ExchangeWithConn(q, &dns.Conn{Conn: conn})
	require.NoError(t, err)
	return answer
}

func TestServices_NamesAndAddresses(t *testing.T) {
	t.Parallel()
	withEachProxy(t, checkNames)
}

func checkNames(t *testing.T, proxy string) {
	c := startWithProxy(t, proxy, func(cfg *clusterapi.Config) {
		cfg.Publish = []clusterapi.Publish{{Host: "127.0.0.1:0", Target: "web.default:http"}}
	})
	deploy(t, c, 2, workloadImage)
	list, err := pods(t.Context(), c.Clientset())
	require.NoError(t, err)
	ips := []string{list[0].Status.PodIP, list[1].Status.PodIP}

	t.Run("a headless service has the addresses of its ready pods", func(t *testing.T) {
		require.EventuallyWithT(t, func(collect *assert.CollectT) { // endpoints follow readiness in a moment
			var got []string
			for _, rr := range resolve(t, c, "web-headless.default.svc.cluster.local.", dns.TypeA).Answer {
				got = append(got, rr.(*dns.A).A.String())
			}
			require.ElementsMatch(collect, ips, got)
		}, kubetest.Patience, tick)
	})
	t.Run("its SRV records lead to port and address of each", func(t *testing.T) {
		m := resolve(t, c, "_http._tcp.web-headless.default.svc.cluster.local.", dns.TypeSRV)
		require.Len(t, m.Answer, 2)
		var got []string
		for _, rr := range m.Answer {
			srv := rr.(*dns.SRV)
			assert.EqualValues(t, 8000, srv.Port)
			for _, a := range resolve(t, c, srv.Target, dns.TypeA).Answer {
				got = append(got, a.(*dns.A).A.String())
			}
		}
		assert.ElementsMatch(t, ips, got)
	})
	t.Run("a service with an address has that one", func(t *testing.T) {
		m := resolve(t, c, "Web.default.svc.cluster.local.", dns.TypeA)
		require.Len(t, m.Answer, 1)
	})
	t.Run("a name that is not there does not exist", func(t *testing.T) {
		assert.Equal(t, dns.RcodeNameError, resolve(t, c, "nobody.default.svc.cluster.local.", dns.TypeA).Rcode)
	})
	t.Run("a published service answers on the host", func(t *testing.T) {
		require.NoError(t, get(t.Context(), &http.Client{}, c.Published[0], "/ping"))
	})
	t.Run("dial reaches a service by port name and number, and a node", func(t *testing.T) {
		require.NoError(t, get(t.Context(), httpClient(c), "web.default:80", "/ping"))
		conn, err := c.Dial(t.Context(), "web.default:http")
		require.NoError(t, err)
		conn.Close()
		conn, err = c.Dial(t.Context(), "node-1:10250")
		require.NoError(t, err)
		conn.Close()
	})
	t.Run("dial says what is wrong", func(t *testing.T) {
		for target, want := range map[string]string{
			"web.default:https": "service web.default has no port https",
			"nobody.default:80": "no service nobody in namespace default",
			"nobody:80":         "names no address, node or service.namespace",
		} {
			_, err := c.Dial(context.Background(), target)
			assert.ErrorContains(t, err, want)
		}
	})
}
