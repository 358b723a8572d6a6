// Demo sends chat completions through Envoy and the endpoint picker to simulated model servers. All of them are plain processes on
// this machine. The demo prints the server of each request as a table, and keeps the processes running until it is interrupted.
// `make demo` runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/pflag"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/emulators/internal/cli"
)

const (
	localhost = "127.0.0.1"
	model     = "meta-llama/Llama-3.1-8B-Instruct"

	// startTimeout limits the time until all processes are ready. They need less than a second. Half of this limit is enough on
	// a busy machine; twice as long would only delay the error.
	startTimeout = 20 * time.Second
)

type options struct {
	bin, envoy, bootstrap string // files
	port                  int
	servers               int
	requests, concurrency int
	tokens                int
	once                  bool
	startTimeout          time.Duration
}

// The kernel kills the processes when the thread that started them ends. The main thread starts them and ends with the demo.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // only init certainly runs on the main thread

func main() { cli.Main("demo", run) }

func run(ctx context.Context, args []string) error {
	o := options{startTimeout: startTimeout}
	fs := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	fs.StringVar(&o.bin, "bin", "bin", "Folder with the programs endpoint-picker and modelserver.")
	fs.StringVar(&o.envoy, "envoy", "envoy", "Envoy program.")
	fs.StringVar(&o.bootstrap, "bootstrap", "deploy/examples/inference/envoy.yaml", "Manifest with the ConfigMap of Envoy's bootstrap.")
	fs.IntVar(&o.port, "port", 8080, "Port of the gateway on "+localhost+". 0: any free port.")
	fs.IntVar(&o.servers, "servers", 3, "Number of model servers.")
	fs.IntVar(&o.requests, "requests", 200, "Number of chat completions.")
	fs.IntVar(&o.concurrency, "concurrency", 24, "Number of concurrent chat completions.")
	fs.IntVar(&o.tokens, "tokens", 64, "Tokens of each answer.")
	fs.BoolVar(&o.once, "once", false, "End after the table.")
	if done, err := cli.Parse(fs, args, os.Stdout); done {
		return err
	}
	if err := portFree(o.port); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "fairlead-demo-")
	if err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := show(ctx, o, dir, os.Stdout); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// load returns the requests of the demo.
func (o *options) load(gateway string) chatload.Options {
	return chatload.Options{
		BaseURL: gateway, Model: model, Requests: o.requests, Concurrency: o.concurrency, MaxTokens: o.tokens, IgnoreEOS: true,
		KeepAlive: true, RequirePicked: true, Prompts: chatload.Prompts{Groups: 8, SharedTokens: 512, Seed: 1},
	}
}

// portFree returns an error if a port is in use.
func portFree(port int) error {
	l, err := net.Listen("tcp", address(port))
	if err != nil {
		return fmt.Errorf("port %d cannot be used, choose another with --port or make demo PORT=: %w", port, err)
	}
	return l.Close()
}

// show starts the processes, sends the requests, prints the table, and waits for an interrupt.
func show(ctx context.Context, o options, dir string, out io.Writer) error {
	started := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(out, "%6.2fs  %s\n", time.Since(started).Seconds(), fmt.Sprintf(format, args...))
	}
	say("starting %d simulated model servers, the endpoint picker and Envoy", o.servers)
	s, err := startStack(ctx, o, dir)
	defer s.stop()
	if err != nil {
		return err
	}
	gateway := "http://" + s.gateway
	say("ready; sending %d chat completions of %d tokens, %d at a time, to %s", o.requests, o.tokens, o.concurrency, gateway)
	report, err := chatload.Run(ctx, o.load(gateway))
	if err != nil {
		return fmt.Errorf("send requests: %w", err)
	}
	say("done\n")
	if err := report.WriteTable(out); err != nil {
		return fmt.Errorf("print table: %w", err)
	}
	if n := report.Failed(); n > 0 {
		return fmt.Errorf("%d of %d requests failed: see the logs:\n%s", n, report.Total.Requests, s.logs())
	}
	if o.once {
		return nil
	}
	fmt.Fprintf(out, `
The processes run until Ctrl-C. Send a request, or open the status page of the picker:
  curl -N %s/v1/chat/completions -H 'Content-Type: application/json' \
    -d '{"model":"%s","stream":true,"max_tokens":20,"messages":[{"role":"user","content":"Hello"}]}'
  http://%s/debug/pools.html
Logs are in %s.
The whole product in a Kubernetes cluster, with gateways and routes: make demo-kubernetes
`, gateway, model, s.metrics, filepath.Join(dir, "*.log"))
	select {
	case <-ctx.Done():
		fmt.Fprintln(out, "\nstopping")
		return nil
	case p := <-s.ended:
		return p.failure()
	}
}
