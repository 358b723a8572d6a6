package stack

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/kubetest/cluster"
)

// proxyAppProtocol finds the port of the picker's Service for clients without a gateway, as backendset-syncer does.
const proxyAppProtocol = "fairlead.dev/http-proxy"

// proxyValues are helm values of a picker that clients reach without a gateway. The chart's two replicas share the clients.
var proxyValues = []string{"proxy.enabled=true", "replicas=2"}

// nodePort lets a test connect through the service proxy of a node, as a pod does: it picks one of the ready endpoints.
const nodePort = "service.type=NodePort"

// Listener is the proxy listener of the picker. Its clients connect to the Service through a node.
type Listener struct {
	cluster *cluster.Cluster
	address string // of the node, for Cluster.Dial
}

// InstallListener installs model servers and the picker with its proxy listener, without a gateway, and waits until it is ready.
func InstallListener(ctx context.Context, c *cluster.Cluster, o Options) (*Stack, *Listener, error) {
	o.Picker = slices.Concat([]string{nodePort}, o.Picker)
	s, err := InstallProxies(ctx, c, o)
	if err != nil {
		return nil, nil, err
	}
	l, err := newListener(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: l.Dial, DisableKeepAlives: true}}
	return s, l, waitAnswer(ctx, client, l.BaseURL())
}

// InstallProxies installs model servers and two pickers with their proxy listener, for a load balancer in front of them, and waits until
// they are ready.
func InstallProxies(ctx context.Context, c *cluster.Cluster, o Options) (*Stack, error) {
	o.Picker = slices.Concat(proxyValues, o.Picker)
	s, err := newStack(ctx, c, o)
	if err != nil {
		return nil, err
	}
	s.pickerValues = s.example("picker-values.yaml")
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.UpgradeServers(gctx, o.Tag) })
	g.Go(func() error { return s.UpgradePicker(gctx, o.Tag) })
	return s, g.Wait()
}

// newListener finds the port of the picker's Service.
func newListener(ctx context.Context, c *cluster.Cluster) (*Listener, error) {
	service, err := c.Clientset().CoreV1().Services(metav1.NamespaceDefault).Get(ctx, Picker, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for _, p := range service.Spec.Ports {
		if p.AppProtocol != nil && *p.AppProtocol == proxyAppProtocol && p.NodePort != 0 {
			return &Listener{cluster: c, address: net.JoinHostPort("node-1", strconv.Itoa(int(p.NodePort)))}, nil
		}
	}
	return nil, fmt.Errorf("the Service %s has no node port with the appProtocol %s", Picker, proxyAppProtocol)
}

// BaseURL is that of requests. Its host is the name of the Service.
func (*Listener) BaseURL() string { return "http://" + Picker + "." + metav1.NamespaceDefault }

// Dial connects to one of the pickers. It has the form of http.Transport.DialContext.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return l.cluster.Dial(ctx, l.address)
}
