package ingress_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/echo"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest/cluster"
)

const (
	tag    = "race"
	server = "a" // the echo server
	other  = "b" // another

	// Traefik takes what is applied within two seconds.
	settle = 30 * time.Second
	tick   = 100 * time.Millisecond

	traefikClass = stack.Traefik
	nginxClass   = stack.TraefikNginxClass

	// The prefixes of annotations.
	traefikPrefix = "traefik.ingress.kubernetes.io/"
	nginxPrefix   = "nginx.ingress.kubernetes.io/"
)

// world is a cluster with a data plane in front of echo servers.
type world struct {
	cluster *cluster.Cluster
	client  *http.Client
	base    string
}

func newWorld(c *cluster.Cluster, address string) *world {
	return &world{cluster: c, base: "http://" + address, client: &http.Client{
		Transport:     &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// question is a request; GET, and POST with a body.
type question struct {
	host, target string
	body         io.Reader
}

// reply is what came back.
type reply struct {
	status int
	header http.Header
	body   string
	echo   echo.Answer // of a server that was reached
}

// String is what the server got to see, or the status.
func (r reply) String() string {
	switch {
	case r.status != http.StatusOK:
		return strconv.Itoa(r.status)
	case r.echo.Query != "":
		return r.echo.Path + "?" + r.echo.Query
	}
	return r.echo.Path
}

// send returns an answer whose body has not been read.
func (w *world) send(ctx context.Context, q question) (*http.Response, error) {
	method := http.MethodGet
	if q.body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, w.base+q.target, q.body)
	if err != nil {
		return nil, err
	}
	req.Host = q.host
	return w.client.Do(req)
}

// ask returns a whole answer; with an error what there is of it.
func (w *world) ask(ctx context.Context, q question) (reply, error) {
	resp, err := w.send(ctx, q)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	r := reply{status: resp.StatusCode, header: resp.Header, body: string(raw)}
	if err == nil && resp.Header.Get("Content-Type") == "application/json" {
		err = json.Unmarshal(raw, &r.echo)
	}
	return r, err
}

// asked is what became of a question.
type asked struct {
	reply
	err  error
	took time.Duration
}

// askAll asks all at once, as each may take its time.
func (w *world) askAll(ctx context.Context, questions []question) []asked {
	out := make([]asked, len(questions))
	var wg sync.WaitGroup
	for i, q := range questions {
		wg.Go(func() {
			begun := time.Now()
			out[i].reply, out[i].err = w.ask(ctx, q)
			out[i].took = time.Since(begun)
		})
	}
	wg.Wait()
	return out
}

// get asks, for what needs nothing but a path.
func (w *world) get(t *testing.T, host, target string) reply {
	t.Helper()
	r, err := w.ask(t.Context(), question{host: host, target: target})
	require.NoError(t, err)
	return r
}

// await asks until the answer is as it is to be.
func (w *world) await(t *testing.T, host, target, want string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		r, err := w.ask(t.Context(), question{host: host, target: target})
		require.NoError(collect, err)
		require.Equal(collect, want, r.String(), "%s%s", host, target)
	}, settle, tick)
}

// apply applies a file of testdata.
func (w *world) apply(t *testing.T, name string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	require.NoError(t, w.cluster.Apply(t.Context(), string(raw)))
}

// ingress is one with a single path. Its host is its name and .test, unless it has another.
type ingress struct {
	name, class, host string
	path              string // "" is /
	pathType          networkingv1.PathType
	service           string // "" is the echo server
	annotations       map[string]string
	tls               bool
}

func (w *world) create(t *testing.T, in ingress) {
	t.Helper()
	host, path := cmp.Or(in.host, in.name+".test"), cmp.Or(in.path, "/")
	pathType, service := cmp.Or(in.pathType, networkingv1.PathTypePrefix), cmp.Or(in.service, server)
	object := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: in.name, Annotations: in.annotations}, Spec: networkingv1.IngressSpec{
		IngressClassName: &in.class,
		Rules: []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: path, PathType: &pathType, Backend: networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: service, Port: networkingv1.ServiceBackendPort{Number: 80}}}}}}}}},
	}}
	if in.tls {
		object.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{host}}}
	}
	_, err := w.cluster.Clientset().NetworkingV1().Ingresses(metav1.NamespaceDefault).Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
}

// settled returns when Traefik has seen all Ingresses of a class that were created before.
func (w *world) settled(t *testing.T, class string) {
	t.Helper()
	name := fmt.Sprintf("settled-%d", time.Now().UnixNano())
	w.create(t, ingress{name: name, class: class})
	w.await(t, name+".test", "/", "/")
}

// nginx are annotations of ingress-nginx, without their prefix.
func nginx(annotations map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range annotations {
		out[nginxPrefix+name] = value
	}
	return out
}

// loadBalancer are the addresses that an Ingress says it has.
func (w *world) loadBalancer(ctx context.Context, name string) ([]string, error) {
	object, err := w.cluster.Clientset().NetworkingV1().Ingresses(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, at := range object.Status.LoadBalancer.Ingress {
		out = append(out, at.IP+at.Hostname)
	}
	return out, nil
}
