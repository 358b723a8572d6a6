package gateways

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/testlane"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/observe"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/policy"
)

func TestMain(m *testing.M) {
	kubetest.DropErrorBackoff()
	goleak.VerifyTestMain(m)
}

const balancerID = "ocid1.loadbalancer.oc1.iad.a"

// world is a cluster in memory, with the reconciler, the actors and the emulator with its data plane, on fake time.
type world struct {
	*ocilbtest.Service

	t          *testing.T
	network    *ocilbtest.Network
	reconciler *Reconciler
	kube       *fake.Clientset
	document   atomic.Pointer[policy.Document]
	options    gatewayplan.Options
	served     map[string]bool
	notes      notes

	pace time.Duration // between two requests of a load
	calm time.Duration // without a change, after which the world is settled

	snapshots sync.Mutex

	mu      sync.Mutex
	objects map[string]*unstructured.Unstructured
	version int
	caches  atomic.Pointer[informers.Caches]
	queue   chan string
	waiting sync.Map
	errs    []error
	woken   map[string]bool // pods whose readiness gate is looked at again
	stop    func()
}

var options = informers.Options{Gateways: true, Gates: true}

// reader reads the current snapshot of a kind.
type reader struct {
	w    *world
	kind func(*informers.Caches) kit.Informer
}

func (r reader) Get(name cache.ObjectName) (any, bool) { return r.kind(r.w.caches.Load()).Get(name) }
func (r reader) List() []any                           { return r.kind(r.w.caches.Load()).List() }
func (r reader) ByIndex(index, value string) []any {
	return r.kind(r.w.caches.Load()).ByIndex(index, value)
}
func (r reader) Listed() bool                                             { return r.kind(r.w.caches.Load()).Listed() }
func (reader) AddEventHandler(cache.ResourceEventHandler)                 {}
func (w *world) read(f func(*informers.Caches) kit.Informer) kit.Informer { return reader{w, f} }

func (w *world) readers() informers.Caches {
	return informers.Caches{
		Bindings: w.read(
			func(c *informers.Caches) kit.Informer { return c.Bindings }), Services: w.read(
			func(c *informers.Caches) kit.Informer { return c.Services }),
		EndpointSlices: w.read(func(c *informers.Caches) kit.Informer {
			return c.EndpointSlices
		}), Pods: w.read(func(c *informers.Caches) kit.Informer { return c.Pods }),
		GatewayClasses: w.read(func(c *informers.Caches) kit.Informer {
			return c.GatewayClasses
		}), Gateways: w.read(func(c *informers.Caches) kit.Informer { return c.Gateways }),
		Routes: w.read(
			func(c *informers.Caches) kit.Informer { return c.Routes }), Grants: w.read(
			func(c *informers.Caches) kit.Informer { return c.Grants }),
		Pools: w.read(
			func(c *informers.Caches) kit.Informer { return c.Pools }), GatewayConfigs: w.read(func(c *informers.Caches) kit.Informer {
			return c.GatewayConfigs
		}),
		Namespaces: w.read(func(c *informers.Caches) kit.Informer {
			return c.Namespaces
		}), Secrets: w.read(func(c *informers.Caches) kit.Informer { return c.Secrets }),
		ConfigMaps: w.read(func(c *informers.Caches) kit.Informer { return c.ConfigMaps }),
	}
}

// configuration returns the administrator's configuration.
func (w *world) configuration() (*policy.Document, string) { return w.document.Load(), "" }

// configure replaces the administrator's configuration.
func (w *world) configure(text string) {
	w.t.Helper()
	document, err := policy.Parse([]byte(text))
	require.NoError(w.t, err)
	w.document.Store(document)
}

// key is the key of an object.
func keyOf(u *unstructured.Unstructured) string {
	return u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
}

// apply creates or replaces objects.
func (w *world) apply(manifests string) {
	w.t.Helper()
	for _, text := range strings.Split(manifests, "\n---\n") {
		var object map[string]any
		require.NoError(w.t, yaml.Unmarshal([]byte(text), &object), text)
		if len(object) == 0 {
			continue
		}
		w.put(&unstructured.Unstructured{Object: object})
	}
	w.changed()
}

