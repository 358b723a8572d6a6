package isolation

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/testlane"
	"fairlead.dev/services/ingress-reconciler/internal/condition"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/semantics"
)

var namespaces = []string{"victim", "evil", "v1"}

// strategies are the configurations for each strategy, with the entrance for requests.
var strategies = []struct {
	name, config string
	entrance     semantics.Entrance
}{
	{
		"httproute", "strategy: httproute\nomeIngressGateway: gateways/public\n",
		semantics.Entrance{Gateway: types.NamespacedName{Namespace: "gateways", Name: "public"}},
	},
	{"virtualservice", "strategy: virtualservice\ningressGateway: istio/public\n", semantics.Entrance{IstioGateway: "istio/public"}},
	{"ingress-nginx", "strategy: ingress\ningressClassName: nginx\n", semantics.Entrance{IngressClass: "nginx"}},
	{"traefik", "strategy: ingress\ningressClassName: traefik\n", semantics.Entrance{IngressClass: "traefik"}},
}

// configurations are examples of an administrator's configuration.
var configurations = []string{
	"",
	"perISVCSubdomain: false\n",
	"allowedDomains: {'*': [example.com]}\n",
	"allowedDomains: {'*': ['{{ .Namespace }}.example.com', llm.example.com]}\n",
	"pathTemplate: '/{{ .Namespace }}/{{ .Name }}'\n",
	"pathTemplate: '/{{ .Name }}'\nsharedHostPrefix: ''\n",
	"domainTemplate: '{{ .Name }}.{{ .IngressDomain }}'\n",
	"domainTemplate: '{{ .Labels.host }}.example.com'\n",
	"modelBasedRoutingHeaderName: X-Model\nperISVCSubdomain: false\n",
	"modelBasedRoutingHeaderName: X-Model\nmodelNameTemplate: '{{ .Labels.host }}'\n",
	"componentHosts: true\nadditionalIngressDomains: [example.org]\n",
}

// annotations are examples of a tenant's annotations: values by key.
var annotations = map[string][]string{
	"ome.io/ingress-domain": {"example.com", "chat.victim.example.com", "llm.example.com", "evil.net", "victim.example.com"},
	"ome.io/ingress-domain-template": {
		"chat.victim.example.com", "llm.example.com", "example.com", "{{ .Name }}.{{ .IngressDomain }}", "chat.{{ .IngressDomain }}", "{{",
	},
	"ome.io/ingress-additional-domains": {"victim.example.com,example.com", "chat.victim.example.com", "example.org"},
	"ome.io/ingress-path-template":      {"", "/v1", "/victim/chat/v1", "/evil/eve", "/victim", "/{{ .Namespace }}", "/{{ .Name }}"},
	"ome.io/ingress-per-isvc-subdomain": {"true", "false"},
	"ome.io/ingress-shared-host-prefix": {"", "llm", "chat.victim", "victim"},
	"ome.io/ingress-disable-creation":   {"true", "false"},
}

const hold = time.Minute

// world is a cluster with services that change.
type world struct {
	*cluster

	entrance semantics.Entrance
	answers  map[probe]string // answers to all requests before the tested change
	changing cache.ObjectName
	step     string
}

// probe is a request.
type probe struct{ host, path, model string }

func TestNoServiceChangesTheRequestsOfAnother(t *testing.T) {
	t.Parallel()
	seeds := testlane.Repetitions(5, 300)
	for _, s := range strategies {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			reached := map[string]bool{}
			for seed := range uint64(seeds) {
				rng := rand.New(rand.NewPCG(seed, 7))
				config := "ingressDomain: example.com\nholdSeconds: 60\n" + s.config + configurations[rng.IntN(len(configurations))]
				w := &world{cluster: newCluster(t, rng, config), entrance: s.entrance}
				w.afterWrite = w.check
				for i := range 40 {
					w.step = fmt.Sprintf("seed %d, step %d, %s", seed, i, strings.ReplaceAll(config, "\n", "; "))
					w.change()
					if t.Failed() {
						return
					}
				}
				for _, answer := range w.evaluate() {
					reached[strings.Split(answer, "/")[0]] = true
				}
			}
			for _, n := range namespaces {
				assert.True(t, reached[n], "no request reached a service of namespace %s, so the test proves nothing", n)
			}
		})
	}
}

