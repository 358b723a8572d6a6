package flow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

const shared = "perISVCSubdomain: false\n"

func TestPathsOnASharedHostSettle(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayAPI+shared)
	r.apply(gateway)
	r.start()
	r.service(ns, "chat", "engine")
	r.has("httproute llm.example.com/models/chat -> chat-engine by public")
	r.settles()
	r.configure(istio + shared)
	r.has("virtualservice llm.example.com/models/chat/ -> chat-engine")
	r.settles()

	t.Log("an Ingress needs a controller that can rewrite, and the old objects stay until there is one")
	r.configure(ingress + shared)
	r.says("chat", "False PathRewriteUnsupported: the default IngressClass cannot rewrite path /models/chat/ on host llm.example.com: set perISVCSubdomain: true")
	r.has("virtualservice llm.example.com/models/chat/ -> chat-engine")
	for _, tt := range []struct{ controller, want string }{
		{controller: "traefik.io/ingress-controller", want: "ingress llm.example.com/models/chat -> chat-engine"},
		{controller: "k8s.io/ingress-nginx", want: "ingress llm.example.com/models/chat(/|$)(.*) -> chat-engine"},
	} {
		r.apply(fmt.Sprintf(`{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: %[1]s, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}}, spec: {controller: %[2]s}}`,
			strings.ReplaceAll(tt.controller, "/", "."), tt.controller))
		r.eventually(func() (string, bool) {
			got := r.ours(ns)
			return strings.Join(got, "\n"), assert.Contains(quiet{}, got, tt.want)
		}, "%s", tt.controller)
		r.settles()
		r.delete(ingressClasses, "", strings.ReplaceAll(tt.controller, "/", "."))
	}
}

var ingressClasses = render.Ingresses.GroupVersion().WithResource("ingressclasses")

func TestPoolsAndTheFallbackService(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayAPI+`
overrides:
- {names: [named], inferencePool: {name: theirs}}
- {names: [made], inferencePool: {endpointPickerRef: {name: picker, failureMode: FailOpen}}, fallbackService: {enabled: true, type: NodePort}}
`)
	r.apply(gateway)
	r.start()
	r.service(ns, "named", "engine")
	r.says("named", "False InferencePoolNotFound: there is no InferencePool theirs: create it, or correct inferencePool.name")
	r.apply(`{apiVersion: inference.networking.k8s.io/v1, kind: InferencePool, metadata: {name: theirs, namespace: models}, spec: {selector: {matchLabels: {app: x}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: picker, port: {number: 9002}}}}`)
	r.says("named", fmt.Sprintf(accepted, "named.models.example.com")+"; InferencePool theirs: FailClose")
	r.has("httproute named.models.example.com/ -> theirs by public")

	r.service(ns, "made", "engine")
	r.has("httproute named.models.example.com/ -> theirs by public", "httproute made.models.example.com/ -> made-fairlead by public",
		"inferencepools made-fairlead", "services made-external")
	r.says("made", fmt.Sprintf(accepted, "made.models.example.com")+"; InferencePool made-fairlead: FailOpen")
	r.settles() // a NodePort is the API server's
	service, err := r.cluster.Clientset().CoreV1().Services(ns).Get(t.Context(), "made-external", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, corev1.ServiceTypeNodePort, service.Spec.Type)
	assert.Equal(t, map[string]string{"ome.io/inferenceservice": "made", "component": "engine"}, service.Spec.Selector)
	_, err = r.cluster.Clientset().CoreV1().Services(ns).Get(t.Context(), "made", metav1.GetOptions{})
	require.NoError(t, err, "that of OME is there, too")

	r.configure(gatewayAPI)
	r.has("httproute named.models.example.com/ -> named-engine by public", "httproute made.models.example.com/ -> made-engine by public")
	r.settles()
}

func TestNamesThatAreLongOrAlike(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayAPI+"domainTemplate: '{{ index .Labels \"host\" }}.{{ .IngressDomain }}'\ncomponentHosts: false\n")
	r.apply(gateway)
	r.start()
	long := strings.Repeat("n", 57) // with -engine one more than a Service may have
	var want []string
	for host, name := range map[string]string{"a": "foo", "b": "foo-engine", "c": "my-engine-v2", "d": long} {
		r.service(ns, name, "engine")
		r.patch(isvc.Resource, ns, name, fmt.Sprintf(`{"metadata":{"labels":{"host":%q}}}`, host))
		backend := name + "-engine"
		if name == long {
			service := "" // OME cuts it
			r.eventually(func() (string, bool) {
				list, err := r.cluster.Clientset().CoreV1().Services(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "component=engine,ome.io/inferenceservice=" + long})
				require.NoError(t, err)
				if len(list.Items) == 1 {
					service = list.Items[0].Name
				}
				return service, len(service) == 63
			}, "OME's Service")
			backend = service
		}
		want = append(want, fmt.Sprintf("httproute %s.example.com/ -> %s by public", host, backend))
	}
	r.has(want...)
	r.settles()
}

func TestALeadThatIsLostAndWonAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayAPI+"domainTemplate: one.example.com\n")
	r.apply(gateway)
	r.start(func(c *config.Config) { c.Leader.Elect, c.Leader.Namespace = true, "fairlead" })
	r.service(ns, "old", "engine")
	r.has("httproute one.example.com/ -> old-engine by public")
	r.aged(ns, "old")
	r.service("others", "young", "engine")
	r.eventually(func() (string, bool) {
		got := r.condition("others", "young")
		return got, strings.HasPrefix(got, "False HostConflict")
	}, "the younger one has to wait")

	leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	r.patch(leases, "fairlead", "fairlead-ingress-reconciler", `{"spec":{"holderIdentity":"another","leaseDurationSeconds":3600,"renewTime":"`+time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")+`"}}`)
	told := func(message string, times int) {
		r.eventually(func() (string, bool) {
			n := r.logs.FilterMessage(message).Len()
			return fmt.Sprint(n), n == times
		}, "%q is told %d times", message, times)
	}
	told("Lost the lead, stands for election again", 1)
	r.delete(isvc.Resource, ns, "old")
	r.collectGarbage()
	r.settles()
	r.delete(leases, "fairlead", "fairlead-ingress-reconciler")
	told("Took the lead", 2)
	r.eventually(func() (string, bool) {
		got := fmt.Sprint(r.ours("others"))
		return got, got == "[httproute one.example.com/ -> young-engine by public]"
	}, "the claims of who has gone meanwhile are nobody's")
}
