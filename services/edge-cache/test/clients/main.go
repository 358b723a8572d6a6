// Command clients runs informers of EndpointSlices with the client-go that it is built with, and prints what they have.
//
// It reads commands from its standard input: an empty line asks for the state of all informers, which is printed as one line of JSON. It
// ends with its input. The module has the oldest client-go; the folders in it have modules that build the same program with later ones.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
}

func run() error {
	config := &rest.Config{QPS: -1}
	flag.StringVar(&config.Host, "server", "", "URL of the API.")
	flag.StringVar(&config.BearerTokenFile, "token", "", "File with the token.")
	flag.StringVar(&config.CAFile, "ca", "", "File with the authority of the API.")
	flag.Parse()
	if config.Host == "" {
		return errors.New("--server is empty")
	}
	informers, err := startInformers(config)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := out.Encode(informers.states()); err != nil {
			return fmt.Errorf("print state: %w", err)
		}
	}
	return nil
}

// informers are informers by the kind of their client.
type informers map[string]cache.SharedInformer

// state is what an informer has.
type state struct {
	Synced  bool
	Version string
	Slices  map[string][]string // nodes of the endpoints by namespace/name; metadata has none
}

func startInformers(config *rest.Config) (informers, error) {
	running := informers{}
	for name, contentType := range map[string]string{"protobuf": "application/vnd.kubernetes.protobuf", "json": "application/json"} {
		c, err := newTypedClient(config, contentType)
		if err != nil {
			return nil, err
		}
		lw := cache.NewListWatchFromClient(c, "endpointslices", metav1.NamespaceAll, fields.Everything())
		running[name] = cache.NewSharedInformer(lw, &discoveryv1.EndpointSlice{}, 0)
	}
	resource := discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make dynamic client: %w", err)
	}
	running["dynamic"] = cache.NewSharedInformer(&cache.ListWatch{
		ListFunc: func(o metav1.ListOptions) (runtime.Object, error) {
			return d.Resource(resource).List(context.Background(), o)
		},
		WatchFunc: func(o metav1.ListOptions) (watch.Interface, error) {
			return d.Resource(resource).Watch(context.Background(), o)
		},
	}, &unstructured.Unstructured{}, 0)
	m, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make metadata client: %w", err)
	}
	running["metadata"] = cache.NewSharedInformer(&cache.ListWatch{
		ListFunc: func(o metav1.ListOptions) (runtime.Object, error) {
			return m.Resource(resource).List(context.Background(), o)
		},
		WatchFunc: func(o metav1.ListOptions) (watch.Interface, error) {
			return m.Resource(resource).Watch(context.Background(), o)
		},
	}, &metav1.PartialObjectMetadata{}, 0)
	for _, i := range running {
		go i.Run(make(chan struct{}))
	}
	return running, nil
}

// newTypedClient returns a client like those of package kubernetes, of which only one kind is compiled.
func newTypedClient(config *rest.Config, contentType string) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := discoveryv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	metav1.AddToGroupVersion(scheme, discoveryv1.SchemeGroupVersion)
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion = "/apis", &discoveryv1.SchemeGroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = contentType, contentType
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make typed client: %w", err)
	}
	return client, nil
}

func (running informers) states() map[string]state {
	out := make(map[string]state, len(running))
	for name, i := range running {
		s := state{Synced: i.HasSynced(), Version: i.LastSyncResourceVersion(), Slices: map[string][]string{}}
		for _, o := range i.GetStore().List() {
			key, nodes := describeSlice(o)
			s.Slices[key] = nodes
		}
		out[name] = s
	}
	return out
}

// describeSlice returns the key of a slice, and the nodes of its endpoints.
func describeSlice(object any) (key string, nodes []string) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return "?", []string{err.Error()}
	}
	key = accessor.GetNamespace() + "/" + accessor.GetName()
	switch s := object.(type) {
	case *discoveryv1.EndpointSlice:
		for i := range s.Endpoints {
			if node := s.Endpoints[i].NodeName; node != nil {
				nodes = append(nodes, *node)
			}
		}
	case *unstructured.Unstructured:
		endpoints, _, _ := unstructured.NestedSlice(s.Object, "endpoints")
		for _, e := range endpoints {
			if node, ok := e.(map[string]any)["nodeName"].(string); ok {
				nodes = append(nodes, strings.Clone(node))
			}
		}
	}
	sort.Strings(nodes)
	return key, nodes
}
