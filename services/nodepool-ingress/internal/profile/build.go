package profile

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// DefaultImages returns the image of each profile.
func DefaultImages() map[string]string {
	return map[string]string{v1alpha1.ProfileTraefik: "docker.io/library/traefik:v3.7.9"}
}

// ImageRepositories returns the repositories whose images a profile may have by default.
func ImageRepositories(profile string) []string {
	if profile == v1alpha1.ProfileTraefik {
		return []string{"docker.io/library/traefik"}
	}
	return nil
}

// Build returns the objects of a pool.
func Build(install Install, pool Pool) (Built, []Problem) {
	if pool.Profile != v1alpha1.ProfileTraefik {
		return Built{}, []Problem{{Reason: v1alpha1.ReasonInvalid, Message: "profile " + pool.Profile + " is not supported"}}
	}
	name := "ingress-" + pool.Name
	image := pool.Image
	if image == "" {
		image = install.Images[pool.Profile]
	}
	labels := map[string]string{"app.kubernetes.io/name": "ingress", "app.kubernetes.io/instance": name}
	meta := func(kind, version, name string) (metav1.TypeMeta, metav1.ObjectMeta) {
		return metav1.TypeMeta{APIVersion: version, Kind: kind}, metav1.ObjectMeta{Name: name, Labels: labels}
	}
	class := &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: "traefik.io/ingress-controller"}}
	class.TypeMeta, class.ObjectMeta = meta("IngressClass", "networking.k8s.io/v1", pool.Class)
	account := &corev1.ServiceAccount{}
	account.TypeMeta, account.ObjectMeta = meta("ServiceAccount", "v1", name)
	binding := &rbacv1.ClusterRoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: install.ClusterRolePrefix + ":" + pool.Profile},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: install.Namespace}},
	}
	binding.TypeMeta, binding.ObjectMeta = meta("ClusterRoleBinding", "rbac.authorization.k8s.io/v1", install.Namespace+":"+name)
	service := &corev1.Service{Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Selector: labels, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
		Ports: []corev1.ServicePort{
			{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromString("http"), NodePort: pool.Exposure.HTTPPort},
			{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromString("https"), NodePort: pool.Exposure.HTTPSPort},
		},
	}}
	service.TypeMeta, service.ObjectMeta = meta("Service", "v1", name)
	deployment := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{
		Replicas: &pool.Replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, ProgressDeadlineSeconds: &pool.ProgressDeadline,
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{
				ServiceAccountName: name, NodeSelector: map[string]string{pool.LabelKey: pool.Name}, Tolerations: pool.Tolerations,
				Containers: []corev1.Container{{
					Name: "traefik", Image: image,
					Args: []string{
						"--entrypoints.http.address=:8000", "--entrypoints.https.address=:8443", "--ping=true", "--providers.kubernetesingress=true",
						"--providers.kubernetesingress.ingressclass=" + pool.Class,
						fmt.Sprintf("--providers.kubernetesingress.ingressendpoint.publishedservice=%s/%s", install.Namespace, name),
					},
					Ports: []corev1.ContainerPort{
						{Name: "http", ContainerPort: 8000, Protocol: corev1.ProtocolTCP}, {Name: "https", ContainerPort: 8443, Protocol: corev1.ProtocolTCP},
					},
				}},
			},
		},
	}}
	deployment.TypeMeta, deployment.ObjectMeta = meta("Deployment", "apps/v1", name)
	return Built{
		Objects: []Object{class, account, binding, service, deployment}, Workload: name, Service: name, Image: image,
	}, nil
}
