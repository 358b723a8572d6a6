// Echo answers each request with a description of the request: see package echo.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/pflag"

	"fairlead.dev/deploy/emulators/echo"
	"fairlead.dev/deploy/emulators/internal/cli"
)

func main() { cli.Main("echo", run) }

func run(ctx context.Context, args []string) error {
	fs := pflag.NewFlagSet("echo", pflag.ContinueOnError)
	port := fs.Int("port", 8000, "Port of HTTP/1.1, and of HTTP/2 without TLS.")
	name := fs.String("name", hostName(), "Name of the server in its answers.")
	if done, err := cli.Parse(fs, args, os.Stdout); done {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", fmt.Sprintf(":%d", *port))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return serve(ctx, l, echo.New(*name))
}

// hostName returns the host name, which is the pod's name in a cluster.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "echo"
	}
	return name
}

// serve accepts requests until ctx ends, then finishes the running requests without a time limit.
func serve(ctx context.Context, l net.Listener, handler http.Handler) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: handler, Protocols: protocols, ReadHeaderTimeout: time.Minute}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() { stopped <- server.Shutdown(context.WithoutCancel(ctx)) })
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return <-stopped
}
