package commands

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/dryrun"
)

const (
	adoptService = `{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: chat, namespace: models, uid: u-1,
	creationTimestamp: "2026-01-01T00:00:00Z"}, spec: {engine: {}},
		status: {conditions: [{type: EngineReady, status: "True"}%s]}}`
	adoptBackend = `{apiVersion: v1, kind: Service, metadata: {name: chat-engine, namespace: models,
	labels: {ome.io/inferenceservice: chat, component: engine},
		ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: u-1, controller: true}]},
		spec: {ports: [{port: 8080}]}}`
	// adoptLeftOver is the format of an object of OME: API version, kind, name, UID of the owner, and other fields.
	adoptLeftOver = `{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: models, uid: x, ownerReferences: [{apiVersion: ` +
		`ome.io/v1beta1, kind: InferenceService, name: chat, uid: %s, controller: true}]}, %s}`

	nginxClass = "{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: nginx}, spec: {controller: " +
		"k8s.io/ingress-nginx}}"
	contourClass = "{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: nginx}, spec: {controller: " +
		"projectcontour.io/x}}"
	ingressSpec = "spec: {ingressClassName: %s, rules: [{host: %s, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: " +
		"chat-engine, port: {number: 8080}}}}]}}]}"

	acceptedCondition = `, {type: fairlead.dev/Exposed, status: "True", reason: Programmed, message: "http://chat.models.example.com/"}`
	refusedCondition  = `, {type: fairlead.dev/Exposed, status: "False", reason: NotWritten, message: "host is already defined"}`
	pendingCondition  = `, {type: fairlead.dev/Exposed, status: "Unknown", reason: LoadBalancerPending, message: "no address"}`
)

func omeIngress(name, class, host string) string {
	return fmt.Sprintf(adoptLeftOver, "networking.k8s.io/v1", "Ingress", name, "u-1", fmt.Sprintf(ingressSpec, class, host))
}

