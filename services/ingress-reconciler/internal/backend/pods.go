package backend

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// Labels of pods and Services of mode OMENative in OME 1.3.
const (
	labelRevision = "ome.io/revision-hash"
	labelRunner   = "ome.io/runner" // of a pod: default, leader or worker
	labelOrdinal  = "ome.io/pod-ordinal"
	labelNodeType = "ray.io/node-type" // head: the leader of a LeaderWorkerSet
	runnerLeader  = "leader"
)

// Pods identifies, by labels, the pods of a component that receive requests.
type Pods struct {
	// Labels select the pods that receive requests, and no pods of other services.
	Labels map[string]string
	// Workers reports whether OME's Service, and therefore each route to it, also selects worker pods.
	Workers bool
}

// SelectPods returns the labels of the pods of a component that receive requests: the selector of OME's Service, plus:
//
//   - the component label and the service label. The Service of a LeaderWorkerSet selects by ray.io/node-type=head alone, which
//     matches the leaders of every LeaderWorkerSet in the namespace. Values in OME's selector are kept: with
//     spec.replicaRefs the service label of pods is the name of the InferenceReplica.
//   - in mode OMENative the labels of leaders, if the Services of all revisions select leaders only. OME's Service of a
//     component does so only if the InferenceService itself declares the workers. If a serving runtime declares them, it
//     also selects the workers, which do not serve the API. The Services of revisions match the existing pods.
//
// A pool or Service with other labels selects no pods, or the wrong pods: no label is the same in all modes and releases.
func SelectPods(services []*corev1.Service, owner *isvc.Service, r isvc.Role) (Pods, error) {
	s, err := findServiceObject(services, owner, r)
	if err != nil {
		return Pods{}, err
	}
	if len(s.Spec.Selector) == 0 {
		return Pods{}, fmt.Errorf("%s: %w", s.Name, ErrNoSelector)
	}
	labels := maps.Clone(s.Spec.Selector)
	labels[LabelComponent] = cmp.Or(labels[LabelComponent], string(r))
	if labels[LabelService] == "" {
		value := cmp.Or(s.Labels[LabelService], owner.Name)
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			return Pods{}, fmt.Errorf("%s: no pod can have label %s=%s: %s", s.Name, LabelService, value, problems[0])
		}
		labels[LabelService] = value
	}
	if labels[labelRunner] != "" {
		return Pods{Labels: labels}, nil
	}
	leaders, workers := revisionLeaders(services, owner, r)
	maps.Copy(labels, leaders)
	return Pods{Labels: labels, Workers: workers}, nil
}

// revisionLeaders returns the labels that the Services of all revisions of a component use to select leaders, nil if one of these
// Services also selects other pods. workers reports whether a revision has workers.
func revisionLeaders(services []*corev1.Service, owner *isvc.Service, r isvc.Role) (leaders map[string]string, workers bool) {
	for _, s := range services {
		if !routesToRevision(s, owner, r) {
			continue
		}
		selected := map[string]string{}
		for _, key := range []string{labelRunner, labelOrdinal} {
			if value := s.Spec.Selector[key]; value != "" {
				selected[key] = value
			}
		}
		workers = workers || selected[labelRunner] == runnerLeader
		if leaders == nil {
			leaders = selected
			continue
		}
		maps.DeleteFunc(leaders, func(key, value string) bool { return selected[key] != value })
	}
	if leaders[labelRunner] != runnerLeader {
		return nil, workers
	}
	return leaders, workers
}

// routesToRevision reports whether a Service sends requests to one revision of a component.
func routesToRevision(s *corev1.Service, owner *isvc.Service, r isvc.Role) bool {
	return s.Namespace == owner.Namespace && s.DeletionTimestamp == nil && metav1.IsControlledBy(s, &metav1.ObjectMeta{UID: owner.UID}) &&
		s.Labels[LabelComponent] == string(r) && s.Labels[labelRevision] != "" && !isHeadless(s)
}

// Match describes how the selector of an InferencePool relates to the pods of a component.
type Match string

// Values of Match. Only the labels in Pods.Labels are known.
const (
	MatchAll     Match = "all"     // the selector matches all pods that receive requests
	MatchNone    Match = "none"    // the selector matches none of these pods
	MatchUnknown Match = "unknown" // the selector has labels that are not known
)

// MatchSelector returns how a selector relates to the pods. An empty selector matches all pods of the namespace.
func (p Pods) MatchSelector(selector map[string]string) Match {
	match := MatchAll
	for key, value := range selector {
		known, ok := p.Labels[key]
		switch {
		case ok && known != value:
			return MatchNone
		case !ok:
			match = MatchUnknown
		}
	}
	return match
}

// IncludesWorkers reports whether a selector matches all pods that receive requests, and worker pods.
func (p Pods) IncludesWorkers(selector map[string]string) bool {
	for _, key := range []string{labelRunner, labelNodeType} {
		if p.Labels[key] != "" && selector[key] == "" {
			return p.MatchSelector(selector) == MatchAll
		}
	}
	return false
}

// DescribeMismatch describes the labels of a selector that contradict the labels of the pods.
func (p Pods) DescribeMismatch(selector map[string]string) string {
	var differences []string
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if known, ok := p.Labels[key]; ok && known != selector[key] {
			differences = append(differences, fmt.Sprintf("the selector has %s=%s, the pods have %s=%s", key, selector[key], key, known))
		}
	}
	return strings.Join(differences, ", ")
}
