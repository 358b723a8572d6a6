package httpserver

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Serve serves the connections of a listener until ctx is canceled, then waits for running requests, but not longer than drain. It serves
// TLS if the server has a TLSConfig, which contains the certificate. It returns an error if the server ends before.
func Serve(ctx context.Context, server *http.Server, l net.Listener, drain time.Duration) error {
	served := make(chan error, 1)
	go func() {
		if server.TLSConfig == nil {
			served <- server.Serve(l)
		} else {
			served <- server.ServeTLS(l, "", "")
		}
	}()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	// ctx is canceled, so Shutdown needs a context with a timeout of its own.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if server.Shutdown(bounded) != nil {
		// Requests are still running after the timeout: close their connections.
		_ = server.Close()
	}
	<-served
	return nil
}
