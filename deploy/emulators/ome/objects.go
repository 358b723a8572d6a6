package ome

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// externalPrefixes are those of annotations that go from a service to the Service of its name.
var externalPrefixes = []string{"service.beta.kubernetes.io/", "cloud.google.com/", "service.kubernetes.io/"}

// buildService returns the Service of a component.
func buildService(s *inferenceService, c *component) *corev1.Service {
	annotations := c.annotations(s)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: c.name, Namespace: s.Namespace, Labels: c.labels(s), Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{s.owner()},
		},
		Spec: corev1.ServiceSpec{Type: serviceType(annotations), Ports: c.ports(), Selector: c.selector()},
	}
	if service.Spec.Type == corev1.ServiceTypeLoadBalancer {
		service.Spec.LoadBalancerIP = annotations[annotationLoadBalancerIP]
	}
	return service
}

// buildRevisions returns the Services that release 1.3 makes for a component besides, in mode OMENative: that of its
// revision, which selects the pods of this revision only, and a headless one.
func buildRevisions(s *inferenceService, c *component) []*corev1.Service {
	build := func(name, revision string, selector map[string]string) *corev1.Service {
		service := buildService(s, c)
		service.Name = truncate(name)
		service.Labels[labelRevision] = revision
		service.Spec.Type, service.Spec.LoadBalancerIP, service.Spec.Selector = corev1.ServiceTypeClusterIP, "", selector
		return service
	}
	revision := digest(c.componentSpec)
	headless := build(c.name+"-headless", "headless", c.selector())
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	return []*corev1.Service{
		build(c.name+"-rev-"+revision, revision, merge(c.selector(), map[string]string{labelRevision: revision})),
		headless,
	}
}

// buildExternal returns the Service by which clients reach a service while OME makes no ingress.
func buildExternal(s *inferenceService, entry *component) *corev1.Service {
	annotations := map[string]string{}
	for key, value := range s.Annotations {
		for _, prefix := range externalPrefixes {
			if strings.HasPrefix(key, prefix) && key != prefix {
				annotations[key] = value
			}
		}
	}
	selector := map[string]string{LabelService: s.Name, LabelComponent: string(entry.role)}
	if entry.legacy {
		delete(selector, LabelComponent) // pods of before the migration do not have it
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Name, Namespace: s.Namespace, Annotations: annotations,
			Labels:          map[string]string{LabelService: s.Name, LabelComponent: componentExternal},
			OwnerReferences: []metav1.OwnerReference{s.owner()},
		},
		Spec: corev1.ServiceSpec{
			Type: serviceType(s.Annotations), Selector: selector,
			Ports: []corev1.ServicePort{servicePort("http", entry.ports()[0].Port, "")},
		},
	}
}

// serviceType is case-sensitive; what is no type is ClusterIP.
func serviceType(annotations map[string]string) corev1.ServiceType {
	switch t := corev1.ServiceType(annotations[annotationServiceType]); t {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		return t
	}
	return corev1.ServiceTypeClusterIP
}

// buildDeployment returns the Deployment of a component. Of one on several nodes it has the heads alone.
func buildDeployment(s *inferenceService, c *component, o *Options) *appsv1.Deployment {
	container := c.served(o)
	pods := merge(c.labels(s), c.selector(), map[string]string{labelApp: c.name, labelRevision: digest(c.componentSpec)})
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: c.name, Namespace: s.Namespace, Labels: c.labels(s), OwnerReferences: []metav1.OwnerReference{s.owner()},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: c.MinReplicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{labelApp: c.name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: pods, Annotations: c.annotations(s)},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{container}},
			},
		},
	}
	deployment.Annotations = map[string]string{annotationHash: digest(deployment)}
	return deployment
}

// served is the container of a component, with what it leaves to its runtime: what to run, and when that is ready.
func (c *component) served(o *Options) corev1.Container {
	container := c.container()
	container.Name, container.Image = cmp.Or(container.Name, containerName), cmp.Or(container.Image, o.PodImage)
	if len(container.Args) == 0 {
		container.Args = o.PodArgs
	}
	if container.ReadinessProbe == nil {
		container.ReadinessProbe = &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: c.ports()[0].TargetPort}}, PeriodSeconds: 1,
		}
	}
	return container
}

// rule is a host of an Ingress and the component behind it.
type rule struct {
	host    string
	backend *component
}

// buildIngress returns the Ingress that OME makes for itself. It has the service's annotations, all of them, and no labels.
func buildIngress(s *inferenceService, c configuration, r Release, rules []rule) *networkingv1.Ingress {
	prefix := networkingv1.PathTypePrefix
	ingress := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Name, Namespace: s.Namespace, Annotations: s.Annotations, OwnerReferences: []metav1.OwnerReference{s.owner()},
		},
		Spec: networkingv1.IngressSpec{IngressClassName: c.IngressClassName},
	}
	for _, rule := range rules {
		port := int32(defaultPort) // in release 1.2, whatever the Service has
		if r == Release13 {
			port = rule.backend.ports()[0].Port
		}
		ingress.Spec.Rules = append(ingress.Spec.Rules, networkingv1.IngressRule{
			Host: rule.host,
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: &prefix,
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
					Name: rule.backend.name, Port: networkingv1.ServiceBackendPort{Number: port},
				}},
			}}}},
		})
	}
	return ingress
}

// digest is a short hash of what a value is in JSON.
func digest(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("API object is not JSON: %v", err)) // not reached: it came as JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:hashSize]
}
