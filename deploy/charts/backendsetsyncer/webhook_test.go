package backendsetsyncer_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
)

const injectLabel = "fairlead.dev/oci-lb-ready-inject"

// webhook are values with readiness gates and the webhook, with further values of the latter.
func webhook(further helm.Values) helm.Values {
	values := helm.Values{"enabled": true}
	for key, value := range further {
		values[key] = value
	}
	return helm.Values{"readinessGates": helm.Values{"enabled": true, "webhook": values}}
}

// TestReadinessGates checks the flags, and that the chart creates nothing for a webhook that is off.
func TestReadinessGates(t *testing.T) {
	t.Parallel()
	set := objects.Render(t, chart, nil)
	assert.Equal(t, []string{"--readiness-gates=false"}, flagsOf(objects.Container(t, set), "--readiness-gate"))
	assert.Empty(t, objects.All[admissionregistrationv1.MutatingWebhookConfiguration](t, set))

	set = objects.Render(t, chart, helm.Values{"readinessGates": helm.Values{"enabled": true, "timeout": "90s"}})
	assert.Equal(t, []string{"--readiness-gates=true", "--readiness-gate-timeout=90s"}, flagsOf(objects.Container(t, set), "--readiness-gate"))
	assert.Empty(t, flagsOf(objects.Container(t, set), "--webhook-"))
	assert.Empty(t, objects.All[admissionregistrationv1.MutatingWebhookConfiguration](t, set))
	assert.Empty(t, objects.All[corev1.Secret](t, set))
}

// TestWebhookSelects checks which pods the API server asks the webhook about: those with the label, and those of namespaces with it.
func TestWebhookSelects(t *testing.T) {
	t.Parallel()
	set := objects.Render(t, chart, webhook(nil))
	configuration := objects.The[admissionregistrationv1.MutatingWebhookConfiguration](t, set)
	assert.Equal(t, "system-release-backendset-syncer", configuration.Name, "the name of a subdomain, unlike those of ClusterRoles")
	require.Len(t, configuration.Webhooks, 2)
	byNamespace, byPod := &configuration.Webhooks[0], &configuration.Webhooks[1]
	assert.Equal(t, map[string]string{injectLabel: "enabled"}, byNamespace.NamespaceSelector.MatchLabels)
	assert.Nil(t, byNamespace.ObjectSelector)
	assert.Empty(t, byPod.NamespaceSelector.MatchLabels)
	assert.Equal(t, map[string]string{injectLabel: "enabled"}, byPod.ObjectSelector.MatchLabels)
	assert.Contains(t, byPod.NamespaceSelector.MatchExpressions, notIn(injectLabel, "enabled"), "the first webhook has these namespaces")
	for _, w := range configuration.Webhooks {
		assert.Contains(t, w.NamespaceSelector.MatchExpressions, notIn(corev1.LabelMetadataName, "kube-system", "system"), w.Name)
		require.Len(t, w.Rules, 1)
		assert.Equal(t, []admissionregistrationv1.OperationType{admissionregistrationv1.Create}, w.Rules[0].Operations)
		assert.Equal(t, []string{"pods"}, w.Rules[0].Resources)
		assert.Equal(t, admissionregistrationv1.Ignore, *w.FailurePolicy, "it must never stop pods")
		assert.Equal(t, admissionregistrationv1.SideEffectClassNone, *w.SideEffects)
		assert.Equal(t, admissionregistrationv1.IfNeededReinvocationPolicy, *w.ReinvocationPolicy)
		assert.Equal(t, int32(2), *w.TimeoutSeconds)
		assert.Equal(t, []string{"v1"}, w.AdmissionReviewVersions)
	}
}

// notIn is an expression of a label selector.
func notIn(label string, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: label, Operator: metav1.LabelSelectorOpNotIn, Values: values}
}

// TestWebhookIsReached follows the way from the API server to the program: the Service, its port, the container and the flags.
func TestWebhookIsReached(t *testing.T) {
	t.Parallel()
	values := webhook(helm.Values{"port": 8443})
	values["networkPolicy"] = helm.Values{"enabled": true, "webhook": helm.Values{"from": []any{helm.Values{"ipBlock": helm.Values{"cidr": "10.0.0.1/32"}}}}}
	set := objects.Render(t, chart, values)
	service, container := objects.The[corev1.Service](t, set), objects.Container(t, set)
	for _, w := range objects.The[admissionregistrationv1.MutatingWebhookConfiguration](t, set).Webhooks {
		to := w.ClientConfig.Service
		assert.Equal(t, [2]string{service.Namespace, service.Name}, [2]string{to.Namespace, to.Name})
		assert.Equal(t, "/mutate-pods", *to.Path)
		assert.Equal(t, int32(443), *to.Port)
	}
	require.Len(t, service.Spec.Ports, 2)
	assert.Equal(t, int32(443), service.Spec.Ports[1].Port)
	assert.Equal(t, "webhook", service.Spec.Ports[1].TargetPort.String())
	assert.Contains(t, container.Ports, corev1.ContainerPort{Name: "webhook", ContainerPort: 8443})
	assert.Equal(t, []string{"--webhook-address=:8443", "--webhook-certificates=/etc/fairlead/webhook"}, flagsOf(container, "--webhook-"))
	assert.Equal(t, []corev1.VolumeMount{{Name: "webhook-certificate", MountPath: "/etc/fairlead/webhook", ReadOnly: true}}, container.VolumeMounts)
	assert.Equal(t, objects.The[corev1.Secret](t, set).Name, objects.Pod(t, set).Spec.Volumes[0].Secret.SecretName)
	rule := objects.The[networkingv1.NetworkPolicy](t, set).Spec.Ingress[0]
	assert.Equal(t, "webhook", rule.Ports[0].Port.String())
	assert.Equal(t, "10.0.0.1/32", rule.From[0].IPBlock.CIDR)
}

