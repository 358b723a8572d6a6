package ome

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"fairlead.dev/pkg/controller"
)

// mode is a deployment mode: the way in which OME runs the pods of a component.
type mode string

const (
	modeServerless mode = "Serverless"
	modeRaw        mode = "RawDeployment"
	modeMultiNode  mode = "MultiNode"
	modeRay        mode = "MultiNodeRayVLLM"
	modeNative     mode = "OMENative"
	modeVirtual    mode = "VirtualDeployment"

	modeDisaggregated mode = "PDDisaggregated" // only in the annotation of a service
)

const (
	maxName       = 63 // characters of a Service's name
	hashSize      = 8
	defaultPort   = 8080
	containerName = "ome-container" // default name
)

// component is a component that OME reconciles.
type component struct {
	*componentSpec

	role   Role
	mode   mode
	name   string // of its Service and its Deployment
	prefix string // value of LabelService on its pods
	legacy bool   // from spec.predictor

	runtimePorts []corev1.ContainerPort // of the serving runtime

	// Mode OMENative.
	replica    string // name of the InferenceReplica
	referenced bool   // a user created the InferenceReplica
	workers    int32  // of each leader; 0: an instance is one pod
	leaderOnly bool   // OME's Service selects leaders
}

var (
	errNoEngine = errors.New("the InferenceService has no engine: set spec.engine")
	errKnative  = errors.New("deployment mode Serverless requires Knative Services, which the API server does not serve")
	errMode     = errors.New("invalid deployment mode")
)