func (w *world) put(u *unstructured.Unstructured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	u.SetResourceVersion(fmt.Sprint(w.version))
	if before := w.objects[keyOf(u)]; before != nil {
		u.SetUID(before.GetUID())
		u.SetCreationTimestamp(before.GetCreationTimestamp())
		u.SetGeneration(before.GetGeneration() + 1)
		if status, found := before.Object["status"]; found {
			u.Object["status"] = status
		}
	} else {
		u.SetUID(types.UID(fmt.Sprintf("uid-%d", w.version)))
		u.SetGeneration(1)
		u.SetCreationTimestamp(metav1.Now())
	}
	w.objects[keyOf(u)] = u
}

// remove deletes an object.
func (w *world) remove(kind, ns, name string) {
	w.t.Helper()
	w.mu.Lock()
	key := kind + " " + ns + "/" + name
	require.NotNil(w.t, w.objects[key], key)
	delete(w.objects, key)
	w.mu.Unlock()
	w.changed()
}

// changed makes a new snapshot and enqueues everything.
func (w *world) changed() {
	w.snapshots.Lock() // an older snapshot must not replace a newer one
	defer w.snapshots.Unlock()
	w.mu.Lock()
	all := make([]*unstructured.Unstructured, 0, len(w.objects))
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		all = append(all, w.objects[key])
	}
	w.mu.Unlock()
	caches, err := options.Declare().Read(kit.Snapshot{Objects: all})
	require.NoError(w.t, err)
	w.caches.Store(&caches)
	w.enqueue(cache.ObjectName{Name: sweepKey})
}

func (w *world) enqueue(name cache.ObjectName) {
	if _, waits := w.waiting.LoadOrStore(name.Name, true); !waits { // a name that waits is reconciled once
		w.queue <- name.Name
	}
}

// setStatus replaces fields of the status of an object, as the API server does.
func (w *world) setStatus(kind, ns, name string, status any) {
	text, err := json.Marshal(status)
	require.NoError(w.t, err)
	var decodedStatus map[string]any
	require.NoError(w.t, json.Unmarshal(text, &decodedStatus))
	w.mu.Lock()
	u := w.objects[kind+" "+ns+"/"+name]
	if u != nil {
		next := u.DeepCopy()
		w.version++
		next.SetResourceVersion(fmt.Sprint(w.version))
		next.Object["status"] = decodedStatus
		w.objects[keyOf(next)] = next
	}
	w.mu.Unlock()
	if u != nil {
		w.changed()
	}
}

// fakeStatuses writes statuses into the world.
type fakeStatuses struct{ w *world }

func (f fakeStatuses) WriteClass(_ context.Context, c *gatewayv1.GatewayClass, next gatewayv1.GatewayClassStatus) error {
	if !equalJSON(c.Status, next) {
		f.w.setStatus("GatewayClass", "", c.Name, next)
	}
	return nil
}

func (f fakeStatuses) WriteGateway(_ context.Context, g *gatewayv1.Gateway, next gatewayv1.GatewayStatus) error {
	if !equalJSON(g.Status, next) {
		f.w.setStatus("Gateway", g.Namespace, g.Name, next)
	}
	return nil
}

func (f fakeStatuses) WriteRoute(_ context.Context, r *gatewayv1.HTTPRoute, parents []gatewayv1.RouteParentStatus) error {
	if !equalJSON(r.Status.Parents, parents) {
		f.w.setStatus("HTTPRoute", r.Namespace, r.Name, map[string]any{"parents": parents})
	}
	return nil
}

// RemoveFinalizer implements statuses. No route of these tests has a finalizer.
func (f fakeStatuses) RemoveFinalizer(context.Context, *gatewayv1.HTTPRoute, string) error {
	f.w.t.Error("a finalizer is removed without the alias of oke-gateway-api")
	return nil
}

func equalJSON(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// quiet observes nothing.
type quiet struct{}

func (quiet) ObserveWorkRequest(string, string, time.Duration) {}
func (quiet) ObserveWrite(time.Duration)                       {}
func (quiet) ObserveInService(time.Duration)                   {}
func (quiet) ObserveReport(actor.Key, *actor.Report)           {}
func (quiet) CountConflict(string)                             {}
func (quiet) ObserveRequest(string, string, time.Duration)     {}
func (quiet) SetRateLimit(float64)                             {}

// notes are the Events and numbers of a world.
type notes struct {
	mu     sync.Mutex
	events []string
	counts map[string]map[string]int // of routes, by load balancer
}

// Event implements recorder.
func (n *notes) Event(about *corev1.ObjectReference, kind, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, fmt.Sprintf("%s %s/%s: %s %s: %s", about.Kind, about.Namespace, about.Name, kind, reason, message))
}

