package ome

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// externalPrefixes are the prefixes of annotations that OME copies to the Service with the service's own name.
var externalPrefixes = []string{"service.beta.kubernetes.io/", "cloud.google.com/", "service.kubernetes.io/"}

// podOnlyPrefixes are the prefixes of annotations that OME copies to pods, and not to Services (constants.PodOnlyAnnotationPrefixes).
var podOnlyPrefixes = []string{
	"k8s.grafana.com/", "loki.grafana.com/", "prometheus.io/", "networking.gke.io/", "rdma.ome.io/",
	"ome.io/inject-model-init", "ome.io/inject-fine-tuned-adapter", "ome.io/inject-serving-sidecar",
}

// buildService returns the Service of a component.
func buildService(s *inferenceService, c *component) *corev1.Service {
	annotations, labels := c.annotations(s), c.labels(s)
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return slices.ContainsFunc(podOnlyPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
	})
	if c.referenced { // the replica's own labels and annotations stay on its pods
		annotations, labels = nil, map[string]string{LabelService: s.Name, LabelComponent: string(c.role)}
	}
	if c.mode == modeRaw {
		labels[labelApp] = c.name
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: c.name, Namespace: s.Namespace, Labels: labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{s.owner()},
		},
		Spec: corev1.ServiceSpec{Type: serviceType(annotations), Ports: c.ports(), Selector: c.selector()},
	}
	if service.Spec.Type == corev1.ServiceTypeLoadBalancer {
		service.Spec.LoadBalancerIP = annotations[annotationLoadBalancerIP]
	}
	return service
}

// buildExternal returns the Service for clients while OME's ingress is disabled. In mode OMENative it also selects workers.
func buildExternal(s *inferenceService, entry *component) *corev1.Service {
	annotations := map[string]string{}
	for key, value := range s.Annotations {
		for _, prefix := range externalPrefixes {
			if strings.HasPrefix(key, prefix) && key != prefix {
				annotations[key] = value
			}
		}
	}
	selector := map[string]string{LabelService: entry.prefix, LabelComponent: string(entry.role)}
	if entry.legacy {
		delete(selector, LabelComponent) // pods created before the migration do not have this label
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

// serviceType returns the type of a Service from its annotation. The annotation is case-sensitive; any other text means ClusterIP.
func serviceType(annotations map[string]string) corev1.ServiceType {
	switch t := corev1.ServiceType(annotations[annotationServiceType]); t {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		return t
	}
	return corev1.ServiceTypeClusterIP
}

// buildDeployment returns the Deployment of a component in a mode other than OMENative. In mode MultiNode it replaces the leaders
// of OME's LeaderWorkerSet. The Deployment of the mode before stays: OME 1.2 cleans up only after removed components.
func buildDeployment(s *inferenceService, c *component, o *Options) *appsv1.Deployment {
	container := c.served(o)
	pods := merge(c.selector(), c.labels(s), map[string]string{labelApp: c.name}) // those of the service win: see selector
	name, selector := c.name, map[string]string{labelApp: c.name}
	if c.mode == modeMultiNode {
		name += leadersOfSet
		pods[labelSet], selector = name, map[string]string{labelSet: name}
	}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: s.Namespace, Labels: c.labels(s), OwnerReferences: []metav1.OwnerReference{s.owner()},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: c.MinReplicas, // what the autoscaler of OME does
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: pods, Annotations: c.annotations(s)},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{container}},
			},
		},
	}
	if c.mode == modeRaw {
		deployment.Annotations = c.annotations(s)
		if c.externalScaling(s) {
			deployment.Spec.Replicas = nil
		}
	}
	deployment.Annotations = merge(deployment.Annotations, map[string]string{annotationHash: digest(deployment)})
	return deployment
}

// buildWorkers returns the Deployment that replaces the workers of a LeaderWorkerSet, or nil. Its pods have the labels of
// leaders, except app and the node type, and labelSet (lws_reconciler.go: createLWS).
func buildWorkers(s *inferenceService, c *component, o *Options) *appsv1.Deployment {
	if c.mode != modeMultiNode || c.Worker == nil {
		return nil
	}
	count := c.desired()
	if c.Worker.Size != nil {
		count *= *c.Worker.Size
	}
	worker := (&component{componentSpec: &componentSpec{podSpec: c.Worker.podSpec}}).served(o)
	worker.Ports, worker.ReadinessProbe = nil, nil
	name := c.name + workersOfSet
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: s.Namespace, Labels: c.labels(s), OwnerReferences: []metav1.OwnerReference{s.owner()},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: &count, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{labelSet: name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: merge(c.labels(s), map[string]string{labelSet: name}), Annotations: c.annotations(s)},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{worker}},
			},
		},
	}
	deployment.Annotations = map[string]string{annotationHash: digest(deployment)}
	return deployment
}

// deployments returns the names of the Deployments of a component.
func (c *component) deployments() []string {
	switch {
	case c.mode == modeNative && c.workers > 0:
		return []string{c.name + "-" + runnerLeader, c.name + "-" + runnerWorker}
	case c.mode == modeNative:
		return []string{c.name + "-" + runnerDefault}
	case c.mode == modeMultiNode && c.Worker != nil:
		return []string{c.name + leadersOfSet, c.name + workersOfSet}
	case c.mode == modeMultiNode:
		return []string{c.name + leadersOfSet}
	}
	return []string{c.name}
}

// served returns the container of a component. It adds the image, arguments and readiness probe that the specification omits.
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

// rule is a host of an Ingress and the component that serves it.
type rule struct {
	host    string
	backend *component
}

// buildIngress returns OME's own Ingress. It has all annotations of the InferenceService, and no labels.
func buildIngress(s *inferenceService, c configuration, r Release, rules []rule) *networkingv1.Ingress {
	prefix := networkingv1.PathTypePrefix
	ingress := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.Name, Namespace: s.Namespace, Annotations: s.Annotations, OwnerReferences: []metav1.OwnerReference{s.owner()},
		},
		Spec: networkingv1.IngressSpec{IngressClassName: c.IngressClassName},
	}
	for _, rule := range rules {
		port, name := int32(defaultPort), s.Name+"-"+string(rule.backend.role) // release 1.2 ignores the port of the Service, and does not truncate its name
		if r == Release13 {
			port, name = rule.backend.ports()[0].Port, rule.backend.name
		}
		ingress.Spec.Rules = append(ingress.Spec.Rules, networkingv1.IngressRule{
			Host: rule.host,
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: &prefix,
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
					Name: name, Port: networkingv1.ServiceBackendPort{Number: port},
				}},
			}}}},
		})
	}
	return ingress
}

// digest returns a short hash of the JSON of a value.
func digest(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("API object is not JSON: %v", err)) // unreachable: API objects consist of JSON values
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:hashSize]
}
