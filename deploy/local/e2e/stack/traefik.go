package stack

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// Namespace and name of Traefik: its Deployment, its Service, its Gateway, its GatewayClass and its IngressClass.
const (
	Traefik          = "traefik"
	TraefikNamespace = "traefik"
	// TraefikNginxClass is the class of Ingresses that were written for ingress-nginx.
	TraefikNginxClass = "nginx"
)

// TraefikExamples is the folder with the manifests of a user of Traefik, in the repository.
const TraefikExamples = "deploy/examples/ingress/traefik"

const traefikTarget = Traefik + "." + TraefikNamespace + ":web"

// traefikManifests are in TraefikExamples; the first creates the namespace.
var traefikManifests = []string{"rbac.yaml", "classes.yaml", "traefik.yaml", "gateway.yaml"}

// PublishTraefik requests a host address for Traefik.
func PublishTraefik(host string) func(*clusterapi.Config) { return publish(host, traefikTarget) }

// InstallTraefik installs Traefik and the kinds that it reads, and waits until it is ready and its Gateway programmed. Its
// Service waits for the address of a load balancer: see GiveAddress.
func InstallTraefik(ctx context.Context, c *cluster.Cluster) error {
	if err := InstallGatewayAPI(ctx, c); err != nil {
		return err
	}
	if err := applyKinds(ctx, c, "traefik.yaml"); err != nil {
		return err
	}
	for _, name := range traefikManifests {
		if err := ApplyExample(ctx, c, TraefikExamples, name); err != nil {
			return err
		}
	}
	if _, err := c.Kubectl(ctx, "-n", TraefikNamespace, "rollout", "status", "deployment/"+Traefik, WaitTimeout); err != nil {
		return err
	}
	_, err := c.Kubectl(ctx, "-n", TraefikNamespace, "wait", "--for=condition=Programmed", "gateways.gateway.networking.k8s.io/"+Traefik,
		WaitTimeout)
	return err
}

// GiveAddress assigns an address to a Service of type LoadBalancer, like a cloud.
func GiveAddress(ctx context.Context, c *cluster.Cluster, service types.NamespacedName, ip string) error {
	services := c.Clientset().CoreV1().Services(service.Namespace)
	s, err := services.Get(ctx, service.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get service %s: %w", service, err)
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip}}
	if _, err := services.UpdateStatus(ctx, s, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update status of service %s: %w", service, err)
	}
	return nil
}
