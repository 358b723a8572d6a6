package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// forwarder connects to pods through the API server. Each connection has an upgraded request to itself: streams of one request share its
// flow control, so one that is not read would hold up all others. Requests are used again, because an upgrade takes several TLS handshakes.
type forwarder struct {
	config *rest.Config
	client kubernetes.Interface

	mu       sync.Mutex
	idle     map[types.NamespacedName][]*upgraded // by pod
	resolved map[string]resolution                // by target
}

// upgraded is an upgraded request, and the number of connections that it had.
type upgraded struct {
	httpstream.Connection

	used int
}

// resolution is the pods of a target at a time.
type resolution struct {
	at        time.Time
	endpoints []podEndpoint
}

// podEndpoint is a port of a pod.
type podEndpoint struct {
	pod  types.NamespacedName
	port string
}

// resolveInterval is the age of a resolution from which it is read again. Clients see a new pod, or the end of one, this much later.
const resolveInterval = 250 * time.Millisecond

func newForwarder(config *rest.Config, client kubernetes.Interface) *forwarder {
	return &forwarder{config: config, client: client, idle: map[types.NamespacedName][]*upgraded{}, resolved: map[string]resolution{}}
}

// dialService connects to service.namespace:port, or to the address of a pod. A service is one of its ready pods; its port is a name or a
// number.
func (f *forwarder) dialService(ctx context.Context, target string) (net.Conn, error) {
	f.mu.Lock()
	known := f.resolved[target]
	f.mu.Unlock()
	if time.Since(known.at) > resolveInterval {
		endpoints, err := f.resolveTarget(ctx, target)
		if err != nil {
			return nil, err
		}
		known = resolution{at: time.Now(), endpoints: endpoints}
		f.mu.Lock()
		f.resolved[target] = known
		f.mu.Unlock()
	}
	return f.connectToPod(ctx, known.endpoints[rand.IntN(len(known.endpoints))])
}

// resolveTarget returns the pods of a target: at least one.
func (f *forwarder) resolveTarget(ctx context.Context, target string) ([]podEndpoint, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) != nil {
		pod, err := f.podOfAddress(ctx, host)
		return []podEndpoint{{pod: pod, port: port}}, err
	}
	name, namespace, ok := strings.Cut(host, ".")
	if !ok {
		return nil, fmt.Errorf("%q is neither service.namespace nor the address of a pod", host)
	}
	return f.podsOfService(ctx, types.NamespacedName{Namespace: namespace, Name: name}, port)
}

func (f *forwarder) podOfAddress(ctx context.Context, ip string) (types.NamespacedName, error) {
	selector := fields.AndSelectors(fields.OneTermEqualSelector("status.podIP", ip),
		fields.OneTermEqualSelector("status.phase", string(corev1.PodRunning)))
	pods, err := f.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: selector.String()})
	if err != nil {
		return types.NamespacedName{}, fmt.Errorf("find the pod: %w", err)
	}
	if len(pods.Items) == 0 {
		return types.NamespacedName{}, errors.New("no running pod has this address")
	}
	return types.NamespacedName{Namespace: pods.Items[0].Namespace, Name: pods.Items[0].Name}, nil
}

// podsOfService returns the ready pods of a service, with the number of the port.
func (f *forwarder) podsOfService(ctx context.Context, name types.NamespacedName, port string) ([]podEndpoint, error) {
	service, err := f.client.CoreV1().Services(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(service.Spec.Ports,
		func(p corev1.ServicePort) bool { return p.Name == port || strconv.Itoa(int(p.Port)) == port })
	if i < 0 {
		return nil, fmt.Errorf("service %s has no port %s", name, port)
	}
	list, err := f.client.DiscoveryV1().EndpointSlices(name.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name.Name})
	if err != nil {
		return nil, fmt.Errorf("list endpoints: %w", err)
	}
	var found []podEndpoint
	for j := range list.Items {
		number := portOf(&list.Items[j], service.Spec.Ports[i].Name)
		for _, e := range list.Items[j].Endpoints {
			if number != "" && e.TargetRef != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				found = append(found,
					podEndpoint{pod: types.NamespacedName{Namespace: name.Namespace, Name: e.TargetRef.Name}, port: number})
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("service %s has no ready pod", name)
	}
	return found, nil
}

// portOf returns the number of a port of a slice, or nothing.
func portOf(s *discoveryv1.EndpointSlice, name string) string {
	for _, p := range s.Ports {
		if p.Port != nil && (p.Name == nil || *p.Name == name) {
			return strconv.Itoa(int(*p.Port))
		}
	}
	return ""
}

// connectToPod connects to a port of a pod.
func (f *forwarder) connectToPod(ctx context.Context, to podEndpoint) (net.Conn, error) {
	for u := f.takeIdle(to.pod); u != nil; u = f.takeIdle(to.pod) {
		if conn, err := f.openStreams(u, to); err == nil {
			return conn, nil
		}
		_ = u.Close() // the pod, or the API server, is another one now
	}
	transport, upgrader, err := spdy.RoundTripperFor(f.config)
	if err != nil {
		return nil, err
	}
	url := f.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(to.pod.Namespace).Name(to.pod.Name).SubResource("portforward").URL()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	connection, _, err := spdy.NegotiateStreaming(upgrader, &http.Client{Transport: transport}, request, "portforward.k8s.io")
	if err != nil {
		return nil, fmt.Errorf("forward to pod %s: %w", to.pod, err)
	}
	u := &upgraded{Connection: connection}
	conn, err := f.openStreams(u, to)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("forward to pod %s: %w", to.pod, err), u.Close())
	}
	return conn, nil
}