// components returns the components of a service, the engine first. Components from spec.replicaRefs have an empty
// specification.
func components(s *inferenceService, o *Options) ([]component, error) {
	if s.referenced(Engine) != "" {
		return referencedComponents(s), nil
	}
	found := declared(s)
	legacy := found[Engine] != s.Spec.Engine
	if o.Release == Release13 {
		addRuntime(s, o, found)
	}
	if found[Engine] == nil {
		return nil, controller.Terminal("NoEngine", errNoEngine)
	}
	var list []component
	for _, r := range roles {
		if found[r] == nil {
			continue
		}
		c := component{componentSpec: found[r], role: r, name: truncate(s.Name + "-" + string(r)), prefix: s.Name, legacy: legacy && r == Engine, runtimePorts: s.runtimePorts(r)}
		if o.Release == Release12 {
			c.mode = mode12(r, found)
		} else {
			c.native(s)
		}
		if err := c.rejected(o.Release); err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// rejected returns an error if the component cannot have its mode.
func (c *component) rejected(r Release) error {
	switch {
	case c.mode == modeVirtual, r == Release13 && c.mode == modeMultiNode && c.role == Router:
		return controller.Terminal("ComponentReconcileError", fmt.Errorf("%s: %w: %s", c.role, errMode, c.mode))
	}
	return nil
}

// declared returns the components of the specification. If spec.engine is not set, the predictor is the engine.
func declared(s *inferenceService) map[Role]*componentSpec {
	found := map[Role]*componentSpec{Engine: s.Spec.Engine, Decoder: s.Spec.Decoder, Router: s.Spec.Router}
	if found[Engine] == nil && s.Spec.Predictor != nil {
		found[Engine] = &s.Spec.Predictor.componentSpec
	}
	return found
}

// referencedComponents returns the components of a service with replicaRefs, which exposes InferenceReplicas of a user.
func referencedComponents(s *inferenceService) []component {
	var list []component
	for _, r := range roles {
		if name := s.referenced(r); name != "" {
			list = append(list, component{
				componentSpec: &componentSpec{}, role: r, mode: modeNative, name: truncate(s.Name + "-" + string(r)), prefix: name, replica: name, referenced: true,
			})
		}
	}
	return list
}

// addRuntime adds the components that the specification omits and the serving runtime declares.
func addRuntime(s *inferenceService, o *Options, found map[Role]*componentSpec) {
	for _, r := range roles {
		added, annotated := s.listed(AnnotationRuntime, r)
		if !annotated {
			added = slices.Contains(o.Runtime, r)
		}
		if added && found[r] == nil {
			found[r] = &componentSpec{}
		}
	}
}

// mode12 returns the mode of a component in release 1.2: the annotation of an engine, else MultiNode for an engine or decoder with
// a leader or worker, else Serverless for an engine or router with minReplicas 0, else RawDeployment. An engine with a decoder is
// never Serverless.
func mode12(r Role, found map[Role]*componentSpec) mode {
	c, annotated := found[r], mode(found[r].Annotations[annotationMode])
	m := modeRaw
	switch {
	case r == Engine && slices.Contains([]mode{modeServerless, modeRaw, modeMultiNode, modeRay}, annotated):
		m = annotated
	case r != Router && c.nodes():
		m = modeMultiNode
	case r != Decoder && c.MinReplicas != nil && *c.MinReplicas == 0:
		m = modeServerless
	}
	if m == modeServerless && r == Engine && found[Decoder] != nil {
		return modeRaw
	}
	return m
}

// mode13 returns the mode of a component in release 1.3: the component's annotation, else spec.deploymentMode, else OMENative
// for an engine or decoder for which the InferenceService or the serving runtime declares a leader or worker, else
// RawDeployment (utils/deployment.go).
func (c *component) mode13(s *inferenceService, byRuntime int32) mode {
	annotated, declared := mode(c.Annotations[annotationMode]), mode(s.Spec.DeploymentMode)
	switch {
	case slices.Contains([]mode{modeRaw, modeNative, modeMultiNode, modeVirtual}, annotated):
		return annotated
	case declared == modeNative || declared == modeRaw:
		return declared
	case c.role != Router && (c.nodes() || byRuntime > 0):
		return modeNative
	}
	return modeRaw
}

// native sets the fields of release 1.3: the mode, and the fields of mode OMENative. OME's Service selects only leaders if the
// InferenceService declares the workers. Workers that the serving runtime declares also receive requests (IsMultiPodComponent).
func (c *component) native(s *inferenceService) {
	byRuntime, _ := s.number(AnnotationRuntimeWorkers, c.role)
	if c.mode = c.mode13(s, byRuntime); c.mode != modeNative {
		return
	}
	c.replica = s.Name + "-" + string(c.role)
	if c.role == Router {
		return
	}
	c.workers = byRuntime
	if c.Worker != nil {
		c.leaderOnly = true
		switch {
		case c.Worker.Size != nil:
			c.workers = *c.Worker.Size
		case byRuntime == 0:
			c.workers = 1 // the default of OME's admission
		}
	}
	c.leaderOnly = c.leaderOnly && c.workers > 0
}

// nodes reports whether a replica has a leader or workers.
func (c *componentSpec) nodes() bool { return c.Leader != nil || c.Worker != nil }

// truncate returns the name of a Service (constants.TruncateNameWithMaxLength). If the name is too long, a hash replaces its
// beginning.
func truncate(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := []byte(hex.EncodeToString(sum[:])[:hashSize])
	if hash[0] <= '9' {
		hash[0] = 'a'
	}
	return string(hash) + "-" + name[len(name)-(maxName-hashSize-1):]
}

// container returns the first container of the pods that serve requests: the leader's pods, unless there is no leader or the mode
// is RawDeployment. It has the ports of the specification, else those of the serving runtime.
func (c *component) container() corev1.Container {
	templates := []*podSpec{&c.podSpec}
	if c.Leader != nil && c.mode != modeRaw {
		templates = []*podSpec{c.Leader, &c.podSpec}
	}
	container := firstContainer(templates...)
	if len(container.Ports) == 0 {
		container.Ports = c.runtimePorts
	}
	return container
}

func firstContainer(templates ...*podSpec) corev1.Container {
	for _, p := range templates {
		switch {
		case p.Runner != nil:
			return *p.Runner
		case len(p.Containers) > 0:
			return p.Containers[0]
		}
	}
	return corev1.Container{Name: containerName}
}

// ports returns the ports of the Service: the ports of the first container, or the default port with the container's name. Mode
// MultiNodeRayVLLM adds the ports of Ray (reconcilers/service/ray_service_reconciler.go of 1.2), and names the default port after the
// component.
func (c *component) ports() []corev1.ServicePort {
	container := c.container()
	var ports []corev1.ServicePort
	for _, p := range container.Ports {
		ports = append(ports, servicePort(p.Name, p.ContainerPort, p.Protocol))
	}
	if len(ports) == 0 {
		name := container.Name
		if c.mode == modeRay {
			name = c.name
		}
		ports = append(ports, servicePort(name, defaultPort, ""))
	}
	if c.mode == modeRay {
		ports = append(ports, servicePort("dashboard", 8265, ""), servicePort("metrics", 8000, ""), servicePort("redis", 6379, ""))
	}
	return ports
}

func servicePort(name string, number int32, protocol corev1.Protocol) corev1.ServicePort {
	if protocol == "" {
		protocol = corev1.ProtocolTCP
	}
	return corev1.ServicePort{Name: name, Port: number, TargetPort: intstr.FromInt32(number), Protocol: protocol}
}

// selector returns the selector of the Service. In mode MultiNode it matches the leaders of all services in the namespace. In mode
// MultiNodeRayVLLM it matches no pods: OME gives the label the name of the component here, and that of the service on pods.
func (c *component) selector() map[string]string {
	switch c.mode {
	case modeRay:
		return map[string]string{
			"app.kubernetes.io/created-by": "kuberay-operator", "app.kubernetes.io/name": "kuberay", labelNodeType: nodeHead,
			LabelService: c.name,
		}
	case modeMultiNode:
		return map[string]string{labelNodeType: nodeHead}
	case modeNative:
		if c.leaderOnly {
			return merge(c.instances(), leaders)
		}
		return c.instances()
	}
	return map[string]string{labelApp: c.name}
}

// instances returns the labels that all pods of a component have in mode OMENative.
func (c *component) instances() map[string]string {
	return map[string]string{LabelService: c.prefix, LabelComponent: string(c.role), LabelManagedBy: managedByOMENative}
}

// leaders are the labels of leaders. The ordinal alone does not identify a leader: the ordinals of workers also start at 0.
var leaders = map[string]string{LabelRunner: runnerLeader, LabelOrdinal: "0"}

// revision returns the hash of the component's current revision.
func (c *component) revision() string { return digest(c.componentSpec) }

// desired returns the desired number of replicas.
func (c *component) desired() int32 {
	if c.MinReplicas == nil {
		return 1
	}
	return *c.MinReplicas
}

// labels returns the labels of the objects of a component and of its pods. Pods in mode OMENative have more: see buildSets.
func (c *component) labels(s *inferenceService) map[string]string {
	labels := merge(s.Labels, c.Labels)
	labels[LabelService] = s.Name
	labels[LabelComponent] = string(c.role)
	if s.Spec.Runtime != nil && s.Spec.Runtime.Name != "" {
		labels[labelRuntime] = s.Spec.Runtime.Name
	}
	if s.Spec.Model != nil && s.Spec.Model.Name != "" {
		labels[labelModel] = s.Spec.Model.Name
	}
	return labels
}

// annotations returns the annotations of the objects of a component and of its pods. They include the annotations of the
// InferenceService, so a change of one restarts the pods.
func (c *component) annotations(s *inferenceService) map[string]string {
	annotations := merge(s.Annotations, c.Annotations)
	for _, key := range neverPropagated {
		delete(annotations, key)
	}
	return annotations
}

func merge(all ...map[string]string) map[string]string {
	merged := map[string]string{}
	for _, m := range all {
		maps.Copy(merged, m)
	}
	return merged
}