// SetGatewayCounts implements meter.
func (n *notes) SetGatewayCounts(loadBalancer string, _, _, routes map[string]int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counts[loadBalancer] = routes
}

// ForgetGateways implements meter.
func (n *notes) ForgetGateways(loadBalancer string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.counts, loadBalancer)
}

// ClearGateways implements meter.
func (n *notes) ClearGateways() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.counts)
}

// take returns the Events since the last call.
func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := n.events
	n.events = nil
	return taken
}

// inWorld runs a test on fake time, with a load balancer that Gateways of namespace infra may program.
func inWorld(t *testing.T, modes *ocilb.Modes, test func(w *world)) {
	t.Helper()
	ocilbtest.Key()
	synctest.Test(t, func(t *testing.T) {
		o := ocilbtest.Options()
		if modes != nil {
			o.Modes = *modes
		}
		w := &world{
			t: t, pace: time.Duration(testlane.Repetitions(2000, 300)) * time.Millisecond, calm: 35 * time.Second,
			network: ocilbtest.NewNetwork(), objects: map[string]*unstructured.Unstructured{}, queue: make(chan string, 4096),
			served: map[string]bool{}, woken: map[string]bool{}, kube: fake.NewClientset(),
			notes: notes{counts: map[string]map[string]int{}},
		}
		o.Plane.Dial, o.Plane.Listen = w.network.Dial, w.network.Listen
		w.Service = ocilbtest.Start(t, o)
		w.Create(balancerID, ocilbtest.Compartment, "models")
		time.Sleep(time.Duration(o.Modes.Stale))
		w.configure("podRanges: [10.0.0.0/24]\nloadBalancers: [{id: " + balancerID + ", gateways: {namespaces: [infra]}}]")
		w.start()
		w.apply(basics)
		test(w)
		w.stop()
	})
}

const basics = `
apiVersion: v1
kind: Namespace
metadata: {name: infra}
---
apiVersion: v1
kind: Namespace
metadata: {name: models, labels: {team: llm}}
---
apiVersion: v1
kind: Namespace
metadata: {name: others}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: oci}
spec: {controllerName: fairlead.dev/oci-load-balancer}
`

// start starts the reconciler and the actors.
func (w *world) start() {
	client := ociapi.New(ociapi.Params{
		Options: ociapi.Options{Auth: "api-key", Region: ocilbtest.Region, Endpoint: "http://oci.test", Rate: 1000}, Observer: quiet{},
		Clock: clock.RealClock{}, Credentials: ocilbtest.Provider(), HTTP: w.httpClient(),
	})
	ctx, cancel := context.WithCancel(context.Background())
	caches := w.readers()
	actors := actor.New(actor.Params{
		Occupants: observe.New(caches).FindOccupants, Client: client, Observer: quiet{}, Clock: clock.RealClock{}, Log: zap.NewNop(),
		Verify: 5 * time.Minute, MayWrite: func() error { return nil },
		Changed: func(k actor.Key) { w.enqueue(cache.ObjectName{Name: k.LoadBalancer}) }, Jitter: func() float64 { return 0.5 },
	})
	store := lbrecord.NewStore(w.kube.CoreV1(), "fairlead", "test")
	if w.caches.Load() == nil {
		empty, err := options.Declare().Read(kit.Snapshot{})
		require.NoError(w.t, err)
		w.caches.Store(&empty)
	}
	w.reconciler = New(Params{
		Planner: gatewayplan.NewPlanner(caches, w.configuration, w.options), Caches: caches, Actors: actors, Records: store,
		Writer: fakeStatuses{w}, Recorder: &w.notes, Meter: &w.notes, Enqueue: w.enqueue, Clock: clock.RealClock{}, Namespace: "fairlead",
		WakePod: w.wakePod,
	})
	wait := actors.StartTerm(ctx, ctx)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case name := <-w.queue:
				w.waiting.Delete(name)
				if err := w.reconciler.Reconcile(ctx, cache.ObjectName{Name: name}); err != nil {
					w.mu.Lock()
					w.errs = append(w.errs, err)
					w.mu.Unlock()
				}
			}
		}
	})
	w.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
		wait()
		for _, err := range w.errs {
			assert.NoError(w.t, err)
		}
	})
	w.t.Cleanup(w.stop)
}

