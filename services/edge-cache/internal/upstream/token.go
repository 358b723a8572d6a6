package upstream

import (
	"fmt"
	"net/http"
	"os"
	"strings"

	"k8s.io/client-go/transport"
)

// TokenFile returns a wrapper that sends the token in a file. It reads the file for each request, of which there are few: client-go's own
// wrapper uses a token for up to a minute after its replacement.
func TokenFile(path string) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper { return &tokenFile{path: path, next: next} }
}

type tokenFile struct {
	path string
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *tokenFile) RoundTrip(r *http.Request) (*http.Response, error) {
	raw, err := os.ReadFile(t.path)
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, fmt.Errorf("read token: %w", err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(raw)))
	return t.next.RoundTrip(r)
}
