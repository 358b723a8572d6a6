package cluster_test

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

// webhookServer is a webhook in a pod; %s are certificate and key, in base64.
const webhookServer = `
apiVersion: v1
kind: Secret
metadata: {name: webhook}
type: kubernetes.io/tls
data: {tls.crt: %s, tls.key: %s}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: webhook}
spec:
  selector: {matchLabels: {app: webhook}}
  template:
    metadata: {labels: {app: webhook}}
    spec:
      automountServiceAccountToken: false
      containers:
      - name: webhook
        image: fairlead/webhook:race
        imagePullPolicy: IfNotPresent
        readinessProbe: {httpGet: {path: /healthz, port: 8443, scheme: HTTPS}, periodSeconds: 1}
        volumeMounts: [{name: certs, mountPath: /certs, readOnly: true}]
      volumes: [{name: certs, secret: {secretName: webhook}}]
---
apiVersion: v1
kind: Service
metadata: {name: webhook}
spec:
  selector: {app: webhook}
  ports: [{port: 443, targetPort: 8443}]
`

// webhookConfiguration registers it; %s is the certificate, in base64.
const webhookConfiguration = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: refuse}
webhooks:
- name: refuse.fairlead.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {caBundle: %s, service: {name: webhook, namespace: default, path: /validate}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}
`

func TestWebhook_ServedByAPodRefuses(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t)
	certificate, key, err := stack.SelfSigned("webhook.default.svc")
	require.NoError(t, err)
	crt := base64.StdEncoding.EncodeToString(certificate)
	require.NoError(t, c.Apply(t.Context(), fmt.Sprintf(webhookServer, crt, base64.StdEncoding.EncodeToString(key))))
	_, err = c.Kubectl(t.Context(), "rollout", "status", "deployment/webhook", "--timeout="+kubetest.Patience.String())
	require.NoError(t, err)
	require.NoError(t, c.Apply(t.Context(), fmt.Sprintf(webhookConfiguration, crt)))

	create := func(name string, labels map[string]string) error {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		_, err := c.Clientset().CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), cm, metav1.CreateOptions{})
		return err
	}
	require.EventuallyWithT(t, func(collect *assert.CollectT) { // the API server takes a moment to see the registration
		err := create("refused", map[string]string{"fairlead.dev/refuse": "not-today"})
		require.ErrorContains(collect, err, `admission webhook "refuse.fairlead.dev" denied the request: not-today`)
	}, kubetest.Patience, tick)
	assert.NoError(t, create("admitted", nil))
}
