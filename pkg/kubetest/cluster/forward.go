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
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport/spdy"
)

// forwarder connects to pods through the API server. Each connection has its own upgraded request: streams of one request share its flow
// control, so one that is not read would hold up all others.
type forwarder struct {
	config *rest.Config
	client kubernetes.Interface
}

// dial connects to service.namespace:port, or to the address of a pod. A service is one of its ready pods; its port is a name or a number.
func (f *forwarder) dial(ctx context.Context, target string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	var pod types.NamespacedName
	if net.ParseIP(host) != nil {
		pod, err = f.podOfAddress(ctx, host)
	} else {
		name, namespace, ok := strings.Cut(host, ".")
		if !ok {
			return nil, fmt.Errorf("%q is neither service.namespace nor the address of a pod", host)
		}
		pod, port, err = f.podOfService(ctx, types.NamespacedName{Namespace: namespace, Name: name}, port)
	}
	if err != nil {
		return nil, err
	}
	return f.connect(ctx, pod, port)
}

func (f *forwarder) podOfAddress(ctx context.Context, ip string) (types.NamespacedName, error) {
	selector := fields.AndSelectors(fields.OneTermEqualSelector("status.podIP", ip), fields.OneTermEqualSelector("status.phase", string(corev1.PodRunning)))
	pods, err := f.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: selector.String()})
	if err != nil {
		return types.NamespacedName{}, fmt.Errorf("find the pod: %w", err)
	}
	if len(pods.Items) == 0 {
		return types.NamespacedName{}, errors.New("no running pod has this address")
	}
	return types.NamespacedName{Namespace: pods.Items[0].Namespace, Name: pods.Items[0].Name}, nil
}

// podOfService returns a ready pod of a service, and the number of the pod's port.
func (f *forwarder) podOfService(ctx context.Context, name types.NamespacedName, port string) (pod types.NamespacedName, number string, err error) {
	service, err := f.client.CoreV1().Services(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return pod, "", err
	}
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == port || strconv.Itoa(int(p.Port)) == port })
	if i < 0 {
		return pod, "", fmt.Errorf("service %s has no port %s", name, port)
	}
	list, err := f.client.DiscoveryV1().EndpointSlices(name.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name.Name})
	if err != nil {
		return pod, "", fmt.Errorf("list endpoints: %w", err)
	}
	var pods, numbers []string
	for j := range list.Items {
		number := portOf(&list.Items[j], service.Spec.Ports[i].Name)
		for _, e := range list.Items[j].Endpoints {
			if number != "" && e.TargetRef != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				pods, numbers = append(pods, e.TargetRef.Name), append(numbers, number)
			}
		}
	}
	if len(pods) == 0 {
		return pod, "", fmt.Errorf("service %s has no ready pod", name)
	}
	chosen := rand.IntN(len(pods))
	return types.NamespacedName{Namespace: name.Namespace, Name: pods[chosen]}, numbers[chosen], nil
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

// connect connects to a port of a pod.
func (f *forwarder) connect(ctx context.Context, pod types.NamespacedName, port string) (net.Conn, error) {
	transport, upgrader, err := spdy.RoundTripperFor(f.config)
	if err != nil {
		return nil, err
	}
	url := f.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	connection, _, err := spdy.Negotiate(upgrader, &http.Client{Transport: transport}, request, "portforward.k8s.io")
	if err != nil {
		return nil, fmt.Errorf("forward to pod %s: %w", pod, err)
	}
	headers := http.Header{}
	headers.Set(corev1.PortHeader, port)
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	problems, err := connection.CreateStream(headers)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create stream: %w", err), connection.Close())
	}
	_ = problems.Close() // nothing is sent on it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := connection.CreateStream(headers)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create stream: %w", err), connection.Close())
	}
	go func() {
		if text, _ := io.ReadAll(problems); len(text) > 0 {
			_ = connection.Close() // such as a refused connection
		}
	}()
	return &forwarded{data: data, connection: connection, to: podAddress(net.JoinHostPort(pod.String(), port))}, nil
}

// forwarded is a connection to a pod. It has no deadlines.
type forwarded struct {
	data       stream
	connection io.Closer
	to         podAddress
}

// stream is a stream of an upgraded request.
type stream interface {
	io.ReadWriteCloser
	Reset() error
}

type podAddress string

// Network implements net.Addr.
func (podAddress) Network() string { return "tcp" }

// String implements net.Addr.
func (a podAddress) String() string { return string(a) }

func (f *forwarded) Read(p []byte) (int, error)  { return f.data.Read(p) }
func (f *forwarded) Write(p []byte) (int, error) { return f.data.Write(p) }

// CloseWrite ends the data to the pod.
func (f *forwarded) CloseWrite() error { return f.data.Close() }

// Close implements net.Conn.
func (f *forwarded) Close() error {
	_ = f.data.Reset()
	return f.connection.Close()
}

// LocalAddr implements net.Conn.
func (*forwarded) LocalAddr() net.Addr { return podAddress("") }

// RemoteAddr implements net.Conn.
func (f *forwarded) RemoteAddr() net.Addr { return f.to }

// SetDeadline implements net.Conn, without effect.
func (*forwarded) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn, without effect.
func (*forwarded) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn, without effect.
func (*forwarded) SetWriteDeadline(time.Time) error { return nil }
