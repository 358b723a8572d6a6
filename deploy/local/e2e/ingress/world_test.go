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
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

const (
	tag    = "race"
	server = "a" // the echo server
	other  = "b" // another

	tick = 100 * time.Millisecond

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

// question is a request.
type question struct {
	method       string // empty: GET, or POST with a body
	host, target string
	header       map[string]string
	body         io.Reader
}

// reply is an answer.
type reply struct {
	status int
	header http.Header
	body   string
	echo   echo.Answer // of the server, if one was reached
}

// withServer returns the name of the server and the path that it saw, or the status.
func (r reply) withServer() string {
	if r.status != http.StatusOK {
		return r.String()
	}
	return r.echo.Name + " " + r.String()
}

// String returns the path that the server saw, or the status.
func (r reply) String() string {
	switch {
	case r.status != http.StatusOK:
		return strconv.Itoa(r.status)
	case r.echo.Query != "":
		return r.echo.Path + "?" + r.echo.Query
	}
	return r.echo.Path
}

// send sends a request and returns an answer whose body is unread.
func (w *world) send(ctx context.Context, q question) (*http.Response, error) {
	method := q.method
	switch {
	case method != "":
	case q.body != nil:
		method = http.MethodPost
	default:
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, w.base+q.target, q.body)
	if err != nil {
		return nil, err
	}
	req.Host = q.host
	for name, value := range q.header {
		req.Header.Set(name, value)
	}
	return w.client.Do(req)
}

// ask sends a request and returns the whole answer, or the part of it that came before an error.
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

// attempt limits a request that is repeated until it is answered.
const attempt = 10 * time.Second

// try is ask for a request that the caller repeats. It gives up after a while: a connection to the address of a pod that is gone gets
// no answer at all.
func (w *world) try(ctx context.Context, q question) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	return w.ask(ctx, q)
}

// asked is a reply, or an error, and the time that it took.
type asked struct {
	reply
	err  error
	took time.Duration
}

// askAll sends all requests at the same time.
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

// get sends a GET request.
func (w *world) get(t *testing.T, host, target string) reply {
	t.Helper()
	r, err := w.ask(t.Context(), question{host: host, target: target})
	require.NoError(t, err)
	return r
}

// await sends GET requests until the answer is as expected.
func (w *world) await(t *testing.T, host, target, want string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		r, err := w.try(t.Context(), question{host: host, target: target})
		require.NoError(collect, err)
		require.Equal(collect, want, r.String(), "%s%s", host, target)
	}, kubetest.Patience, tick)
}

// apply applies a file of testdata.
func (w *world) apply(t *testing.T, name string) {
	t.Helper()
	apply(t, w.cluster, name)
}

func apply(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), string(raw)))
}

// ingress is an Ingress with one path. By default its host is its name with the suffix .test.
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

// settled waits until Traefik serves all Ingresses of a class that were created before.
func (w *world) settled(t *testing.T, class string) {
	t.Helper()
	name := fmt.Sprintf("settled-%d", time.Now().UnixNano())
	w.create(t, ingress{name: name, class: class})
	w.await(t, name+".test", "/", "/")
}

// nginx returns annotations of ingress-nginx, given without their prefix.
func nginx(annotations map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range annotations {
		out[nginxPrefix+name] = value
	}
	return out
}

// loadBalancer returns the addresses in the status of an Ingress.
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