// change changes one service, or advances the time.
func (w *world) change() {
	names := slices.Collect(w.services())
	switch n := w.rng.IntN(10); {
	case n < 2 && len(names) < 5, len(names) == 0:
		w.begin(cache.ObjectName{Namespace: namespaces[w.rng.IntN(len(namespaces))], Name: []string{"chat", "eve"}[w.rng.IntN(2)]})
		w.create()
	case n < 6:
		w.begin(names[w.rng.IntN(len(names))])
		w.annotate()
	case n < 7:
		w.begin(names[w.rng.IntN(len(names))])
		w.setReady(w.rng.IntN(3) > 0)
	case n < 8:
		w.begin(names[w.rng.IntN(len(names))])
		w.remove(w.service())
	default:
		w.timePasses()
		return
	}
	w.settle()
	w.check("settled")
	w.checkProgrammed()
}

// services returns the names of all services.
func (w *world) services() func(func(cache.ObjectName) bool) {
	return func(yield func(cache.ObjectName) bool) {
		for _, k := range slices.SortedFunc(maps.Keys(w.objects),
			func(a, b key) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) {
			if k.kind == "InferenceService" && !yield(cache.ObjectName(k.name)) {
				return
			}
		}
	}
}

// begin records the answers to all requests before a service changes.
func (w *world) begin(name cache.ObjectName) {
	w.changing = name
	w.answers = w.evaluate()
}

// service returns the service that is being changed.
func (w *world) service() *unstructured.Unstructured {
	return w.objects[key{"InferenceService", w.key()}].DeepCopy()
}

func (w *world) key() types.NamespacedName { return types.NamespacedName(w.changing) }

func (w *world) create() {
	if w.objects[key{"InferenceService", types.NamespacedName(w.changing)}] != nil {
		return
	}
	host := []string{"chat.victim", "chat", "eve"}[w.rng.IntN(3)]
	w.put(`{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {namespace: %s, name: %s, labels: {host: %s}}, spec: {engine: `+
		`{}}}`, w.changing.Namespace, w.changing.Name, host)
	uid := w.service().GetUID()
	for _, role := range []string{"engine", "router"} {
		w.put(`{apiVersion: v1, kind: Service, metadata: {namespace: %[1]s, name: %[2]s-%[3]s, labels: {ome.io/inferenceservice: %[2]s,
		component: %[3]s},
			ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: %[2]s, uid: '%[4]s', controller: true}]},
			spec: {clusterIP: 10.0.0.1, selector: {app: %[2]s-%[3]s}, ports: [{name: http1, port: 8080}]}}`, w.changing.Namespace,
			w.changing.Name, role, uid)
		if w.rng.IntN(3) > 0 {
			break // no router
		}
	}
	w.setReady(w.rng.IntN(3) > 0)
	if w.rng.IntN(2) == 0 {
		w.annotate()
	}
}

func (w *world) put(format string, args ...any) {
	u := &unstructured.Unstructured{}
	require.NoError(w.t, yaml.Unmarshal(fmt.Appendf(nil, format, args...), &u.Object))
	w.store(u)
}

func (w *world) annotate() {
	s := w.service()
	chosen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if values := annotations[name]; w.rng.IntN(4) == 0 {
			chosen[name] = values[w.rng.IntN(len(values))]
		}
	}
	s.SetAnnotations(chosen)
	w.store(s)
}

func (w *world) setReady(ready bool) {
	s, status := w.service(), "False"
	if ready {
		status = "True"
	}
	var conditions []any
	for _, kind := range []string{"EngineReady", "RouterReady"} {
		conditions = append(conditions, map[string]any{"type": kind, "status": status})
	}
	require.NoError(w.t, unstructured.SetNestedSlice(s.Object, conditions, "status", "conditions"))
	w.store(s)
}

// timePasses advances the time: data planes accept routes, holds end, and the garbage collector deletes objects. A host may now move from
// a service that no longer wants it to a service that waits for it. It must not move away from a service that wants it.
func (w *world) timePasses() {
	w.begin(cache.ObjectName{})
	if w.rng.IntN(4) == 0 {
		clear(w.queue)
		w.start() // another replica becomes the leader
	}
	urls := map[string][]probe{}
	for name := range w.services() {
		if c := w.condition(name); c != nil && c.Reason == condition.ReasonProgrammed {
			urls[name.String()] = urlsOf(c)
		}
	}
	before := w.answers
	w.answers = nil // the loop below checks the hosts that moved
	w.pass([]time.Duration{time.Second, hold / 2, 2 * hold}[w.rng.IntN(3)])
	for p, answer := range before {
		owner := w.owner(answer)
		after := w.ask(p)
		next := w.owner(after)
		if next != owner &&
			slices.ContainsFunc(urls[owner], func(u probe) bool { return u.host == p.host && strings.HasPrefix(p.path, u.path) }) {
			require.Fail(w.t, "a service loses requests",
				"%s: %v went to %q, and now goes to %q, although the condition of %s contains the URL", w.step, p, answer, after, owner)
		}
	}
	w.checkProgrammed()
}