// planned returns the Ingress that the program writes for the service, as YAML.
func planned(t *testing.T, config, class string) string {
	t.Helper()
	out, log, err := run(t, strings.Join([]string{fmt.Sprintf(adoptService, ""), adoptBackend, class}, "\n---\n"), "plan", "--config",
		config, "-f", "-")
	require.ErrorIs(t, err, dryrun.ErrDiffers, log)
	return out
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	config := file(t, "ingressDomain: example.com\nstrategy: ingress\ningressClassName: nginx\n")
	const (
		host   = "chat.models.example.com"
		gone   = " would be deleted (--dry-run=false deletes it): "
		policy = "spec: {}"
	)
	live := planned(t, config, nginxClass)
	name := "Ingress " + strings.SplitN(strings.SplitN(live, "\n  name: ", 2)[1], "\n", 2)[0]
	liveContour := planned(t, config, contourClass)
	nameContour := "Ingress " + strings.SplitN(strings.SplitN(liveContour, "\n  name: ", 2)[1], "\n", 2)[0]
	btp := fmt.Sprintf(adoptLeftOver, "gateway.envoyproxy.io/v1alpha1", "BackendTrafficPolicy", "chat", "u-1", policy)
	rule := fmt.Sprintf(adoptLeftOver, "networking.istio.io/v1beta1", "DestinationRule", "chat-engine", "u-1", policy)
	tests := []struct {
		name, condition, class string
		objects, args, want    []string
	}{
		{
			name: "nothing is left", condition: acceptedCondition, class: nginxClass, objects: []string{live},
			want: []string{"OME left nothing behind"},
		},
		{
			name: "the service is exposed", condition: acceptedCondition, class: nginxClass,
			objects: []string{live, omeIngress("chat", "other", host), omeIngress("chat-engine", "nginx", "x.example.com")},
			want: []string{
				"Ingress models/chat" + gone + "this program exposes the service",
				"Ingress models/chat-engine stays: nothing would replace x.example.com: set componentHosts or additionalIngressDomains, " +
					"or give --unexposed",
			},
		},
		{
			name: "the hosts of components are not exposed, by flag", condition: acceptedCondition, class: nginxClass,
			objects: []string{live, omeIngress("chat-engine", "nginx", "x.example.com")}, args: []string{"--unexposed"},
			want: []string{
				"Ingress models/chat-engine" + gone +
					"--unexposed: nothing would replace x.example.com: set componentHosts or additionalIngressDomains, or give --unexposed",
			},
		},
		{
			name: "the hosts of components are not exposed, and the webhook refuses ours", condition: refusedCondition, class: nginxClass,
			objects: []string{
				strings.Replace(omeIngress("chat", "nginx", host), "rules: [",
					"rules: [{host: chat-engine.models.example.com}, {host: chat.models.svc.cluster.local}, ", 1),
			},
			want: []string{
				"Ingress models/chat stays: nothing would replace chat-engine.models.example.com: set componentHosts or " +
					"additionalIngressDomains, or give --unexposed",
			},
		},
		{
			name: "the webhook refuses ours", condition: refusedCondition, class: nginxClass,
			objects: []string{omeIngress("chat", "nginx", host)},
			want: []string{
				"Ingress models/chat" + gone + name +
					" cannot be written: ingress-nginx refuses a second Ingress for the same host and path",
			},
		},
		{
			name: "ours was never tried, and would be refused", class: nginxClass, objects: []string{omeIngress("chat", "nginx", host)},
			want: []string{
				"Ingress models/chat" + gone + name +
					" cannot be written: ingress-nginx refuses a second Ingress for the same host and path",
			},
		},
		{
			name: "the condition is stale: ours does not exist", condition: acceptedCondition, class: nginxClass,
			objects: []string{omeIngress("chat", "other", host)},
			want:    []string{"Ingress models/chat stays: " + name + " is not written yet"},
		},
		{
			name: "another host does not keep ours from being written", condition: refusedCondition, class: nginxClass,
			objects: []string{omeIngress("chat", "nginx", "x.example.com")},
			want:    []string{"Ingress models/chat stays: " + name + " is not written yet"},
		},
		{
			name: "a webhook of a controller that is not known to refuse", condition: refusedCondition, class: contourClass,
			objects: []string{omeIngress("chat", "nginx", host)},
			want: []string{
				"Ingress models/chat" + gone + nameContour +
					" cannot be written: the condition says NotWritten, and this one has the same host and path",
			},
		},
		{
			name: "a controller that refuses nothing, before the first attempt", class: contourClass,
			objects: []string{omeIngress("chat", "nginx", host)},
			want:    []string{"Ingress models/chat stays: " + nameContour + " is not written yet"},
		},
		{
			name: "ours exists and is not served", condition: pendingCondition, class: contourClass,
			objects: []string{liveContour, omeIngress("chat", "nginx", host), omeIngress("chat-engine", "nginx", "x.example.com")},
			want: []string{
				"Ingress models/chat" + gone + nameContour + " exists, and the controller serves this one for the same host and path",
				"Ingress models/chat-engine stays: the condition is Unknown LoadBalancerPending: no address",
			},
		},
		{
			name: "policies go after the routes", condition: refusedCondition, class: nginxClass,
			objects: []string{omeIngress("chat", "nginx", host), btp, rule},
			want: []string{
				"Ingress models/chat" + gone + name +
					" cannot be written: ingress-nginx refuses a second Ingress for the same host and path",
				"BackendTrafficPolicy models/chat" + gone + "no route of OME is left that needs it",
				"DestinationRule models/chat-engine" + gone + "no route of OME is left that needs it",
			},
		},
		{
			name: "policies stay with a route", condition: refusedCondition, class: nginxClass,
			objects: []string{omeIngress("chat", "nginx", "x.example.com"), btp},
			want: []string{
				"Ingress models/chat stays: " + name + " is not written yet", "BackendTrafficPolicy models/chat stays: Ingress chat stays",
			},
		},
		{
			name: "forced", condition: refusedCondition, class: nginxClass, objects: []string{omeIngress("chat", "nginx", "x.example.com")},
			args: []string{"--unexposed"}, want: []string{"Ingress models/chat" + gone + "--unexposed: " + name + " is not written yet"},
		},
		{
			name: "objects of others", condition: acceptedCondition, class: nginxClass, want: []string{"OME left nothing behind"},
			objects: []string{
				live, omeIngress("mine", "nginx", host), strings.ReplaceAll(omeIngress("chat", "nginx", host), "uid: u-1", "uid: u-0"),
				strings.Replace(omeIngress("chat-engine", "nginx", host), "namespace: models", "namespace: other", 1),
			},
		},
		{
			name: "another namespace is chosen", condition: acceptedCondition, class: nginxClass,
			objects: []string{live, omeIngress("chat", "nginx", host)}, args: []string{"-n", "other"},
			want: []string{"OME left nothing behind"},
		},
		{
			name: "for real", condition: acceptedCondition, class: nginxClass,
			objects: []string{live, omeIngress("chat", "nginx", host), btp}, args: []string{"--dry-run=false"},
			want: []string{
				"Ingress models/chat was deleted: this program exposes the service",
				"BackendTrafficPolicy models/chat was deleted: no route of OME is left that needs it",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			api, kubeconfig := startAPIServer(t, nil,
				append([]string{fmt.Sprintf(adoptService, tt.condition), adoptBackend, tt.class}, tt.objects...)...)
			out, log, err := run(t, "", append([]string{"adopt", kubeconfig, "--config", config}, tt.args...)...)
			require.NoError(t, err, log)
			assert.Equal(t, strings.Join(tt.want, "\n")+"\n", out)
			assert.Equal(t, strings.Count(out, " was deleted: "), api.count("DELETE"))
			assert.LessOrEqual(t, api.count("GET ingresses"), 2, "the number of lists does not depend on the number of services")
		})
	}
}

func TestAdoptLeavesServicesOfOMEAlone(t *testing.T) {
	t.Parallel()
	config := file(t, "ingressDomain: example.com\nstrategy: ingress\ningressClassName: nginx\n")
	active := strings.Replace(fmt.Sprintf(adoptService, acceptedCondition), "uid: u-1,",
		`uid: u-1, annotations: {ome.io/ingress-disable-creation: "false"},`, 1)
	_, kubeconfig := startAPIServer(t, nil, active, adoptBackend, nginxClass, omeIngress("chat", "nginx", "chat.models.example.com"))
	out, _, err := run(t, "", "adopt", kubeconfig, "--config", config, "--unexposed", "--dry-run=false")
	require.NoError(t, err)
	assert.Equal(t, "OME left nothing behind\n", out)

	_, _, err = run(t, "", "adopt", kubeconfig)
	require.ErrorContains(t, err, "adopt compares with the plan: give --config-map or --config")
}
