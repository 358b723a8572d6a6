// Echo answers with what it was asked: see package echo.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"fairlead.dev/deploy/emulators/echo"
	"fairlead.dev/pkg/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	fs := pflag.NewFlagSet("echo", pflag.ContinueOnError)
	port := fs.Int("port", 8000, "Port to listen on; HTTP/1.1, and HTTP/2 without TLS.")
	name := fs.String("name", hostName(), "Who it says it is.")
	showVersion := fs.Bool("version", false, "Print the version and exit.")
	switch err := fs.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return nil
	case err != nil:
		return fmt.Errorf("parse flags: %w", err)
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case *showVersion:
		fmt.Println(version.String())
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", fmt.Sprintf(":%d", *port))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return serve(ctx, l, echo.New(*name))
}

// hostName is a pod's name in a cluster.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "echo"
	}
	return name
}

// serve ends when ctx has ended and what was asked before is answered, however long that takes.
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
