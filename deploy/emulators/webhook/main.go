// Webhook is a validating admission webhook for tests. It has two paths:
//
//	/validate        refuses every object with the label fairlead.dev/refuse; the value of the label is the reason
//	/ingress-nginx   refuses the same Ingresses as the webhook of ingress-nginx: see package ingressnginx
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
	"k8s.io/client-go/rest"

	"fairlead.dev/deploy/emulators/ingressnginx"
)

type options struct {
	address, certificate, key string
	ingressNginx              bool
}

func main() {
	var o options
	pflag.StringVar(&o.address, "address", ":8443", "address of the HTTPS server")
	pflag.StringVar(&o.certificate, "cert", "/certs/tls.crt", "file with the certificate")
	pflag.StringVar(&o.key, "key", "/certs/tls.key", "file with the private key of the certificate")
	pflag.BoolVar(&o.ingressNginx, "ingress-nginx", false, "serve /ingress-nginx; the pod's ServiceAccount must be allowed to list Ingresses and IngressClasses")
	pflag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
}

func (o options) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /validate", answer(refuseLabeled, http.StatusForbidden))
	if o.ingressNginx {
		review, err := newIngressReview()
		if err != nil {
			return err
		}
		mux.HandleFunc("POST /ingress-nginx", answer(review, http.StatusBadRequest)) // like ingress-nginx
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	server := &http.Server{Addr: o.address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		stopped <- server.Shutdown(context.WithoutCancel(ctx))
	}()
	if err := server.ListenAndServeTLS(o.certificate, o.key); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// newIngressReview returns the review of ingress-nginx. It reads from the API server of the pod's cluster.
func newIngressReview() (review, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("configure client: %w", err)
	}
	reviewer, err := ingressnginx.NewReviewer(config)
	if err != nil {
		return nil, err
	}
	return reviewer.Review, nil
}
