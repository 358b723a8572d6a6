// Package isvc reads InferenceServices of OME (ome.io/v1beta1) into what routing wants to know of them.
//
// OME's Go module is not imported: what is read here is the same in its releases 1.2 and 1.3, and each object is read by
// itself, so that one that cannot be is an error of its own. Fields that nobody asks for may have any form.
package isvc

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Resource is where InferenceServices are.
var Resource = schema.GroupVersionResource{Group: "ome.io", Version: "v1beta1", Resource: "inferenceservices"}

// Role is what a component of a service does.
type Role string

// The roles. What clients send goes to the router, or where there is none to the engine, and never to the decoder: it has
// no prompts.
const (
	Router  Role = "router"
	Engine  Role = "engine"
	Decoder Role = "decoder"
)

// Roles are all of them, the entry before others.
var Roles = []Role{Router, Engine, Decoder}

// Mode is how the pods of a component are run.
type Mode string

// The modes that OME knows, in one release or the other.
const (
	Serverless        Mode = "Serverless" // Knative
	RawDeployment     Mode = "RawDeployment"
	MultiNode         Mode = "MultiNode"
	MultiNodeRayVLLM  Mode = "MultiNodeRayVLLM"
	OMENative         Mode = "OMENative"
	VirtualDeployment Mode = "VirtualDeployment" // the model is served elsewhere
)

// Annotations and labels that are read.
const (
	ModeAnnotation      = "ome.io/deploymentMode"
	ModeAnnotationTypo  = "ome.io/deployment-mode" // so in OME's documentation, and never read by it
	labelVisibility     = "networking.knative.dev/visibility"
	labelVisibilityOME  = "networking.ome.io/visibility" // defined by OME, and never read by it
	visibleClusterLocal = "cluster-local"
)

// Service is one InferenceService.
type Service struct {
	Namespace, Name     string
	UID                 types.UID
	Generation          int64
	Created             time.Time
	Deleting            bool
	Labels, Annotations map[string]string // must not be changed

	Mode       Mode                // of all components, by the specification or an annotation; empty if it does not say
	Components map[Role]*Component // by the specification
	Reported   map[Role]bool       // components that OME reports in the status
	Conditions []Condition         // in their order

	Version       string // resourceVersion
	HasStatus     bool   // there is a status
	HasConditions bool   // there is a list of conditions
}

// Component is what the specification says of one component.
type Component struct {
	Timeout     time.Duration // of a request; 0 if it does not say
	MinReplicas *int64        // nil if it does not say
	Nodes       bool          // one replica is on several nodes: a leader and workers
	Mode        Mode          // by an annotation; empty if it does not say
}

// Condition is a condition of a service, exactly as OME keeps it: others of its fields would be lost with its next write.
type Condition struct {
	Type               string
	Status             metav1.ConditionStatus
	Severity           string
	LastTransitionTime string // as it stands there
	Reason, Message    string
}

// ClusterLocal reports whether the service is to be reached from within the cluster only.
func (s *Service) ClusterLocal() bool {
	return s.Labels[labelVisibility] == visibleClusterLocal || s.Labels[labelVisibilityOME] == visibleClusterLocal
}

// Ready reports whether OME says that a component is.
func (s *Service) Ready(r Role) bool {
	kind := map[Role]string{Router: "RouterReady", Engine: "EngineReady", Decoder: "DecoderReady"}[r]
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return s.Conditions[i].Status == metav1.ConditionTrue
		}
	}
	return false
}

// Surroundings is what tells, beside the specification, how a component is run.
type Surroundings struct {
	Knative bool // there is a Knative Service that is this component
	Decoder bool // the service has a decoder
}

// ComponentMode infers how a component is run.
//
//	VirtualDeployment of the whole                         VirtualDeployment
//	Knative has it, and minReplicas 0 or Serverless        Serverless, but for an engine beside a decoder
//	another mode of the component                          that
//	another mode of the whole                              that
//	leader or worker                                       MultiNode
//	anything else                                          RawDeployment
//
// Without a Knative Service nothing is Serverless, whatever the specification says: OME 1.3 has no Knative.
func (s *Service) ComponentMode(r Role, in Surroundings) Mode {
	if s.Mode == VirtualDeployment {
		return VirtualDeployment
	}
	c := s.Components[r]
	if c == nil {
		c = &Component{}
	}
	if in.Knative && s.serverless(c) && !(r == Engine && in.Decoder) {
		return Serverless
	}
	for _, m := range []Mode{c.Mode, s.Mode} {
		if m != "" && m != Serverless {
			return m
		}
	}
	if c.Nodes {
		return MultiNode
	}
	return RawDeployment
}

// serverless reports whether OME 1.2 runs a component with Knative. That a mode is given beside minReplicas 0 does not help.
func (s *Service) serverless(c *Component) bool {
	return c.MinReplicas != nil && *c.MinReplicas == 0 || c.Mode == Serverless || s.Mode == Serverless
}
