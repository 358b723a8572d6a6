package holds

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/promclient"
)

const (
	dialTimeout   = 5 * time.Second
	headerTimeout = 10 * time.Second
	scrapeTimeout = 5 * time.Second
	maxHeaders    = 64 << 10
)

// Options say how pickers are asked.
//
//	picker      authorities    token
//	http        any            not sent: others on the network could read it
//	https       none           not sent: whoever may write a Service could get it. Any certificate is accepted
//	https       a file         sent to whoever has a certificate of an authority for SERVICE.NAMESPACE.svc
//
// Pickers are untrusted: a picker affects only models of its own namespace.
type Options struct {
	TokenFile string // empty: no token
	CAFile    string // of the authorities of pickers
	// Dial connects to an address. Nil: by TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// newClient returns a client of a picker. It sends nothing.
func (o *Options) newClient(p picker) (*http.Client, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: p.service + "." + p.namespace + ".svc"}
	if o.CAFile == "" {
		settings.InsecureSkipVerify = true // it gets no token, and what it says counts for its own namespace
	} else {
		var err error
		if settings.RootCAs, err = promclient.ReadAuthorities(o.CAFile, "pickers", "--holds-ca-file"); err != nil {
			return nil, err
		}
	}
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{ // without a proxy: these are pods
			DialContext: dial, TLSClientConfig: settings, TLSHandshakeTimeout: headerTimeout, ResponseHeaderTimeout: headerTimeout,
			MaxResponseHeaderBytes: maxHeaders, MaxConnsPerHost: 1, DisableCompression: true,
		},
	}, nil
}

// newRequest returns a request to a picker.
func (o *Options) newRequest(ctx context.Context, p picker, path string) (*http.Request, error) {
	scheme := "http"
	if p.tls {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+p.address+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	if p.tls && o.CAFile != "" && o.TokenFile != "" {
		text, err := promclient.ReadSmallFile(o.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read the token for pickers: %w: check --holds-token-file", err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(text)))
	}
	return request, nil
}
