package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	nodeName = "loopback"
	// httpPort and h2cPort are the ports at which the echo server of the suite listens.
	httpPort = 3000
	h2cPort  = 3001
	// beat is the interval at which pods and endpoints follow their Deployments and Services.
	beat = 200 * time.Millisecond
)

// pods are the pods of Deployments: an API server alone has no controllers and no nodes. Each has an address of its own in the API, and
// listens at the loopback interface; the emulator dials one for the other.
type pods struct {
	client kubernetes.Interface

	mu      sync.Mutex
	next    netip.Addr
	servers map[string]string // address of the loopback interface by that of the pod
	closers []io.Closer
}

func newPods(client kubernetes.Interface) *pods {
	return &pods{client: client, next: netip.MustParseAddr("10.244.0.10"), servers: map[string]string{}}
}

// run makes pods and endpoints until ctx ends.
func (p *pods) run(ctx context.Context, failed func(error)) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		if err := p.sync(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *pods) sync(ctx context.Context) error {
	deployments, err := p.client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list deployments: %w", err)
	}
	for i := range deployments.Items {
		if d := &deployments.Items[i]; echoes(&d.Spec.Template.Spec) {
			for n := range ptr.Deref(d.Spec.Replicas, 1) {
				if err := p.ensurePod(ctx, d, int(n)); err != nil {
					return err
				}
			}
		}
	}
	return p.syncEndpoints(ctx)
}

// echoes reports whether a pod serves plain HTTP: other pods are of tests for protocols that the program does not have.
func echoes(s *corev1.PodSpec) bool {
	for _, e := range s.Containers[0].Env {
		if e.Name != "POD_NAME" && e.Name != "NAMESPACE" {
			return false
		}
	}
	return len(s.Volumes) == 0
}

// ensurePod makes the n-th pod of a Deployment.
func (p *pods) ensurePod(ctx context.Context, d *appsv1.Deployment, n int) error {
	name := fmt.Sprintf("%s-loopback-%d", d.Name, n) // two parts, as a ReplicaSet adds: the suite reads the name of the Deployment from it
	all := p.client.CoreV1().Pods(d.Namespace)
	if _, err := all.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: d.Spec.Template.Labels}, Spec: *d.Spec.Template.Spec.DeepCopy()}
	pod.Spec.NodeName = nodeName
	created, err := all.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create pod %s/%s: %w", d.Namespace, name, err)
	}
	address, err := p.serve(d.Namespace, name)
	if err != nil {
		return err
	}
	created.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
		},
	}
	if _, err := all.UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update status of pod %s/%s: %w", d.Namespace, name, err)
	}
	return nil
}

// serve starts the servers of a pod, and returns the address that the pod has in the API.
func (p *pods) serve(namespace, name string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	address := p.next.String()
	p.next = p.next.Next()
	for port, h2c := range map[int]bool{httpPort: false, h2cPort: true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", fmt.Errorf("listen for pod %s/%s: %w", namespace, name, err)
		}
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!h2c)
		protocols.SetUnencryptedHTTP2(h2c)
		s := &http.Server{
			Handler: &echo{namespace: namespace, pod: name, port: strconv.Itoa(port)}, Protocols: protocols,
			ReadHeaderTimeout: time.Minute,
		}
		go func() { _ = s.Serve(l) }()
		p.servers[net.JoinHostPort(address, strconv.Itoa(port))], p.closers = l.Addr().String(), append(p.closers, s)
	}
	return address, nil
}

// dial connects to a pod, as the data plane of a load balancer does.
func (p *pods) dial(ctx context.Context, network, address string) (net.Conn, error) {
	p.mu.Lock()
	server := p.servers[address]
	p.mu.Unlock()
	if server == "" {
		if host, _, err := net.SplitHostPort(address); err != nil || !netip.MustParseAddr(host).IsLoopback() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		server = address
	}
	return new(net.Dialer).DialContext(ctx, network, server)
}

// add lets the data plane find a server at an address of the API.
func (p *pods) add(address, server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.servers[address] = server
}

func (p *pods) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.closers {
		_ = c.Close()
	}
}

// syncEndpoints writes an EndpointSlice for each Service that selects pods.
func (p *pods) syncEndpoints(ctx context.Context) error {
	services, err := p.client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list services: %w", err)
	}
	all, err := p.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	var errs []error
	for i := range services.Items {
		if s := &services.Items[i]; len(s.Spec.Selector) > 0 && s.DeletionTimestamp == nil {
			errs = append(errs, p.writeSlice(ctx, newSlice(s, all.Items)))
		}
	}
	return errors.Join(errs...)
}

func newSlice(s *corev1.Service, all []corev1.Pod) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Name + "-pods", Namespace: s.Namespace, Labels: map[string]string{discoveryv1.LabelServiceName: s.Name, discoveryv1.LabelManagedBy: "gateway-conformance"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: s.Name, UID: s.UID}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, port := range s.Spec.Ports {
		number := port.TargetPort.IntVal
		if number == 0 {
			number = port.Port
		}
		slice.Ports = append(slice.Ports,
			discoveryv1.EndpointPort{
				Name: ptr.To(port.Name), Protocol: ptr.To(port.Protocol), Port: &number, AppProtocol: port.AppProtocol,
			})
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	for i := range all {
		pod := &all[i]
		if pod.Namespace != s.Namespace || pod.Status.PodIP == "" || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{pod.Status.PodIP}, NodeName: ptr.To(pod.Spec.NodeName),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		})
	}
	return slice
}

// writeSlice creates a slice, or updates it if its endpoints have changed.
func (p *pods) writeSlice(ctx context.Context, want *discoveryv1.EndpointSlice) error {
	slices := p.client.DiscoveryV1().EndpointSlices(want.Namespace)
	current, err := slices.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = slices.Create(ctx, want, metav1.CreateOptions{})
	case err == nil && (len(current.Endpoints) != len(want.Endpoints) || len(current.Ports) != len(want.Ports)):
		want.ResourceVersion = current.ResourceVersion
		_, err = slices.Update(ctx, want, metav1.UpdateOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) { // the Service was deleted with its namespace
		return fmt.Errorf("write endpoints of %s/%s: %w", want.Namespace, want.Name, err)
	}
	return nil
}
