package ome

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"fairlead.dev/pkg/controller"
)

// mode is how the pods of a component are run.
type mode string

const (
	modeServerless mode = "Serverless"
	modeRaw        mode = "RawDeployment"
	modeMultiNode  mode = "MultiNode"
	modeRay        mode = "MultiNodeRayVLLM"
	modeNative     mode = "OMENative"
	modeVirtual    mode = "VirtualDeployment"
)

const (
	maxName       = 63 // of a Service
	hashSize      = 8
	defaultPort   = 8080
	containerName = "ome-container" // of a component that names no container
)

// component is one component of a service that is to be there.
type component struct {
	*componentSpec

	role   Role
	mode   mode
	name   string // of its Service and its Deployment
	legacy bool   // it comes of spec.predictor
}

var (
	errNoEngine = errors.New("there is no engine")
	errKnative  = errors.New("the deployment mode is Serverless, and there is no Knative")
)

// components returns what a service consists of, the engine first.
func components(s *inferenceService, o *Options) ([]component, error) {
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
		c := component{componentSpec: found[r], role: r, name: truncate(s.Name + "-" + string(r)), legacy: legacy && r == Engine}
		if o.Release == Release12 {
			c.mode = mode12(r, found)
		} else {
			c.mode = mode13(s, found[r])
		}
		if c.mode == modeServerless {
			return nil, controller.Terminal("ServerlessModeRejected", errKnative)
		}
		list = append(list, c)
	}
	return list, nil
}

// declared returns the components of the specification. A predictor is an engine if there is no other.
func declared(s *inferenceService) map[Role]*componentSpec {
	found := map[Role]*componentSpec{Engine: s.Spec.Engine, Decoder: s.Spec.Decoder, Router: s.Spec.Router}
	if found[Engine] == nil && s.Spec.Predictor != nil {
		found[Engine] = &s.Spec.Predictor.componentSpec
	}
	return found
}

// addRuntime adds the components that the specification leaves to the runtime.
func addRuntime(s *inferenceService, o *Options, found map[Role]*componentSpec) {
	for _, r := range roles {
		brings, said := s.listed(AnnotationRuntime, r)
		if !said {
			brings = slices.Contains(o.Runtime, r)
		}
		if brings && found[r] == nil {
			found[r] = &componentSpec{}
		}
	}
}

// mode12 is how release 1.2 runs a component. An annotation counts for an engine only, and without replicas everything but a
// decoder is Serverless; but never an engine beside a decoder.
func mode12(r Role, found map[Role]*componentSpec) mode {
	c, said := found[r], mode(found[r].Annotations[annotationMode])
	m := modeRaw
	switch {
	case r == Engine && slices.Contains([]mode{modeServerless, modeRaw, modeMultiNode, modeRay}, said):
		m = said
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

// mode13 is how release 1.3 runs a component. It has no Knative.
func mode13(s *inferenceService, c *componentSpec) mode {
	for _, said := range []mode{mode(s.Spec.DeploymentMode), mode(c.Annotations[annotationMode])} {
		if said == modeNative || said == modeRaw || said == modeMultiNode && c.nodes() {
			return said
		}
	}
	if c.nodes() {
		return modeNative
	}
	return modeRaw
}

// nodes reports whether one replica is on several nodes.
func (c *componentSpec) nodes() bool { return c.Leader != nil || c.Worker != nil }

// truncate returns the name of a Service. One that is too long is cut from the front, and begins with a hash of all of it.
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

// container is the first container of the pods that answer requests, one without ports if the specification has none.
func (c *componentSpec) container() corev1.Container {
	for _, p := range []*podSpec{&c.podSpec, c.Leader} {
		switch {
		case p == nil:
		case p.Runner != nil:
			return *p.Runner
		case len(p.Containers) > 0:
			return p.Containers[0]
		}
	}
	return corev1.Container{Name: containerName}
}

// ports are those of the Service: the first container's, or else one that has the container's name.
func (c *component) ports() []corev1.ServicePort {
	container := c.container()
	var ports []corev1.ServicePort
	for _, p := range container.Ports {
		ports = append(ports, servicePort(p.Name, p.ContainerPort, p.Protocol))
	}
	if len(ports) == 0 {
		ports = append(ports, servicePort(container.Name, defaultPort, ""))
	}
	if c.mode == modeRay {
		ports = append(ports, servicePort("dashboard", 8265, ""), servicePort("ray-http", 8000, ""))
	}
	return ports
}

func servicePort(name string, number int32, protocol corev1.Protocol) corev1.ServicePort {
	if protocol == "" {
		protocol = corev1.ProtocolTCP
	}
	return corev1.ServicePort{Name: name, Port: number, TargetPort: intstr.FromInt32(number), Protocol: protocol}
}

// selector is that of the Service. Of pods on several nodes it takes the heads, and those of every service in the namespace.
func (c *component) selector() map[string]string {
	if c.mode == modeMultiNode || c.mode == modeRay {
		return map[string]string{labelNodeType: nodeHead}
	}
	return map[string]string{labelApp: c.name}
}

// labels are those of what is made for a component, and of its pods.
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

// annotations are, likewise, the service's own: a change of them restarts pods.
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
