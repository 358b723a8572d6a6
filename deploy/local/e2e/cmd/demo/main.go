// demo sends chat completions through a Gateway, an HTTPRoute and an InferencePool to simulated model servers in an embedded
// Kubernetes. It prints a table of their destinations, and runs the stack until it is interrupted. `make demo-kubernetes`
// runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

type options struct {
	gateway     string
	nodes       int
	servers     int
	requests    int
	concurrency int
	tokens      int
	once        bool
}

func main() {
	var o options
	pflag.StringVar(&o.gateway, "gateway", "127.0.0.1:8080", "host address of the gateway")
	pflag.IntVar(&o.nodes, "nodes", 1, "nodes of the cluster")
	pflag.IntVar(&o.servers, "servers", 3, "model servers")
	pflag.IntVar(&o.requests, "requests", 200, "chat completions to send")
	pflag.IntVar(&o.concurrency, "concurrency", 24, "chat completions at a time")
	pflag.IntVar(&o.tokens, "tokens", 64, "tokens of each answer")
	pflag.BoolVar(&o.once, "once", false, "end after the table")
	pflag.Parse()
	if pflag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unexpected arguments %q: see demo --help\n", pflag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	root, err := cluster.Repository()
	if err != nil {
		return err
	}
	started := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(out, "%6.2fs  %s\n", time.Since(started).Seconds(), fmt.Sprintf(format, args...))
	}
	dir := filepath.Join(root, ".local", "demo")
	cfg := clusterapi.Config{Dir: dir, Nodes: make([]clusterapi.Node, o.nodes)}
	stack.PublishGateway(o.gateway)(&cfg)
	say("starting Kubernetes: etcd, API server, controller manager, scheduler, %d node(s)", o.nodes)
	c, err := cluster.Launch(ctx, cluster.Params{Config: cfg, Progress: out})
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	defer c.Stop()
	if err := show(ctx, c, o, say, out); err != nil {
		return errors.Join(err, stack.SaveFailed(ctx, c, "demo"))
	}
	if o.once {
		return nil
	}
	fmt.Fprintf(out, `
The stack stays up until Ctrl-C. In another terminal:
  export KUBECONFIG=%s
  %s kubectl get pods -A -o wide
  curl -N http://%s/v1/chat/completions -H 'Content-Type: application/json' \
    -d '{"model":"%s","stream":true,"max_tokens":20,"messages":[{"role":"user","content":"Hello"}]}'
`, c.Kubeconfig, filepath.Join(root, "bin", "localkube"), o.gateway, stack.Model)
	select {
	case <-ctx.Done():
		fmt.Fprintln(out, "\nstopping")
		return nil
	case <-c.Ended():
		return errors.New("the cluster has ended")
	}
}

// show installs the stack, sends the requests and prints the table.
func show(ctx context.Context, c *cluster.Cluster, o options, say func(string, ...any), out io.Writer) error {
	say("installing Envoy Gateway, Envoy AI Gateway, the endpoint picker and %d model servers", o.servers)
	s, err := stack.InstallGateway(ctx, c, stack.Options{Tag: "dev", Servers: o.servers})
	if err != nil {
		return err
	}
	if err := s.WaitGateway(ctx); err != nil {
		return err
	}
	objects, err := c.Kubectl(ctx, "get", "gateways.gateway.networking.k8s.io,httproutes,inferencepools")
	if err != nil {
		return err
	}
	say("ready; the manifests of a user are %s, %s and %s in %s\n\n%s", stack.GatewayFile, stack.RouteFile, stack.PoolFile, stack.GatewayExamples, objects)
	say("sending %d chat completions of %d tokens, %d at a time, to %s", o.requests, o.tokens, o.concurrency, s.Gateway())
	report, err := chatload.Run(ctx, chatload.Options{
		BaseURL: s.Gateway(), Model: stack.Model, Requests: o.requests, Concurrency: o.concurrency, MaxTokens: o.tokens, IgnoreEOS: true,
		KeepAlive: true, RequirePicked: true, Prompts: chatload.Prompts{Groups: 8, SharedTokens: 512, Seed: 1},
	})
	if err != nil {
		return err
	}
	say("done\n")
	if err := report.WriteTable(out); err != nil {
		return err
	}
	if n := report.Failed(); n > 0 {
		return fmt.Errorf("%d of %d requests failed", n, report.Total.Requests)
	}
	return nil
}
