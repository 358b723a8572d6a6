// webhook is a validating admission webhook for tests: it refuses every object that carries the label
// fairlead.dev/refuse, with the label's value as the reason, and admits all others.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

func main() {
	address := pflag.String("address", ":8443", "address of the HTTPS server")
	certificate := pflag.String("cert", "/certs/tls.crt", "file with the certificate")
	key := pflag.String("key", "/certs/tls.key", "file with its key")
	pflag.Parse()
	if err := run(*address, *certificate, *key); err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
}

func run(address, certificate, key string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /validate", review)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		stopped <- server.Shutdown(context.WithoutCancel(ctx))
	}()
	if err := server.ListenAndServeTLS(certificate, key); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}
