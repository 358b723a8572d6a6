package informers

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/services/variant-autoscaler/internal/inventory"
)

func readWorkload(u *unstructured.Unstructured) any {
	f := newFields(u)
	w := newWorkload(u, f, template{itemOf(f.value("spec", "template")), 1})
	// OME copies the annotations of an InferenceService to its Deployments. It writes replicas of LeaderWorkerSets in spite of this one.
	// (OME 17b77eda, pkg/controller/v1beta1/inferenceservice/reconcilers/deployment/deployment_reconciler.go)
	if c := w.Controller; c != nil && c.IsOME() {
		c.LeavesReplicas = f.annotation(AnnotationOMEAutoscaler) == OMEAutoscalerExternal
	}
	return w
}

// readLeaderWorkerSet reads a workload whose replicas are groups of pods: a leader, and workers that have the template of the leader
// unless it has its own.
func readLeaderWorkerSet(u *unstructured.Unstructured) any {
	f := newFields(u)
	group := itemOf(f.value("spec", "leaderWorkerTemplate"))
	leader, workers := itemOf(group.object["leaderTemplate"]), itemOf(group.object["workerTemplate"])
	if leader.object == nil {
		leader = workers
	}
	templates := []template{{leader, 1}}
	if n := group.numberAt("size"); n.Value > 1 {
		templates = append(templates, template{workers, min(n.Value, maxCards) - 1})
	}
	w := newWorkload(u, f, templates...)
	if w.Labels == nil {
		w.Labels = map[string]string{}
	}
	w.Labels[labelSetName], w.Labels[labelWorkerIndex] = w.Name, leaderIndex
	return w
}

// newWorkload returns a workload whose replicas have the pods of some templates. Those of the first one serve.
func newWorkload(u *unstructured.Unstructured, f *fields, templates ...template) *Workload {
	serving := templates[0]
	w := &Workload{
		Identity: identityOf(u), Replicas: replicasOf(f), Ready: f.numberAt("status", "readyReplicas").Value,
		Cards: sumCards(templates), Labels: serving.labelsAt(maxLabels, "metadata", "labels"),
		Owner: creatorOf(u), Controller: controllerOf(u), Shape: shapeOf(templates), Claims: claimsOf(templates),
	}
	w.Queue, w.Queued = queueOf(f, serving)
	return w
}

// sumCards returns the accelerators that the pods of templates request together.
func sumCards(templates []template) int64 {
	var sum int64
	for _, t := range templates {
		requests := requestsOf(t.fields)
		cards := min(requests.Sum(), maxCards)
		if cards == UnreadableCards {
			return UnreadableCards
		}
		sum = min(sum+t.pods*cards, maxCards)
	}
	return sum
}

func replicasOf(f *fields) int64 {
	if n := f.numberAt("spec", "replicas"); n.Set {
		return n.Value
	}
	return 1 // the default of all workloads
}

// requestsOf returns the accelerators that a pod requests, or the pods of a template: what its containers need together, or one of its init
// containers alone.
func requestsOf(f *fields) inventory.Cards {
	spec := itemOf(f.value("spec"))
	var together, alone inventory.Cards
	for _, list := range []string{"containers", "initContainers"} {
		for c := range spec.itemsAt(list) {
			for r, cards := range requestsOfContainer(c) {
				switch {
				case cards == UnreadableCards || together[r] == UnreadableCards:
					together[r] = UnreadableCards
				case list == "containers" || c.object["restartPolicy"] == "Always": // a sidecar runs with the others
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
func requestsOfContainer(f *fields) inventory.Cards {
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

// maxQuantity is the longest quantity that is read, in bytes.
const maxQuantity = 32

// readCards refuses exponents: the parser takes minutes for 1e-999999999. The API server writes none for numbers of cards.
func readCards(value any) int64 {
	switch v := value.(type) {
	case nil:
		return 0
	case int64:
		if v >= 0 {
			return min(v, maxCards)
		}
	case string:
		if len(v) > maxQuantity || strings.ContainsAny(v, "eE") {
			return UnreadableCards
		}
		if q, err := resource.ParseQuantity(v); err == nil && q.Sign() >= 0 {
			if q.CmpInt64(maxCards) > 0 { // perhaps beyond an int64
				return maxCards
			}
			return q.Value()
		}
	}
	return UnreadableCards
}
