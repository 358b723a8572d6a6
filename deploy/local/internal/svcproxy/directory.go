// Package svcproxy makes Services work without kube-proxy and cluster DNS, in one network namespace: a TCP listener for
// each service address (all of them are local there, see package network), from which a connection is spliced to one
// ready endpoint, and a DNS server for service names. The control plane has both, each node the DNS server, and the proxy where
// kube-proxy does not work.
//
// It goes on with what it knew when the API server is away. UDP services, session affinity and topology are not there.
package svcproxy

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/wake"
)

// Directory knows the cluster's Services and their endpoints.
type Directory struct {
	factory  informers.SharedInformerFactory
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
	changed  wake.Signal
}

// NewDirectory returns a directory that Start fills.
func NewDirectory(client kubernetes.Interface) (*Directory, error) {
	f := informers.NewSharedInformerFactory(client, 0)
	d := &Directory{factory: f, services: f.Core().V1().Services().Lister(), slices: f.Discovery().V1().EndpointSlices().Lister(),
		changed: wake.NewSignal()}
	send := func(any) { d.changed.Send() }
	h := cache.ResourceEventHandlerFuncs{AddFunc: send, UpdateFunc: func(any, any) { d.changed.Send() }, DeleteFunc: send}
	for _, i := range []cache.SharedIndexInformer{f.Core().V1().Services().Informer(), f.Discovery().V1().EndpointSlices().Informer()} {
		if _, err := i.AddEventHandler(h); err != nil {
			return nil, fmt.Errorf("watch services: %w", err)
		}
	}
	return d, nil
}

// Start keeps the directory up to date until ctx ends.
func (d *Directory) Start(ctx context.Context) { d.factory.Start(ctx.Done()) }

// WaitForSync returns when the directory is complete, or with an error when ctx ends first.
func (d *Directory) WaitForSync(ctx context.Context) error {
	for kind, ok := range d.factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("sync %s: %w", kind, context.Cause(ctx))
		}
	}
	return nil
}

// endpoint is one address of a Service.
type endpoint struct {
	ip       string
	hostname string
	ready    bool
	serving  bool
	ports    map[string]int32 // by name; "" for an unnamed one
}

// endpoints of a Service, in a stable order.
func (d *Directory) endpoints(namespace, name string) []endpoint {
	list, err := d.slices.EndpointSlices(namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: name}))
	if err != nil {
		return nil // a cache's List fails for no reason but a wrong index
	}
	var out []endpoint
	for _, s := range list {
		if s.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		ports := map[string]int32{}
		for _, p := range s.Ports {
			if p.Port != nil {
				ports[deref(p.Name)] = *p.Port
			}
		}
		for _, e := range s.Endpoints {
			for _, ip := range e.Addresses {
				ready := e.Conditions.Ready == nil || *e.Conditions.Ready
				out = append(out, endpoint{ip: ip, hostname: deref(e.Hostname), ports: ports, ready: ready,
					serving: e.Conditions.Serving == nil && ready || deref(e.Conditions.Serving)})
			}
		}
	}
	slices.SortFunc(out, func(a, b endpoint) int { return cmp.Compare(a.ip, b.ip) })
	return out
}

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// backends are the addresses behind one port of a Service: the ready ones, or where there is none, those that still serve
// while they terminate.
func (d *Directory) backends(namespace, name, port string) []string {
	var ready, serving []string
	for _, e := range d.endpoints(namespace, name) {
		n, ok := e.ports[port]
		if !ok {
			continue
		}
		addr := net.JoinHostPort(e.ip, strconv.Itoa(int(n)))
		if e.ready {
			ready = append(ready, addr)
		} else if e.serving {
			serving = append(serving, addr)
		}
	}
	if len(ready) == 0 {
		ready = serving
	}
	slices.Sort(ready)
	return slices.Compact(ready) // for a while an endpoint may be in two slices
}

// service returns a Service, or an error for people.
func (d *Directory) service(namespace, name string) (*corev1.Service, error) {
	svc, err := d.services.Services(namespace).Get(name)
	if err != nil {
		return nil, fmt.Errorf("no service %s in namespace %s", name, namespace)
	}
	return svc, nil
}

func headless(svc *corev1.Service) bool {
	return svc.Spec.ClusterIP == corev1.ClusterIPNone || svc.Spec.ClusterIP == ""
}
