package httpserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// probeTimeout bounds one check; the kubelet has given up long before.
const probeTimeout = 5 * time.Second

// Check is one condition of being live or ready.
type Check struct {
	Name string
	// Probe returns why the condition does not hold. It is called for each request and for several at a time.
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

// checkHandler answers 200 and "ok" when all checks hold, else 503 and a line for each that does not; with ?verbose a
// line for each check.
func checkHandler(checks []Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusOK
		var body strings.Builder
		for _, c := range checks {
			err := c.run(r.Context())
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
		// A client that has gone does not need its answer.
		_, _ = w.Write([]byte(body.String()))
	})
}

func (c Check) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return c.Probe(ctx)
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
