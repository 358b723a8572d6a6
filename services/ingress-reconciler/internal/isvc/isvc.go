// Package isvc reads InferenceServices of OME (ome.io/v1beta1) into the few fields that routing needs.
//
// The package does not import OME's Go module. The fields have the same meaning in releases 1.2 and 1.3. Each object is decoded
// separately, so an unreadable object does not affect other objects. Fields that routing does not need may have any type.
package isvc

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/conditions"
)

// Resource is the resource of InferenceServices.
var Resource = schema.GroupVersionResource{Group: "ome.io", Version: "v1beta1", Resource: "inferenceservices"}

// Kind is the kind of InferenceServices.
var Kind = Resource.GroupVersion().WithKind("InferenceService")

// Role is the role of a component in an InferenceService.
type Role string

// The roles. Client requests go to the router, or to the engine if the service has no router. They never go to the decoder, which
// cannot process prompts.
const (
	Router  Role = "router"
	Engine  Role = "engine"
	Decoder Role = "decoder"
)

// Roles are all roles. Roles that can be the entry come first.
var Roles = []Role{Router, Engine, Decoder}

// ReadyTypes are the types of the conditions in which OME reports that components are ready.
var ReadyTypes = map[Role]string{Router: "RouterReady", Engine: "EngineReady", Decoder: "DecoderReady"}

// Mode is a deployment mode of OME: how OME runs the pods of a component.
type Mode string

// The modes of OME 1.2 and 1.3.
const (
	Serverless        Mode = "Serverless" // Knative; release 1.2
	RawDeployment     Mode = "RawDeployment"
	MultiNode         Mode = "MultiNode"
	MultiNodeRayVLLM  Mode = "MultiNodeRayVLLM"  // release 1.2
	OMENative         Mode = "OMENative"         // release 1.3
	VirtualDeployment Mode = "VirtualDeployment" // the model is served outside of OME
)

// Annotations and labels of an InferenceService that affect routing.
const (
	ModeAnnotation      = "ome.io/deploymentMode"
	ModeAnnotationTypo  = "ome.io/deployment-mode" // spelling of OME's documentation; OME itself does not read it
	labelVisibility     = "networking.knative.dev/visibility"
	labelVisibilityOME  = "networking.ome.io/visibility" // defined by OME, but OME does not read it
	visibleClusterLocal = "cluster-local"
)

// Service is one InferenceService.
type Service struct {
	Namespace, Name     string
	UID                 types.UID
	Created             time.Time
	Deleting            bool
	Labels, Annotations map[string]string // read-only

	Mode       Mode                // of all components, from the specification or an annotation; empty: not set
	Components map[Role]*Component // declared by the specification
	Reported   map[Role]bool       // components that OME reports in the status
	Serving    map[Role]bool       // components with ready and serving instances, as OME 1.3 reports in the status
	Conditions []Condition         // in the order of the object

	RuntimeComponents bool // the status is that of OME 1.3, where a serving runtime can add components

	Version       string // resourceVersion
	HasStatus     bool   // the object has a status
	HasConditions bool   // the status has a list of conditions
}

// Component is a component that the specification declares.
type Component struct {
	Timeout     time.Duration // of a request; 0: not set
	MinReplicas *int64        // nil: not set
	Nodes       bool          // a replica is a leader and workers
	Mode        Mode          // from an annotation; empty: not set
}

// Condition is a condition of a service with the six fields that OME keeps. OME drops other fields with its next write.
type Condition = conditions.Duck

// ClusterLocal reports whether the service must only be reachable from within the cluster.
func (s *Service) ClusterLocal() bool {
	return s.Labels[labelVisibility] == visibleClusterLocal || s.Labels[labelVisibilityOME] == visibleClusterLocal
}

// IsReady reports whether a component can back a route, by the rule of OME 1.3: its condition is True, or it is False while
// instances of the component are ready and serving. The condition is False, for example, while one of three instances
// serves and OME wants all three. Release 1.2 does not report instances.
func (s *Service) IsReady(r Role) bool {
	c := conditions.FindDuck(s.Conditions, ReadyTypes[r])
	return c != nil && (c.Status == metav1.ConditionTrue || c.Status == metav1.ConditionFalse && s.Serving[r])
}

// ModeContext are facts from outside the InferenceService that affect the mode of a component.
type ModeContext struct {
	Knative bool // the component is a Knative Service
	Decoder bool // the service has a decoder
}

// ComponentMode infers the mode of a component.
//
//	VirtualDeployment for the service                      VirtualDeployment
//	a Knative Service, and minReplicas 0 or Serverless     Serverless, except for an engine with a decoder
//	another mode set on the component                      that mode
//	another mode set on the service                        that mode
//	leader or worker                                       MultiNode (in release 1.3 OMENative: routing does not differ)
//	anything else                                          RawDeployment
//
// Without a Knative Service no component is Serverless, even if the specification asks for it: OME 1.3 does not support Knative.
func (s *Service) ComponentMode(r Role, in ModeContext) Mode {
	if s.Mode == VirtualDeployment {
		return VirtualDeployment
	}
	c := cmp.Or(s.Components[r], &Component{})
	if in.Knative && s.isServerless(c) && !(r == Engine && in.Decoder) {
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

// isServerless reports whether OME 1.2 runs a component with Knative. minReplicas 0 overrides the modes of component and service.
func (s *Service) isServerless(c *Component) bool {
	return c.MinReplicas != nil && *c.MinReplicas == 0 || c.Mode == Serverless || s.Mode == Serverless
}
