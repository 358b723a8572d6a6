package informers

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/services/variant-autoscaler/internal/inventory"
)

func readWorkload(u *unstructured.Unstructured) any {
	f := newFields(u)
	queue, managed := queueOf(f, "spec", "template")
	c := controllerOf(u)
	// OME copies the annotations of an InferenceService to its Deployments. It writes replicas of LeaderWorkerSets in spite of this one.
	// https://github.com/sgl-project/ome/blob/17b77eda/pkg/controller/v1beta1/inferenceservice/reconcilers/deployment/deployment_reconciler.go
	if c != nil && c.IsOME() {
		c.LeavesReplicas = f.annotation(AnnotationOMEAutoscaler) == OMEAutoscalerExternal
	}
	return &Workload{
		Identity: identityOf(u), Queue: queue, Queued: managed, Replicas: replicasOf(f), Ready: f.numberAt("status", "readyReplicas").Value,
		Cards: cardsOf(f, "spec", "template"), Labels: f.labelsAt("spec", "template", "metadata", "labels"), Owner: creatorOf(u), Controller: c,
		Shape: shapeOf(1, template{f, []string{"spec", "template"}}), Claims: claimsOf(1, template{f, []string{"spec", "template"}}),
	}
}

// readLeaderWorkerSet reads a workload whose replicas are groups of pods: a leader, and workers that have the template of the leader
// unless it has its own.
func readLeaderWorkerSet(u *unstructured.Unstructured) any {
	f := newFields(u)
	workers := []string{"spec", "leaderWorkerTemplate", "workerTemplate"}
	leader := workers
	if own := []string{"spec", "leaderWorkerTemplate", "leaderTemplate"}; f.value(own...) != nil {
		leader = own
	}
	queue, managed := queueOf(f, leader...)
	w := &Workload{
		Identity: identityOf(u), Queue: queue, Queued: managed, Replicas: replicasOf(f), Ready: f.numberAt("status", "readyReplicas").Value,
		Owner: creatorOf(u), Controller: controllerOf(u),
	}
	size := int64(1)
	if n := f.numberAt("spec", "leaderWorkerTemplate", "size"); n.Set {
		size = min(max(n.Value, 1), maxCards)
	}
	w.Cards = cardsOf(f, leader...)
	w.Shape, w.Claims = shapeOf(1, template{f, leader}), claimsOf(1, template{f, leader})
	if size > 1 {
		others := cardsOf(f, workers...)
		if w.Cards != UnreadableCards {
			w.Cards = min(w.Cards+(size-1)*others, maxCards)
		}
		if others == UnreadableCards {
			w.Cards = UnreadableCards
		}
		w.Shape = shapeOf(size, template{f, leader}, template{f, workers})
		w.Claims = claimsOf(size, template{f, leader}, template{f, workers})
	}
	w.Labels = f.labelsAt(slices.Concat(leader, []string{"metadata", "labels"})...)
	if w.Labels == nil {
		w.Labels = map[string]string{}
	}
	w.Labels[labelSetName], w.Labels[labelWorkerIndex] = w.Name, leaderIndex
	return w
}

func replicasOf(f *fields) int64 {
	if n := f.numberAt("spec", "replicas"); n.Set {
		return n.Value
	}
	return 1 // the default of all workloads
}

// cardsOf returns the accelerators that the pods of a template request.
func cardsOf(f *fields, template ...string) int64 {
	requests := requestsOf(f, template...)
	return min(requests.Sum(), maxCards)
}

// requestsOf returns the accelerators that a pod requests, or the pods of a template: what its containers need together, or one of its init
// containers alone.
func requestsOf(f *fields, template ...string) inventory.Cards {
	spec, _ := f.value(append(slices.Clone(template), "spec")...).(map[string]any)
	var together, alone inventory.Cards
	for _, list := range []string{"containers", "initContainers"} {
		containers, _ := spec[list].([]any)
		for _, c := range containers {
			c, _ := c.(map[string]any)
			for r, cards := range requestsOfContainer(c) {
				switch {
				case cards == UnreadableCards || together[r] == UnreadableCards:
					together[r] = UnreadableCards
				case list == "containers" || c["restartPolicy"] == "Always": // a sidecar runs with the others
					together[r] = min(together[r]+cards, maxCards)
				default:
					alone[r] = max(alone[r], cards)
				}
			}
		}
	}
	for r := range together {
		if together[r] != UnreadableCards {
			together[r] = max(together[r], alone[r])
		}
	}
	return together
}

// requestsOfContainer reads limits where requests are absent: the API server copies them in pods, not in templates.
func requestsOfContainer(container map[string]any) inventory.Cards {
	f := &fields{object: container}
	var cards inventory.Cards
	for r, name := range inventory.Resources {
		value := f.value("resources", "requests", name)
		if value == nil {
			value = f.value("resources", "limits", name)
		}
		cards[r] = readCards(value)
	}
	return cards
}

func readCards(value any) int64 {
	n, ok := readQuantity(value)
	if !ok {
		return UnreadableCards
	}
	return n
}

// maxQuantity is the longest quantity that is read, in bytes.
const maxQuantity = 32

// readQuantity refuses exponents: the parser takes minutes for 1e-999999999. The API server writes none for numbers of cards.
func readQuantity(value any) (int64, bool) {
	switch v := value.(type) {
	case nil:
		return 0, true
	case int64:
		return min(v, maxCards), v >= 0
	case string:
		if len(v) > maxQuantity || strings.ContainsAny(v, "eE") {
			return 0, false
		}
		q, err := resource.ParseQuantity(v)
		if err != nil || q.Sign() < 0 {
			return 0, false
		}
		if q.CmpInt64(maxCards) > 0 { // perhaps beyond an int64
			return maxCards, true
		}
		return q.Value(), true
	}
	return 0, false
}