// TestWebhookCertificate checks the certificate that the chart makes as the API server does.
func TestWebhookCertificate(t *testing.T) {
	t.Parallel()
	set := objects.Render(t, chart, webhook(nil))
	secret := objects.The[corev1.Secret](t, set)
	assert.Equal(t, corev1.SecretTypeTLS, secret.Type)
	certificate, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	require.NoError(t, err)
	for _, w := range objects.The[admissionregistrationv1.MutatingWebhookConfiguration](t, set).Webhooks {
		authorities := x509.NewCertPool()
		require.True(t, authorities.AppendCertsFromPEM(w.ClientConfig.CABundle))
		_, err = certificate.Leaf.Verify(x509.VerifyOptions{DNSName: w.ClientConfig.Service.Name + ".system.svc", Roots: authorities})
		require.NoError(t, err)
	}
}

// TestWebhookCertificateStays renders an upgrade, at an API server that has the Secret of the installation.
func TestWebhookCertificateStays(t *testing.T) {
	t.Parallel()
	set := objects.Render(t, chart, webhook(nil))
	installed := objects.The[corev1.Secret](t, set)
	upgraded := upgrade(t, set, installed)
	assert.Equal(t, installed.Data, objects.The[corev1.Secret](t, upgraded).Data)
	for _, w := range objects.The[admissionregistrationv1.MutatingWebhookConfiguration](t, upgraded).Webhooks {
		assert.Equal(t, installed.Data["ca.crt"], w.ClientConfig.CABundle)
	}
	delete(installed.Data, "ca.crt")
	repaired := objects.The[corev1.Secret](t, upgrade(t, set, installed))
	assert.Len(t, repaired.Data, 3)
	assert.NotEqual(t, installed.Data[corev1.TLSCertKey], repaired.Data[corev1.TLSCertKey], "a certificate without its authority is of no use")
}

// upgrade renders the chart at an API server that knows the kinds of some objects, and has one Secret.
func upgrade(t *testing.T, known objects.Set, secret *corev1.Secret) objects.Set {
	t.Helper()
	answers := discovery(known)
	answers["/version"] = map[string]string{"major": "1", "minor": "37", "gitVersion": "v1.37.0"}
	answers["/api/v1/namespaces/"+secret.Namespace+"/secrets/"+secret.Name] = secret
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, found := answers[r.URL.Path]
		if !found {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(answer))
	}))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{clusters: [{name: c, cluster: {server: "`+server.URL+`"}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}`), 0o600))
	set, err := helm.Template(chart, webhook(nil), "--dry-run=server", "--is-upgrade", "--disable-openapi-validation", "--kubeconfig", kubeconfig)
	require.NoError(t, err)
	return set
}

// discovery returns what an API server that knows the kinds of some objects tells its clients, by path.
func discovery(set objects.Set) map[string]any {
	groups := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	answers := map[string]any{"/api": &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}, "/apis": groups}
	for _, o := range set {
		kind := o.GroupVersionKind()
		version := metav1.GroupVersionForDiscovery{GroupVersion: kind.GroupVersion().String(), Version: kind.Version}
		path := "/apis/" + version.GroupVersion
		if kind.Group == "" {
			path = "/api/v1"
		}
		if answers[path] == nil {
			answers[path] = &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version.GroupVersion}
			if kind.Group != "" {
				groups.Groups = append(groups.Groups, metav1.APIGroup{Name: kind.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
			}
		}
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		list := answers[path].(*metav1.APIResourceList)
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: plural.Resource, Kind: kind.Kind, Namespaced: o.GetNamespace() != "", Verbs: metav1.Verbs{"get"}})
	}
	return answers
}

// TestExistingCertificate checks certificates that the chart does not make.
func TestExistingCertificate(t *testing.T) {
	t.Parallel()
	const authority = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
	tests := []struct {
		name        string
		give        helm.Values
		caBundle    string
		annotations map[string]string
	}{
		{name: "authority", give: helm.Values{"caBundle": authority}, caBundle: authority},
		{
			name: "cert-manager", give: helm.Values{"annotations": helm.Values{"cert-manager.io/inject-ca-from": "system/webhook"}},
			annotations: map[string]string{"cert-manager.io/inject-ca-from": "system/webhook"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.give["certificateSecret"] = "webhook-tls"
			set := objects.Render(t, chart, webhook(tt.give))
			assert.Empty(t, objects.All[corev1.Secret](t, set))
			assert.Equal(t, "webhook-tls", objects.Pod(t, set).Spec.Volumes[0].Secret.SecretName)
			configuration := objects.The[admissionregistrationv1.MutatingWebhookConfiguration](t, set)
			assert.Equal(t, tt.annotations, configuration.Annotations)
			for _, w := range configuration.Webhooks {
				assert.Equal(t, tt.caBundle, string(w.ClientConfig.CABundle))
			}
		})
	}
}
