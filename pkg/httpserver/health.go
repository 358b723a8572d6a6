package httpserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// probeTimeout limits one check. The probe of the kubelet times out earlier, after 1 s by default.
const probeTimeout = 5 * time.Second

// Check is one condition for liveness or readiness.
type Check struct {
	Name string
	// Probe returns an error if the check fails. It is called for each request, also concurrently.
	Probe func(ctx context.Context) error
}

func healthMux(p Params) *http.ServeMux {
	mux := http.NewServeMux()
	for path, checks := range map[string][]Check{"/healthz": p.Live, "/readyz": p.Ready} {
		mux.Handle("GET "+path, checkHandler(checks))
		for _, c := range checks {
			mux.Handle("GET "+path+"/"+c.Name, checkHandler([]Check{c}))
		}
	}
	return mux
}

// checkHandler responds with 200 and "ok" if all checks pass, otherwise with 503 and a line for each failed check. With
// ?verbose, it also writes a line for each passed check.
func checkHandler(checks []Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusOK
		var body strings.Builder
		for _, c := range checks {
			err := c.runCheck(r.Context())
			if err != nil {
				status = http.StatusServiceUnavailable
				fmt.Fprintf(&body, "[-] %s: %s\n", c.Name, oneLine(err))
			} else if r.URL.Query().Has("verbose") {
				fmt.Fprintf(&body, "[+] %s\n", c.Name)
			}
		}
		if status == http.StatusOK {
			body.WriteString("ok\n")
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		// A write error means that the client has disconnected.
		_, _ = w.Write([]byte(body.String()))
	})
}

func (c Check) runCheck(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return c.Probe(ctx)
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
