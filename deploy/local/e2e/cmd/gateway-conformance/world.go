package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

const (
	gatewayClass = "gateway-conformance"
	systemSpace  = "fairlead"
	// gatewayNamespace is the namespace of the suite's Gateways.
	gatewayNamespace = "gateway-conformance-infra"
	compartment      = "ocid1.compartment.oc1..conformance"

	// balancers is the number of load balancers. The suite has about twenty Gateways at a time, and the load balancer of one that is
	// deleted is not used again.
	balancers = 64

	tenancy, user, fingerprint, region = "ocid1.tenancy.oc1..conformance", "ocid1.user.oc1..conformance", "00:11:22", "us-ashburn-1"

	programLog = "program.log"

	readyTimeout = time.Minute
	stopTimeout  = 20 * time.Second
)

// Times of the emulator. The suite checks what happens, and not how fast: with the latencies of a tenancy, which are 3 s to 17 s, a
// change of a route takes four work requests and can exceed the 30 s that the suite waits.
const (
	latency     = 200 * time.Millisecond
	latencyTail = time.Second
	stale       = 100 * time.Millisecond
)

//go:embed objects.yaml
var objects string

// world is an API server, an emulator of load balancers, backends and the program.
type world struct {
	cluster *cluster.Cluster
	client  kubernetes.Interface
	dynamic dynamic.Interface
	pods    *pods
	oci     *ocilb.Emulator
	dir     string

	used    int // load balancers
	program *exec.Cmd
	ended   chan error // of the program
	stops   []func()

	mu     sync.Mutex
	failed error // first error of what runs beside the suite
}

// newWorld starts a world. Its program is ready.
func newWorld(ctx context.Context, o *options) (*world, error) {
	root, err := cluster.Repository()
	if err != nil {
		return nil, err
	}
	w := &world{dir: filepath.Join(root, ".local", "gateway-conformance"), ended: make(chan error, 1)}
	if err := w.start(ctx, o); err != nil {
		w.stop()
		return nil, err
	}
	go w.pods.run(ctx, w.fail)
	go w.assignBalancers(ctx)
	return w, nil
}

func (w *world) start(ctx context.Context, o *options) (err error) {
	if err := os.RemoveAll(w.dir); err != nil {
		return err
	}
	w.cluster, err = cluster.Launch(ctx,
		cluster.Params{Config: clusterapi.Config{Dir: filepath.Join(w.dir, "cluster"), ControlPlaneOnly: true}})
	if err != nil {
		return err
	}
	w.client = w.cluster.Clientset()
	if w.dynamic, err = dynamic.NewForConfig(w.cluster.RESTConfig()); err != nil {
		return err
	}
	w.pods = newPods(w.client)
	for _, step := range []func() error{
		func() error { return w.applyFiles(ctx, o.crds) },
		func() error { return w.startEmulator(ctx) },
		func() error { return w.cluster.Apply(ctx, w.objects()) },
		func() error { return w.startProgram(ctx, o) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// applyFiles applies files, and waits until the API server serves their kinds.
func (w *world) applyFiles(ctx context.Context, files []string) error {
	for _, file := range files {
		if _, err := w.cluster.Kubectl(ctx, "apply", "--server-side", "--filename", file); err != nil {
			return err
		}
	}
	_, err := w.cluster.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	return err
}

func balancerID(n int) string { return fmt.Sprintf("ocid1.loadbalancer.oc1.iad.conformance%02d", n) }

// balancerAddress is an address of the loopback interface: that of the Gateway, too.
func balancerAddress(n int) string { return fmt.Sprintf("127.0.77.%d", n+1) }

// startEmulator starts the emulator with all load balancers, and writes the key of the program.
func (w *world) startEmulator(ctx context.Context) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	if err := w.writeKey(key); err != nil {
		return err
	}
	options := ocilb.DefaultOptions()
	options.Keys = map[string]*rsa.PublicKey{tenancy + "/" + user + "/" + fingerprint: &key.PublicKey}
	options.Modes.Latency, options.Modes.LatencyTail = ocilb.Duration(latency), ocilb.Duration(latencyTail)
	options.Modes.Stale = ocilb.Duration(stale)
	options.Plane.Dial = w.pods.dial
	var lc net.ListenConfig
	options.Plane.Listen = func(address string, port int) (net.Listener, error) {
		return lc.Listen(context.WithoutCancel(ctx), "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	}
	w.oci = ocilb.New(options)
	for n := range balancers {
		w.oci.Create(balancerID(n), compartment, fmt.Sprintf("conformance-%d", n))
		if err := w.oci.Edit(balancerID(n), func(lb *ocilb.LoadBalancer) *ocilb.Error {
			lb.IPAddresses[0].IPAddress = balancerAddress(n)
			return nil
		}); err != nil {
			return err
		}
	}
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: w.oci, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	w.stops = append(w.stops, w.oci.Close, func() { _ = server.Close() })
	return os.WriteFile(w.endpointFile(), []byte("http://"+l.Addr().String()), 0o600)
}

func (w *world) endpointFile() string { return filepath.Join(w.dir, "endpoint") }

// writeKey writes the files of an API key.
func (w *world) writeKey(key *rsa.PrivateKey) error {
	dir := w.keyDirectory()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"tenancy": tenancy, "user": user, "region": region, "fingerprint": fingerprint,
		"key.pem": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) keyDirectory() string { return filepath.Join(w.dir, "key") }

// objects returns the objects of the administrator: the GatewayClass, the configuration of the program and a policy that gives each
// Gateway of the class the parameters of its name.
func (w *world) objects() string {
	var list strings.Builder
	for n := range balancers {
		fmt.Fprintf(&list, "\n    - id: %s\n      gateways: {namespaces: [%s]}", balancerID(n), gatewayNamespace)
	}
	return strings.NewReplacer("LOADBALANCERS", list.String(), "CLASS", gatewayClass, "SYSTEM", systemSpace).Replace(objects)
}

// startProgram starts the program, and waits until it is ready.
func (w *world) startProgram(ctx context.Context, o *options) error {
	endpoint, err := os.ReadFile(w.endpointFile())
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(o.out, programLog))
	if err != nil {
		return err
	}
	kubeconfig, err := w.grant(ctx)
	if err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + kubeconfig, "--config-map=" + systemSpace + "/backendset-syncer", "--leader-election-namespace=" + systemSpace,
		"--oci-auth=api-key", "--oci-key-directory=" + w.keyDirectory(), "--oci-endpoint=" + string(endpoint),
		"--oci-requests-per-second=1000", "--gateways=true", "--gateway-namespace=" + systemSpace, "--metrics-bind-address=127.0.0.1:0",
		"--health-probe-bind-address=127.0.0.1:0", "--log-level=debug", "--responder-service=" + systemSpace + "/responder",
		"--not-found-bind-address=127.0.0.1:0", "--no-backends-bind-address=127.0.0.1:0",
	}
	w.program = exec.Command(o.program, args...)
	w.program.Stdout, w.program.Stderr = log, log
	w.program.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.program.Env = append(os.Environ(), "POD_NAMESPACE="+systemSpace, "POD_NAME=backendset-syncer-0")
	if err := w.program.Start(); err != nil {
		return fmt.Errorf("start %s: %w", o.program, err)
	}
	go func() {
		err := w.program.Wait()
		w.ended <- err
		_ = log.Close()
		w.fail(fmt.Errorf("the program has ended: %v: see %s", err, log.Name()))
	}()
	a, err := w.awaitAddresses(ctx, log.Name())
	if err != nil {
		return err
	}
	// It answers requests without a backend, at the addresses that objects.yaml has for it.
	w.pods.add("10.244.0.2:8404", a.notFound)
	w.pods.add("10.244.0.2:8500", a.noBackends)
	return waitReady(ctx, "http://"+a.health+"/readyz", log.Name())
}

// waitReady waits until a URL answers with 200.
func waitReady(ctx context.Context, url, log string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(beat):
		case <-ctx.Done():
			return fmt.Errorf("the program is not ready after %s: see %s", readyTimeout, log)
		}
	}
}