// owner returns the service in an answer.
func (w *world) owner(answer string) string {
	owner, _, _ := strings.Cut(answer, " ")
	return owner
}

// condition returns the condition of a service, nil if the service has none.
func (w *world) condition(name cache.ObjectName) *isvc.Condition {
	u := w.objects[key{"InferenceService", types.NamespacedName(name)}]
	if u == nil {
		return nil
	}
	s, err := isvc.Read(u)
	require.NoError(w.t, err)
	return condition.Find(s)
}

// urlsOf returns the URLs at the beginning of the message of a condition, except URLs with a model header.
func urlsOf(c *isvc.Condition) []probe {
	text, _, _ := strings.Cut(c.Message, ";")
	var all []probe
	for url := range strings.SplitSeq(text, ", ") {
		if host, path, found := strings.Cut(strings.TrimPrefix(url, "http://"), "/"); found && !strings.Contains(url, " ") {
			all = append(all, probe{host: host, path: "/" + path})
		}
	}
	return all
}

// check fails the test if a request to another service has a different destination than before the change.
func (w *world) check(after string) {
	if w.answers == nil {
		return
	}
	for p, before := range w.answers {
		owner := w.owner(before)
		if owner == w.changing.String() || owner == "" {
			continue
		}
		now := w.ask(p)
		next := w.owner(now)
		require.Equal(w.t, owner, next, "%s: %s changes: %v went to %q, and goes to %q after %s", w.step, w.changing, p, before, now, after)
	}
}

// checkProgrammed checks that each service with reason Programmed receives the requests for all URLs in its condition.
func (w *world) checkProgrammed() {
	for name := range w.services() {
		c := w.condition(name)
		if c == nil || c.Reason != condition.ReasonProgrammed {
			continue
		}
		for _, p := range urlsOf(c) {
			owner := w.owner(w.ask(p))
			require.Equal(w.t, name.String(), owner, "%s: condition %q of %s", w.step, c.Message, name)
		}
	}
}

// evaluate returns the answers to requests for all combinations of known hosts, paths and models.
func (w *world) evaluate() map[probe]string {
	hosts, paths, models := map[string]bool{}, map[string]bool{"/": true, "/v1/chat/completions": true}, map[string]bool{"": true}
	for claim := range w.claims() {
		hosts[claim.Host], paths[claim.Path+"v1/chat/completions"], models[claim.Value] = true, true, true
	}
	answers := map[probe]string{}
	for host := range hosts {
		for path := range paths {
			for model := range models {
				if model != "" && path != "/" && path != "/v1/chat/completions" {
					continue // these paths belong to namespaces, with or without the header
				}
				p := probe{host, path, model}
				answers[p] = w.ask(p)
			}
		}
	}
	return answers
}

// ask returns "namespace/service path" of the InferenceService that receives a request, or "" if no route matches.
func (w *world) ask(p probe) string {
	if w.known == nil {
		var err error
		w.known, err = semantics.FromObjects(slices.Collect(maps.Values(w.routes())))
		require.NoError(w.t, err)
	}
	r := semantics.Request{Entrance: w.entrance, Host: p.host, Path: p.path}
	if p.model != "" {
		r.Header = map[string]string{"X-Model": p.model}
	}
	explained, err := w.known.ExplainRequest(r)
	if errors.Is(err, semantics.ErrNoRoute) {
		return ""
	}
	require.NoError(w.t, err, "%s: %v", w.step, p)
	b := explained.Answer.Backend
	namespace, name := b.Namespace, b.Name
	if b.Kind == semantics.KindHost {
		parts := strings.Split(name, ".")
		name, namespace = parts[0], parts[1]
	}
	name = strings.TrimSuffix(strings.TrimSuffix(name, "-engine"), "-router")
	return namespace + "/" + name + " " + explained.Answer.Path
}

// routes returns the objects that route requests.
func (w *world) routes() map[key]*unstructured.Unstructured {
	routes := map[key]*unstructured.Unstructured{}
	for k, u := range w.objects {
		if k.kind != "InferenceService" && k.kind != "Service" {
			routes[k] = u
		}
	}
	return routes
}
