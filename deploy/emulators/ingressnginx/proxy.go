package ingressnginx

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const webhookName = "validate.nginx.ingress.kubernetes.io"

// Proxy forwards requests to an API server, and adds the admission webhook. Clients need no credentials: the Proxy has its own.
type Proxy struct {
	review *Reviewer
	server *http.Server
	listen net.Listener
	api    *httputil.ReverseProxy
	write  sync.Mutex // makes the check of an Ingress and its write atomic
}

// New returns a Proxy that listens on the loopback interface. Run serves requests.
func New(config *rest.Config) (*Proxy, error) {
	review, err := NewReviewer(config)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("create transport: %w", err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("parse host of API server: %w", err)
	}
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	p := &Proxy{review: review, listen: listen}
	p.api = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, // watches
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: 5 * time.Second}
	return p, nil
}

// WriteKubeconfig writes a kubeconfig file for clients of the Proxy.
func (p *Proxy) WriteKubeconfig(path string) error {
	const name = "ingress-nginx"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: "http://" + p.listen.Addr().String()}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// Run serves requests until ctx ends.
func (p *Proxy) Run(ctx context.Context) error {
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		stopped <- p.server.Close() // Shutdown would wait for watches, which do not end
	}()
	if err := p.server.Serve(p.listen); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return <-stopped
}

// ingresses matches the paths of the writes that the webhook reviews.
var ingresses = regexp.MustCompile(`^/apis/networking\.k8s\.io/v1/namespaces/[^/]+/ingresses(/[^/]+)?$`)

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch}, r.Method) || !ingresses.MatchString(r.URL.Path) {
		p.api.ServeHTTP(w, r)
		return
	}
	p.write.Lock()
	defer p.write.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "cannot read the body of the request", http.StatusBadRequest)
		return
	}
	result := p.dryRun(r, body)
	if result.Code/100 == 2 {
		if err := p.review.Review(r.Context(), result.Body.Bytes()); err != nil {
			refuse(w, err)
			return
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.api.ServeHTTP(w, r)
}

// dryRun returns the answer of the API server to the request as a dry run.
func (p *Proxy) dryRun(r *http.Request, body []byte) *httptest.ResponseRecorder {
	dry := r.Clone(r.Context())
	query := dry.URL.Query()
	query.Set("dryRun", metav1.DryRunAll)
	dry.URL.RawQuery = query.Encode()
	dry.Body = io.NopCloser(bytes.NewReader(body))
	dry.Header.Set("Accept", "application/json")
	dry.Header.Del("Accept-Encoding")
	result := httptest.NewRecorder()
	p.api.ServeHTTP(result, dry)
	return result
}

// refuse answers like an API server whose webhook refuses an object.
func refuse(w http.ResponseWriter, err error) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusBadRequest,
		Reason: metav1.StatusReasonBadRequest, Message: fmt.Sprintf("admission webhook %q denied the request: %s", webhookName, err),
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(status) // fails only if the client has disconnected
}
