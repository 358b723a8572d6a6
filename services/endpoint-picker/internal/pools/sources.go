package pools

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	inferenceclient "sigs.k8s.io/gateway-api-inference-extension/client-go/clientset/versioned"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/discovery"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/metrics"
)

const (
	// kindPollInterval is the interval of checks for the kind of the pool, which may be installed after the picker starts.
	kindPollInterval = 10 * time.Second
	// rulePollInterval is the same for objectives and rewrites, which most clusters do not have.
	rulePollInterval = 30 * time.Second
	// rulePatience is the maximum time that objectives and rewrites keep the picker unready. It is longer than the time after which
	// a kind whose list is forbidden counts as missing (package kube: 10 s).
	rulePatience = 11 * time.Second
)

// Clients are the clients of the cluster. All are nil without a cluster.
type Clients struct {
	Core      kube.Clientset
	Inference inferenceclient.Interface
	Dynamic   dynamic.Interface
}

// endpointSource provides the endpoints of one pool.
type endpointSource interface {
	ReadPool() ([]endpoint.Description, error)
	WaitForSync(ctx context.Context) bool
	// OnChange registers a function to call after changes.
	OnChange(changed func())
}

// poolNamespace contains the caches of one namespace.
type poolNamespace struct {
	*discovery.Namespace

	rules *discovery.Rules // nil without InferencePools, because objectives and rewrites refer to one
}

// addOnlyPool adds the pool of all streams: that of URLs, of an endpoints file, of a selector of pods, or of an
// InferencePool.
func (r *Registry) addOnlyPool() (*Pool, error) {
	from := r.params.Config.Pool
	switch {
	case len(from.Servers.URLs) > 0:
		source, err := r.newServerSource(&from.Servers)
		if err != nil {
			return nil, err
		}
		r.servers, r.sources = source, append(r.sources, source.Run)
		return r.addPool(from.String(), types.NamespacedName{}, source), nil
	case from.File != "":
		source, err := discovery.NewFileSource(discovery.FileParams{
			Log: r.params.Log.Named("endpointsfile"), Path: from.File, Once: from.Once,
			Observe: metrics.NewEndpointsFile(r.params.Registry),
		})
		if err != nil {
			return nil, err
		}
		r.sources = append(r.sources, source.Run)
		return r.addPool(from.String(), types.NamespacedName{}, source), nil
	}
	caches := discovery.NamespaceParams{Namespace: from.Name.Namespace}
	if from.Selector.Selector != nil {
		n, err := r.addNamespace(caches, nil)
		if err != nil {
			return nil, err
		}
		selected := discovery.Selection{Selector: from.Selector.Selector, Ports: from.TargetPorts}
		return r.addPool(from.String(), types.NamespacedName{}, n.SelectionSource(selected)), nil
	}
	caches.Inference, caches.Pool = r.params.Clients.Inference, from.Name.Name
	if _, err := r.addNamespace(caches, metrics.NewRules(r.params.Registry)); err != nil {
		return nil, err
	}
	added, _ := r.addInferencePool(from.Name.AsNamespacedName())
	return added, nil
}

func (r *Registry) newServerSource(from *config.Servers) (*discovery.ServerSource, error) {
	servers, err := from.Parse()
	if err != nil {
		return nil, err
	}
	secure, err := readServersTLS(from)
	if err != nil {
		return nil, err
	}
	return discovery.NewServerSource(discovery.ServerParams{Log: r.params.Log.Named("servers"), Servers: servers, TLS: secure}), nil
}

func readServersTLS(from *config.Servers) (*tls.Config, error) {
	certificates := from.TLS()
	secure, err := certificates.TLSConfig()
	if err != nil {
		return nil, fmt.Errorf("--servers-ca-file: %w", err)
	}
	return secure, nil
}

// PrepareServers reads the certificate authorities of --servers again. The returned function makes them those of new connections.
func (r *Registry) PrepareServers() (publish func(), err error) {
	if r.servers == nil {
		return func() {}, nil
	}
	secure, err := readServersTLS(&r.params.Config.Pool.Servers)
	if err != nil {
		return nil, err
	}
	return func() { r.servers.SetTLS(secure) }, nil
}

// addNamespaces prepares for the InferencePools that streams select.
func (r *Registry) addNamespaces() error {
	rules := metrics.NewRules(r.params.Registry)
	for _, name := range namespacesOf(&r.params.Config.Pool) {
		caches := discovery.NamespaceParams{Namespace: name, Inference: r.params.Clients.Inference, Changed: r.changed.Send}
		if _, err := r.addNamespace(caches, rules); err != nil {
			return err
		}
	}
	return nil
}

// addNamespace adds the caches of a namespace, with its rules if there is an observer of rules.
func (r *Registry) addNamespace(p discovery.NamespaceParams, observer *metrics.Rules) (*poolNamespace, error) {
	clients := r.params.Clients
	p.Log, p.Core, p.PollInterval = r.params.Log.Named("informers"), clients.Core, kindPollInterval
	caches, err := discovery.NewNamespace(p)
	if err != nil {
		return nil, err
	}
	n := &poolNamespace{Namespace: caches}
	r.namespaces[p.Namespace] = n
	r.sources = append(r.sources, n.Run)
	if observer != nil {
		n.rules = discovery.NewRules(discovery.RulesParams{
			Log: r.params.Log.Named("rules"), Discovery: clients.Core.Discovery(), Dynamic: clients.Dynamic, Namespace: p.Namespace,
			Observe: observer.OfNamespace(), Patience: rulePatience, PollInterval: rulePollInterval,
		})
		r.sources = append(r.sources, n.rules.Run)
	}
	return n, nil
}

// addInferencePool adds the pool of an InferencePool, whose rules are read at the next reading of the namespace. The function ends the
// calls for changes of the InferencePool and of its rules.
func (r *Registry) addInferencePool(name types.NamespacedName) (added *Pool, release func()) {
	n := r.namespaces[name.Namespace]
	source := n.PoolSource(name.Name)
	added = r.addPool(name.String(), name, source)
	n.rules.AddPool(name.Name, added.rules, added.metrics.PinModels)
	return added, func() {
		source.Close()
		n.rules.RemovePool(name.Name)
	}
}

// namespacesOf returns the namespaces of the selected pools, each once.
func namespacesOf(p *config.Pool) []string {
	names := []string{}
	if p.Service.Name != "" {
		names = append(names, p.Service.Namespace)
	}
	for i := range p.Names {
		names = append(names, p.Names[i].Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
