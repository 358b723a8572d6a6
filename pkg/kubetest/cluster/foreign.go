package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/pkg/kubetest/clusterapi"
)

// foreignLock allows one test at a time in the cluster of KubeconfigEnv: tests install into the same namespaces.
var foreignLock sync.Mutex //nolint:gochecknoglobals // the process has only one such cluster

// foreign connects to a cluster that this package did not start. It runs one kubectl port-forward for each target.
type foreign struct {
	kubectl func(ctx context.Context, args ...string) *exec.Cmd

	mu        sync.Mutex
	forwards  map[string]*forward // by target
	listeners []net.Listener
}

// forward is a running kubectl port-forward.
type forward struct {
	cmd     *exec.Cmd
	address string
	ended   chan struct{}
}

// attach returns the cluster of a kubeconfig, with a listener on this machine for each published target.
func attach(kubeconfig, dir string, publish []clusterapi.Publish) (*Cluster, error) {
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
	c.foreign = &foreign{forwards: map[string]*forward{}, kubectl: func(ctx context.Context, args ...string) *exec.Cmd {
		return c.command(ctx, "kubectl", args)
	}}
	for _, p := range publish {
		address, err := c.foreign.publish(p)
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
	c, err := attach(kubeconfig, cfg.Dir, cfg.Publish)
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
			c.Keep(tb)
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
	conn, err := c.foreign.dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s in the cluster: %w", addr, err)
	}
	return conn, nil
}

// publish forwards the connections of a listener to an address inside the cluster.
func (f *foreign) publish(p clusterapi.Publish) (string, error) {
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
			go f.relay(conn, p.Target)
		}
	}()
	return listener.Addr().String(), nil
}

// relay copies in both directions until both sides have ended. The client of a target without a server gets a closed
// connection.
func (f *foreign) relay(conn net.Conn, target string) {
	defer conn.Close()
	to, err := f.dial(context.Background(), target)
	if err != nil {
		return
	}
	defer to.Close()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{conn, to}, {to, conn}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // an error ends the copy like the end of the data
			if tcp, ok := way[0].(*net.TCPConn); ok {
				_ = tcp.CloseWrite()
			}
		})
	}
	both.Wait()
}

func (f *foreign) dial(ctx context.Context, target string) (net.Conn, error) {
	address, err := f.forwardTo(ctx, target)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// forwardTo returns the local address of a target. One kubectl forwards it during the life of its pod.
func (f *foreign) forwardTo(ctx context.Context, target string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if running := f.forwards[target]; running != nil {
		select {
		case <-running.ended:
		default:
			return running.address, nil
		}
	}
	args, err := f.resource(ctx, target)
	if err != nil {
		return "", err
	}
	made, err := startForward(f.kubectl(context.Background(), append([]string{"port-forward", "--address=127.0.0.1"}, args...)...))
	if err != nil {
		return "", err
	}
	f.forwards[target] = made
	return made.address, nil
}

// resource returns the name of a target for kubectl port-forward.
func (f *foreign) resource(ctx context.Context, target string) ([]string, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) == nil {
		name, namespace, ok := strings.Cut(host, ".")
		if !ok {
			return nil, fmt.Errorf("%q is neither service.namespace nor the address of a pod", host)
		}
		return []string{"--namespace=" + namespace, "service/" + name, ":" + port}, nil
	}
	selector := fields.AndSelectors(fields.OneTermEqualSelector("status.podIP", host), fields.OneTermEqualSelector("status.phase", "Running"))
	out, err := f.kubectl(ctx, "get", "pods", "--all-namespaces", "--field-selector="+selector.String(),
		"--output=jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}\n{end}").Output()
	if err != nil {
		return nil, fmt.Errorf("find the pod: %w", err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	namespace, name, ok := strings.Cut(line, " ")
	if !ok {
		return nil, errors.New("no running pod has this address")
	}
	return []string{"--namespace=" + namespace, "pod/" + name, ":" + port}, nil
}

// startForward starts a kubectl port-forward and returns when it listens.
func startForward(cmd *exec.Cmd) (*forward, error) {
	var failure transcript
	cmd.Stderr = &failure
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start kubectl port-forward: %w", err)
	}
	made := &forward{cmd: cmd, ended: make(chan struct{})}
	r := bufio.NewReader(stdout)
	line, err := r.ReadString('\n') // Forwarding from 127.0.0.1:12345 -> 8080
	go func() {
		_, _ = io.Copy(io.Discard, r)
		_ = cmd.Wait() // a forward ends with its pod
		close(made.ended)
	}()
	words := strings.Fields(line)
	if err != nil || len(words) < 3 {
		made.stop()
		return nil, fmt.Errorf("kubectl port-forward: %s", failure.lastLine())
	}
	made.address = words[2]
	return made, nil
}

func (f *forward) stop() {
	_ = f.cmd.Process.Kill()
	<-f.ended
}

func (f *foreign) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.listeners {
		_ = l.Close()
	}
	for _, running := range f.forwards {
		running.stop()
	}
}
