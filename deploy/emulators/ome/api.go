package ome

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Names that OME gives and reads.
const (
	APIVersion = "ome.io/v1beta1"
	Kind       = "InferenceService"
	Finalizer  = "inferenceservice.finalizers"
	ConfigName = "inferenceservice-config"

	LabelService    = "ome.io/inferenceservice"
	LabelComponent  = "component"
	labelRuntime    = "serving-runtime"
	labelModel      = "base-model-name"
	labelVisibility = "networking.knative.dev/visibility"
	labelApp        = "app"
	labelNodeType   = "ray.io/node-type"

	annotationMode           = "ome.io/deploymentMode"
	annotationServiceType    = "ome.io/service-type"
	annotationLoadBalancerIP = "ome.io/load-balancer-ip"
	annotationTemplate       = "ome.io/ingress-domain-template"
	annotationDomain         = "ome.io/ingress-domain"
	annotationScheme         = "ome.io/ingress-url-scheme"
	annotationDisable        = "ome.io/ingress-disable-creation"

	// componentExternal is what the Service of a service's own name says it is.
	componentExternal = "external-service"
	nodeHead          = "head"
)

// Annotations of an InferenceService by which a test plays what is not emulated.
const (
	// AnnotationReady lists the components that are ready; without it all are. It counts where there are no Deployments.
	AnnotationReady = "emulator.fairlead.dev/ready"
	// AnnotationRuntime lists the components that the runtime brings, instead of Options.Runtime.
	AnnotationRuntime = "emulator.fairlead.dev/runtime"

	// labelRevision marks the Services of revisions that OME 1.3 makes.
	labelRevision = "emulator.fairlead.dev/revision"
	// annotationHash is the hash of what a Deployment was made from.
	annotationHash = "emulator.fairlead.dev/template"
)

// neverPropagated are annotations that OME keeps from what it makes.
var neverPropagated = []string{
	"autoscaling.knative.dev/min-scale", "autoscaling.knative.dev/max-scale",
	"internal.ome.io/storage-initializer-sourceuri", corev1.LastAppliedConfigAnnotation,
}

// inferenceService is an InferenceService with the fields that OME knows, or as many of them as matter here.
type inferenceService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   spec   `json:"spec,omitempty"`
	Status status `json:"status,omitempty"`
}

type spec struct {
	Engine    *componentSpec `json:"engine,omitempty"`
	Decoder   *componentSpec `json:"decoder,omitempty"`
	Router    *componentSpec `json:"router,omitempty"`
	Predictor *predictorSpec `json:"predictor,omitempty"` // what engines were called before there were roles

	Model          *reference `json:"model,omitempty"`
	Runtime        *reference `json:"runtime,omitempty"`
	DeploymentMode string     `json:"deploymentMode,omitempty"` // release 1.3
}

type componentSpec struct {
	podSpec `json:",inline"`

	MinReplicas *int32            `json:"minReplicas,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Leader      *podSpec          `json:"leader,omitempty"`
	Worker      *podSpec          `json:"worker,omitempty"`
}

type podSpec struct {
	Runner     *corev1.Container  `json:"runner,omitempty"`
	Containers []corev1.Container `json:"containers,omitempty"`
}

type predictorSpec struct {
	componentSpec `json:",inline"`

	Model *reference `json:"model,omitempty"`
}

type reference struct {
	Name string `json:"name,omitempty"`
}

// status has the fields of OME's own type: what others write into the object besides is lost with its next write.
type status struct {
	ObservedGeneration int64                    `json:"observedGeneration,omitempty"`
	Conditions         []condition              `json:"conditions,omitempty"`
	Annotations        map[string]string        `json:"annotations,omitempty"`
	URL                string                   `json:"url,omitempty"`
	Address            *address                 `json:"address,omitempty"`
	Components         map[Role]componentStatus `json:"components,omitempty"`
	ModelStatus        map[string]any           `json:"modelStatus,omitempty"`

	// Release 1.3.
	Addresses []namedAddress `json:"addresses,omitempty"`
	Traffic   map[string]any `json:"traffic,omitempty"`
	Canary    map[string]any `json:"canary,omitempty"`
}

type address struct {
	URL string `json:"url,omitempty"`
}

type namedAddress struct {
	Name string `json:"name,omitempty"`
	URL  string `json:"url,omitempty"`
}

type componentStatus struct {
	URL                       string         `json:"url,omitempty"`
	RestURL                   string         `json:"restURL,omitempty"`
	Address                   *address       `json:"address,omitempty"`
	LatestReadyRevision       string         `json:"latestReadyRevision,omitempty"`
	LatestCreatedRevision     string         `json:"latestCreatedRevision,omitempty"`
	LatestRolledoutRevision   string         `json:"latestRolledoutRevision,omitempty"`
	PreviousRolledoutRevision string         `json:"previousRolledoutRevision,omitempty"`
	Traffic                   []any          `json:"traffic,omitempty"`
	SelectedAccelerator       map[string]any `json:"selectedAccelerator,omitempty"`
}

// condition has exactly these fields in OME.
type condition struct {
	Type               string                 `json:"type"`
	Status             corev1.ConditionStatus `json:"status"`
	Severity           string                 `json:"severity,omitempty"`
	LastTransitionTime metav1.Time            `json:"lastTransitionTime,omitempty"`
	Reason             string                 `json:"reason,omitempty"`
	Message            string                 `json:"message,omitempty"`
}

// decode reads an object as a release of OME knows it.
func decode(u *unstructured.Unstructured, r Release) (*inferenceService, error) {
	s := &inferenceService{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s); err != nil {
		return nil, fmt.Errorf("decode InferenceService: %w", err)
	}
	if r == Release12 {
		s.Spec.DeploymentMode = ""
		s.Status.Addresses, s.Status.Traffic, s.Status.Canary = nil, nil, nil
	}
	return s, nil
}

// owner is what makes the service the controller of an object.
func (s *inferenceService) owner() metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: APIVersion, Kind: Kind, Name: s.Name, UID: s.UID, Controller: &yes, BlockOwnerDeletion: &yes}
}

// clusterLocal reports whether the service is for the inside of the cluster only. OME reads one of its two labels.
func (s *inferenceService) clusterLocal() bool { return s.Labels[labelVisibility] == "cluster-local" }

// listed reports whether an annotation lists a role, and whether there is one.
func (s *inferenceService) listed(annotation string, r Role) (in, said bool) {
	text, said := s.Annotations[annotation]
	list, _ := parseRoles(text) // others are no roles
	return slices.Contains(list, r), said
}

// parseRoles reads a comma-separated list. It returns what is a role even if something is not.
func parseRoles(s string) ([]Role, error) {
	var (
		list []Role
		err  error
	)
	for field := range strings.SplitSeq(s, ",") {
		r := Role(strings.TrimSpace(field))
		switch {
		case slices.Contains(roles, r):
			list = append(list, r)
		case r != "":
			err = fmt.Errorf("%q is not one of %s", r, joinRoles(roles))
		}
	}
	return list, err
}

func joinRoles(list []Role) string {
	names := make([]string, len(list))
	for i, r := range list {
		names[i] = string(r)
	}
	return strings.Join(names, ",")
}
