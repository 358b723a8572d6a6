package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/pkg/kubetest/clusterapi"
)

// foreignLock allows one test at a time in the cluster of KubeconfigEnv: tests install into the same namespaces.
var foreignLock sync.Mutex //nolint:gochecknoglobals // the process has only one such cluster

// foreign connects to a cluster that this package did not start.
type foreign struct {
	*forwarder

	mu        sync.Mutex
	listeners []net.Listener
	relayed   map[net.Conn]struct{} // from clients of the listeners
}

// attachForeign returns the cluster of a kubeconfig, with a listener on this machine for each published target.
func attachForeign(kubeconfig, dir string, publish []clusterapi.Publish) (*Cluster, error) {
	binary, err := FindBinary() // for its kubectl and helm
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", KubeconfigEnv, err)
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{} // no client-side rate limit
	c := &Cluster{
		Client: clusterapi.NewClient(dir), Ready: clusterapi.Ready{Dir: dir, Kubeconfig: kubeconfig, APIAddress: config.Host},
		binary: binary, rest: config, ended: make(chan struct{}), log: &transcript{},
	}
	c.foreign = &foreign{forwarder: newForwarder(config, c.Clientset()), relayed: map[net.Conn]struct{}{}}
	for _, p := range publish {
		address, err := c.foreign.publishAddress(p)
		if err != nil {
			c.foreign.close()
			return nil, err
		}
		c.Published = append(c.Published, address)
	}
	return c, nil
}

// startForeign is Start for the cluster of KubeconfigEnv. When the test ends, it deletes the objects that the test created.
func startForeign(tb testing.TB, kubeconfig string, cfg *clusterapi.Config) *Cluster {
	tb.Helper()
	if needsOwn(cfg) {
		tb.Skipf("needs settings of its own: not on the cluster of %s", KubeconfigEnv)
	}
	foreignLock.Lock()
	tb.Cleanup(foreignLock.Unlock)
	c, err := attachForeign(kubeconfig, cfg.Dir, cfg.Publish)
	if err != nil {
		tb.Fatalf("cluster: %v", err)
	}
	tb.Cleanup(c.foreign.close)
	before, err := listObjects(tb.Context(), c.rest)
	if err != nil {
		tb.Fatalf("cluster: list objects before the test: %v", err)
	}
	nodes := 0
	for _, o := range before {
		if o.resource.Resource == "nodes" {
			nodes++
		}
	}
	if nodes < len(cfg.Nodes) {
		tb.Skipf("needs %d nodes: the cluster of %s has %d", len(cfg.Nodes), KubeconfigEnv, nodes)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			c.SaveArtifacts(tb)
		}
		if err := deleteOthers(context.WithoutCancel(tb.Context()), c.rest, before, finalizerTimeout); err != nil {
			tb.Errorf("cluster: delete the objects of the test: %v", err)
		}
	})
	return c
}

// needsOwn reports whether a configuration has settings that work only in a cluster of this package. Tests that read the
// audit log declare it by NeedsOwn.
func needsOwn(cfg *clusterapi.Config) bool {
	other := *cfg
	other.Dir, other.Publish, other.Nodes, other.Audit = "", nil, nil, false
	special := func(n clusterapi.Node) bool { return !reflect.DeepEqual(n, clusterapi.Node{}) }
	return !reflect.DeepEqual(other, clusterapi.Config{}) || slices.ContainsFunc(cfg.Nodes, special)
}

// NeedsOwn skips a test in a cluster that this package did not start. why names the effect of the test on the cluster.
func (c *Cluster) NeedsOwn(tb testing.TB, why string) {
	tb.Helper()
	if c.foreign != nil {
		tb.Skipf("%s: not on the cluster of %s", why, KubeconfigEnv)
	}
}

// Dial connects to an address inside the cluster: see clusterapi.Client. In a cluster that this package did not start, the
// address is service.namespace:port, or a pod's.
func (c *Cluster) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if c.foreign == nil {
		return c.Client.Dial(ctx, addr)
	}
	conn, err := c.foreign.dialService(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s in the cluster: %w", addr, err)
	}
	return conn, nil
}

// publishAddress forwards the connections of a listener to an address inside the cluster.
func (f *foreign) publishAddress(p clusterapi.Publish) (string, error) {
	listener, err := net.Listen("tcp", p.Host)
	if err != nil {
		return "", err
	}
	f.listeners = append(f.listeners, listener)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // close closed it
			}
			go f.relayConnection(conn, p.Target)
		}
	}()
	return listener.Addr().String(), nil
}

// relayConnection copies in both directions until both sides have ended. The client of a target without a server gets a closed
// connection.
func (f *foreign) relayConnection(conn net.Conn, target string) {
	f.mu.Lock()
	f.relayed[conn] = struct{}{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.relayed, conn)
		_ = conn.Close()
	}()
	to, err := f.dialService(context.Background(), target)
	if err != nil {
		return
	}
	defer to.Close()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{conn, to}, {to, conn}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // an error ends the copy like the end of the data
			if half, ok := way[0].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
}

// close closes the listeners and the connections of their clients.
func (f *foreign) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.listeners {
		_ = l.Close()
	}
	for conn := range f.relayed {
		_ = conn.Close()
	}
	f.forwarder.close()
}