func (w *world) wakePod(name cache.ObjectName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken[name.Name] = true
}

func (w *world) httpClient() *http.Client {
	transport := &http.Transport{DialContext: w.Network.Dial}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// gateway writes a Gateway of namespace infra.
func (w *world) gateway(name, parameters string, listeners ...string) {
	w.t.Helper()
	w.apply(fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s, namespace: infra, labels: {fairlead.dev/gateway: parameters}}
data: {loadBalancerId: %[2]s, %[3]s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %[1]s, namespace: infra}
spec:
  gatewayClassName: oci
  infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: %[1]s}}
  listeners: [%[4]s]
`, name, balancerID, parameters, strings.Join(listeners, ", ")))
}

// route writes an HTTPRoute of Gateway web.
func (w *world) route(ns, name, spec string) {
	w.t.Helper()
	w.apply(fmt.Sprintf(
		"apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: %s, namespace: %s}\nspec: {parentRefs: [{name: web, "+
			"namespace: infra}], %s}\n",
		name, ns, spec))
}

// service writes a Service with pods "1 2:finishing", which answer with the name of the Service.
func (w *world) service(ns, name, pods string) {
	w.t.Helper()
	var endpoints []string
	for _, f := range strings.Fields(pods) {
		n, state, _ := strings.Cut(f, ":")
		conditions := "{ready: true, serving: true, terminating: false}"
		if state == "finishing" {
			conditions = "{ready: false, serving: true, terminating: true}"
		}
		endpoints = append(endpoints, fmt.Sprintf("{addresses: [10.0.0.%s], conditions: %s}", n, conditions))
		w.serve("10.0.0."+n+":8000", name)
	}
	w.apply(fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %[1]s, namespace: %[2]s}\nspec: {ports: [{name: http, port: 80, "+
		"targetPort: 8000}]}\n---\n"+
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %[1]s-1, namespace: %[2]s, labels: "+
		"{kubernetes.io/service-name: %[1]s}}\naddressType: IPv4\n"+
		"ports: [{name: http, port: 8000, protocol: TCP}]\nendpoints: [%[3]s]\n", name, ns, strings.Join(endpoints, ", ")))
}

func (w *world) serve(address, name string) {
	if w.served[address] {
		return
	}
	w.served[address] = true
	w.network.Serve(w.t, address, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/slow" {
			fmt.Fprint(rw, name)
			return
		}
		for range 20 {
			fmt.Fprint(rw, ".")
			_ = http.NewResponseController(rw).Flush()
			select {
			case <-time.After(time.Second):
			case <-r.Context().Done():
				return
			}
		}
	}))
}

// client returns a client that connects to a port of the load balancer.
func (w *world) client(port int, trust *ocilbtest.Authority) *http.Client {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return w.network.Dial(ctx, network, fmt.Sprintf("%s:%d", ocilbtest.Address, port))
	}}
	if trust != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: trust.Pool(), MinVersion: tls.VersionTLS12}
	}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout: time.Minute,
	}
}

// responder is the Service of the responder.
var responder = cache.ObjectName{Namespace: "fairlead", Name: "responder"}

func encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func get(client *http.Client, url string) string {
	request, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		return err.Error()
	}
	return do(client, request)
}

// do sends a request and returns its status and body, or location.
func do(client *http.Client, request *http.Request) string {
	response, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	if l := response.Header.Get("Location"); l != "" {
		return fmt.Sprintf("%d %s", response.StatusCode, l)
	}
	return fmt.Sprintf("%d %s", response.StatusCode, strings.TrimSpace(string(body)))
}

// load sends requests, with a pause after each, until stop is called. All must succeed.
func (w *world) load(request func() string, ok func(string) bool) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var sent int
	var failures []string
	all.Go(func() {
		for ctx.Err() == nil {
			got := request()
			if sent++; !ok(got) {
				failures = append(failures, got)
			}
			time.Sleep(w.pace)
		}
	})
	return func() {
		cancel()
		all.Wait()
		assert.Positive(w.t, sent)
		assert.Empty(w.t, failures, "%d of %d requests", len(failures), sent)
	}
}

// settle waits until nothing is left to do.
func (w *world) settle() {
	w.t.Helper()
	for range 200 {
		before, writes := w.versionNow(), w.Writes(time.Time{})
		time.Sleep(w.calm)
		if w.Idle() && before == w.versionNow() && writes == w.Writes(time.Time{}) {
			return
		}
	}
	w.t.Fatal("the world does not settle")
}

func (w *world) versionNow() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.version
}

// routeCondition returns "Status/Reason" of a condition of a route's parent, with its generation if that is old.
func (w *world) routeCondition(ns, name, kind string) string {
	r := informers.FindObject[gatewayv1.HTTPRoute](w.caches.Load().Routes, cache.ObjectName{Namespace: ns, Name: name})
	if r == nil || len(r.Status.Parents) == 0 {
		return "none"
	}
	return describe(r.Status.Parents[0].Conditions, kind, r.Generation)
}

func (w *world) gatewayCondition(name, kind string) string {
	g := informers.FindObject[gatewayv1.Gateway](w.caches.Load().Gateways, cache.ObjectName{Namespace: "infra", Name: name})
	if g == nil {
		return "none"
	}
	return describe(g.Status.Conditions, kind, g.Generation)
}

func (w *world) listenerCondition(gatewayName, listener, kind string) string {
	g := informers.FindObject[gatewayv1.Gateway](w.caches.Load().Gateways, cache.ObjectName{Namespace: "infra", Name: gatewayName})
	for _, l := range g.Status.Listeners {
		if string(l.Name) == listener {
			return describe(l.Conditions, kind, g.Generation)
		}
	}
	return "none"
}

func describe(all []metav1.Condition, kind string, generation int64) string {
	for _, c := range all {
		if c.Type == kind {
			text := string(c.Status) + "/" + c.Reason
			if c.ObservedGeneration != generation {
				text += " (old)"
			}
			return text
		}
	}
	return "none"
}

// names returns the names of objects of a live load balancer.
func (w *world) names() map[string][]string {
	lb := w.Current(balancerID)
	return map[string][]string{
		"listeners": slices.Sorted(maps.Keys(lb.Listeners)), "policies": slices.Sorted(maps.Keys(lb.RoutingPolicies)),
		"sets":         slices.Sorted(maps.Keys(lb.BackendSets)),
		"certificates": slices.Sorted(maps.Keys(lb.Certificates)), "hostnames": slices.Sorted(maps.Keys(lb.Hostnames)),
		"ruleSets": slices.Sorted(maps.Keys(lb.RuleSets)),
	}
}

// layoutWrites returns the operations on objects other than backends that were accepted.
func (w *world) layoutWrites() []string {
	var all []string
	for _, c := range w.Calls() {
		if c.Write() && c.WorkRequest != "" && !strings.Contains(c.Operation, "Backend") {
			all = append(all, c.Operation)
		}
	}
	return all
}

// logRefusals logs the requests that were refused.
func (w *world) logRefusals() {
	report, current := w.reconciler.p.Actors.LayoutReport(balancerID)
	w.t.Logf("report %+v, current %t", report, current)
	if rec, err := w.reconciler.p.Records.Read(context.Background(), balancerID); err == nil {
		w.t.Logf("record %s", rec.Encode())
	} else {
		w.t.Logf("record: %v", err)
	}
	calls := w.Calls()
	for _, c := range calls[max(0, len(calls)-60):] {
		if c.Write() {
			w.t.Logf("%s %s %s: %d %s", c.At.Format(time.TimeOnly), c.Operation, c.Path, c.Status, c.WorkRequest)
		}
	}
	for _, c := range w.Calls() {
		if c.Code != "" || c.Status == 0 {
			w.t.Logf("%s %s %s: %d %s", c.At.Format(time.TimeOnly), c.Operation, c.Path, c.Status, c.Code)
		}
	}
}

// routeMessage returns the message of a condition of a route's parent.
func (w *world) routeMessage(ns, name, kind string) string {
	r := informers.FindObject[gatewayv1.HTTPRoute](w.caches.Load().Routes, cache.ObjectName{Namespace: ns, Name: name})
	for _, c := range r.Status.Parents[0].Conditions {
		if c.Type == kind {
			return c.Message
		}
	}
	return ""
}