// assignBalancers gives each Gateway a load balancer, in the ConfigMap that the policy makes its parameters.
func (w *world) assignBalancers(ctx context.Context) {
	gateways := w.dynamic.Resource(schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"})
	known := map[string]bool{}
	for ctx.Err() == nil {
		list, err := gateways.List(ctx, metav1.ListOptions{})
		if err != nil {
			if ctx.Err() == nil {
				w.fail(fmt.Errorf("list gateways: %w", err))
			}
			return
		}
		for i := range list.Items {
			g := &list.Items[i]
			if known[string(g.GetUID())] {
				continue
			}
			known[string(g.GetUID())] = true
			if err := w.assign(ctx, g.GetNamespace(), g.GetName()); err != nil {
				w.fail(err)
				return
			}
		}
		select {
		case <-time.After(beat):
		case <-ctx.Done():
		}
	}
}

// assign writes the parameters of a Gateway.
func (w *world) assign(ctx context.Context, namespace, gateway string) error {
	if w.used == balancers {
		return errors.New("all load balancers are in use: raise their number")
	}
	c := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "oci-" + gateway, Labels: map[string]string{"fairlead.dev/gateway": "parameters"}},
		Data:       map[string]string{"loadBalancerId": balancerID(w.used)},
	}
	w.used++
	_, err := w.client.CoreV1().ConfigMaps(namespace).Create(ctx, c, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // of an earlier Gateway with this name
		return nil
	}
	return err
}

// fail keeps the first error of what runs beside the suite.
func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil {
		w.failed = err
	}
}

func (w *world) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// stop ends everything. The program gets SIGTERM first.
func (w *world) stop() {
	if w.program != nil && w.program.Process != nil {
		_ = w.program.Process.Signal(syscall.SIGTERM)
		select {
		case <-w.ended:
		case <-time.After(stopTimeout):
			_ = w.program.Process.Kill()
		}
	}
	for _, stop := range w.stops {
		stop()
	}
	if w.pods != nil {
		w.pods.close()
	}
	if w.cluster != nil {
		w.cluster.Stop()
	}
	_ = os.RemoveAll(w.dir)
}