// takeIdle returns an idle request to a pod, or nil.
func (f *forwarder) takeIdle(pod types.NamespacedName) *upgraded {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.idle[pod]
	if len(list) == 0 {
		return nil
	}
	f.idle[pod] = list[:len(list)-1]
	return list[len(list)-1]
}

// putIdle keeps a request for the next connection.
func (f *forwarder) putIdle(pod types.NamespacedName, u *upgraded) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle[pod] = append(f.idle[pod], u)
}

// close closes the idle requests.
func (f *forwarder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, list := range f.idle {
		for _, u := range list {
			_ = u.Close()
		}
	}
	clear(f.idle)
}

// openStreams creates the streams of a connection.
func (f *forwarder) openStreams(u *upgraded, to podEndpoint) (net.Conn, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, to.port)
	headers.Set(corev1.PortForwardRequestIDHeader, strconv.Itoa(u.used))
	u.used++
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	problems, err := u.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("create stream: %w", err)
	}
	_ = problems.Close() // nothing is sent on it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := u.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("create stream: %w", err)
	}
	c := &forwarded{forwarder: f, request: u, data: data, problems: problems, to: to}
	c.reported.Go(func() {
		if text, _ := io.ReadAll(problems); len(text) > 0 { // such as a refused connection
			c.broken.Store(true)
			_ = data.Reset()
		}
	})
	return c, nil
}

// forwarded is a connection to a pod. It has no deadlines.
type forwarded struct {
	forwarder      *forwarder
	request        *upgraded
	data, problems httpstream.Stream
	to             podEndpoint

	reported               sync.WaitGroup // for the end of problems
	received, sent, broken atomic.Bool    // the end of the data from the pod, and to the pod
	once                   sync.Once
}

func (c *forwarded) Read(p []byte) (int, error) {
	n, err := c.data.Read(p)
	if errors.Is(err, io.EOF) {
		c.received.Store(true)
	}
	return n, err
}

func (c *forwarded) Write(p []byte) (int, error) { return c.data.Write(p) }

// CloseWrite ends the data to the pod.
func (c *forwarded) CloseWrite() error {
	c.sent.Store(true)
	return c.data.Close()
}

// Close implements net.Conn. The request can be used again if both sides have ended.
func (c *forwarded) Close() error {
	c.once.Do(func() {
		if !c.received.Load() || !c.sent.Load() {
			_ = c.request.Close()
			return
		}
		c.reported.Wait()
		if c.broken.Load() {
			_ = c.request.Close()
			return
		}
		c.request.RemoveStreams(c.data, c.problems)
		c.forwarder.putIdle(c.to.pod, c.request)
	})
	return nil
}

// LocalAddr implements net.Conn.
func (*forwarded) LocalAddr() net.Addr { return podAddress("") }

// RemoteAddr implements net.Conn.
func (c *forwarded) RemoteAddr() net.Addr {
	return podAddress(net.JoinHostPort(c.to.pod.String(), c.to.port))
}

// SetDeadline implements net.Conn, without effect.
func (*forwarded) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn, without effect.
func (*forwarded) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn, without effect.
func (*forwarded) SetWriteDeadline(time.Time) error { return nil }

// podAddress is the address of a pod's port.
type podAddress string

// Network implements net.Addr.
func (podAddress) Network() string { return "tcp" }

// String implements net.Addr.
func (a podAddress) String() string { return string(a) }
