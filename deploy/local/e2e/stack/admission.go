package stack

import (
	"context"
	_ "embed"
	"encoding/base64"
	"strings"

	"fairlead.dev/pkg/kubetest/cluster"
)

const (
	nginxNamespace = "ingress-nginx"
	admission      = "admission" // Deployment and Service of the webhook
)

//go:embed admission.yaml
var admissionManifest string

// admissionRegistration registers the webhook, with the rules of ingress-nginx's chart. CERTIFICATE is filled in.
const admissionRegistration = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: ingress-nginx-admission
webhooks:
- name: validate.nginx.ingress.kubernetes.io
  admissionReviewVersions: [v1]
  sideEffects: None
  matchPolicy: Equivalent
  failurePolicy: Fail
  clientConfig:
    caBundle: CERTIFICATE
    service: {name: admission, namespace: ingress-nginx, path: /ingress-nginx}
  rules:
  - {apiGroups: [networking.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [ingresses]}
`

// InstallIngressNginxAdmission installs the admission webhook of ingress-nginx and waits until it is ready. It validates the
// Ingresses of every class whose controller is k8s.io/ingress-nginx, whichever program serves them.
func InstallIngressNginxAdmission(ctx context.Context, c *cluster.Cluster, tag string) error {
	certificate, key, err := SelfSigned(admission + "." + nginxNamespace + ".svc")
	if err != nil {
		return err
	}
	fill := strings.NewReplacer("IMAGE", image("webhook", tag), "CERTIFICATE", base64.StdEncoding.EncodeToString(certificate), "KEY", base64.StdEncoding.EncodeToString(key))
	if err := c.Apply(ctx, fill.Replace(admissionManifest)); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "-n", nginxNamespace, "rollout", "status", "deployment/"+admission, WaitTimeout); err != nil {
		return err
	}
	return c.Apply(ctx, fill.Replace(admissionRegistration))
}
