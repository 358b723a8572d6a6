package informers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/variant-autoscaler/internal/inventory"
)

// Names of Kueue: https://github.com/kubernetes-sigs/kueue/blob/v0.19.0/pkg/controller/constants/constants.go
const (
	groupKueue = "kueue.x-k8s.io"
	// labelQueue of a workload, or of its pods, names their LocalQueue.
	labelQueue = groupKueue + "/queue-name"
	// labelManaged is the label of pods that Kueue manages, and annotationParent that of the pod templates of workloads that it manages.
	labelManaged     = groupKueue + "/managed"
	annotationParent = groupKueue + "/pod-suspending-parent"
	// gateAdmission keeps a pod from nodes until Kueue admits it.
	gateAdmission = groupKueue + "/admission"
)

// Versions of the API of Kueue that the program reads, the preferred one first. They differ in the names of fields.
const (
	kueueVersion      = "v1beta2"
	olderKueueVersion = "v1beta1"
)

const (
	// maxFlavors is the most quotas that are read of a ClusterQueue or a Cohort. Kueue permits 256 flavors.
	maxFlavors = 1024
	// maxFlavorParts is the most labels, taints and tolerations of a ResourceFlavor. Kueue permits 8 of each.
	maxFlavorParts = 64
)

// QuotaOwner is a ClusterQueue or a Cohort.
type QuotaOwner struct {
	Identity
	inventory.QuotaOwner
}

// Flavor is a ResourceFlavor.
type Flavor struct {
	Identity
	inventory.Flavor
}

// preferredReader reads the objects of the newer version of a kind, or of the older one where only that is served.
type preferredReader struct{ newer, older kit.Reader }

func (p preferredReader) activeReader() kit.Reader {
	if !p.newer.Listed() && p.older.Listed() {
		return p.older
	}
	return p.newer
}

// Get implements informers.Reader.
func (p preferredReader) Get(name cache.ObjectName) (any, bool) { return p.activeReader().Get(name) }

// List implements informers.Reader.
func (p preferredReader) List() []any { return p.activeReader().List() }

// ByIndex implements informers.Reader.
func (p preferredReader) ByIndex(index, value string) []any {
	return p.activeReader().ByIndex(index, value)
}

// Listed implements informers.Reader.
func (p preferredReader) Listed() bool { return p.activeReader().Listed() }

func readClusterQueue(u *unstructured.Unstructured) any {
	f := newFields(u)
	q := &QuotaOwner{Identity: identityOf(u), QuotaOwner: inventory.QuotaOwner{Name: f.textAt("metadata", "name"), Inactive: inactiveOf(f)}}
	q.Parent = cmp.Or(f.textAt("spec", "cohortName"), f.textAt("spec", "cohort")) // v1beta2, v1beta1
	q.Quotas = quotasOf(f)
	used := cardsByFlavor(f, "flavorsReservation")
	for i := range q.Quotas {
		entry := &q.Quotas[i]
		entry.Used = used[entry.Flavor][entry.Resource]
	}
	return q
}

func readCohort(u *unstructured.Unstructured) any {
	f := newFields(u)
	return &QuotaOwner{
		Identity:   identityOf(u),
		QuotaOwner: inventory.QuotaOwner{Name: f.textAt("metadata", "name"), Parent: f.textAt("spec", "parentName"), Quotas: quotasOf(f)},
	}
}

// inactiveOf says why a queue admits nothing.
func inactiveOf(f *fields) string {
	if policy := f.textAt("spec", "stopPolicy"); policy != "" && policy != "None" {
		return fmt.Sprintf("its stopPolicy is %q. Set None", policy)
	}
	if c := f.conditionAt("Active"); c.object["status"] == "False" {
		return fmt.Sprintf("its condition Active is False (%s: %s)", c.textAt("reason"), c.textAt("message"))
	}
	return ""
}

// quotasOf returns the quotas of cards, in the order in which Kueue tries their flavors.
func quotasOf(f *fields) []inventory.FlavorQuota {
	var quotas []inventory.FlavorQuota
	for group := range f.itemsAt("spec", "resourceGroups") {
		visitNamed(group, "flavors", func(flavor string, entry *fields) {
			visitNamed(entry, "resources", func(resource string, entry *fields) {
				r := slices.Index(inventory.Resources[:], resource)
				if r < 0 || len(quotas) == maxFlavors {
					return
				}
				quota := inventory.FlavorQuota{
					Flavor: internText(flavor), Resource: r, Nominal: readQuota(entry.value("nominalQuota")),
				}
				quota.Borrowing, quota.Lending = readLimit(entry.value("borrowingLimit")), readLimit(entry.value("lendingLimit"))
				quotas = append(quotas, quota)
			})
		})
	}
	return quotas
}

// cardsByFlavor returns the cards that a field of the status has, by flavor. It is empty if the status was not written yet.
func cardsByFlavor(f *fields, field string) map[string]inventory.Cards {
	byFlavor := map[string]inventory.Cards{}
	visitNamed(itemOf(f.value("status")), field, func(flavor string, entry *fields) {
		if len(byFlavor) == maxFlavors {
			return
		}
		cards := byFlavor[flavor]
		visitNamed(entry, "resources", func(resource string, entry *fields) {
			if r := slices.Index(inventory.Resources[:], resource); r >= 0 {
				cards[r] = readQuota(entry.value("total"))
			}
		})
		byFlavor[flavor] = cards
	})
	return byFlavor
}

// visitNamed visits the objects with a name in a list of an object.
func visitNamed(object *fields, list string, visit func(name string, entry *fields)) {
	for item := range object.itemsAt(list) {
		if item.object != nil {
			visit(item.textAt("name"), item)
		}
	}
}

func readLimit(value any) *int64 {
	if value == nil {
		return nil
	}
	return new(readQuota(value))
}

// readQuota returns a quota. Administrators write numbers beyond all cards to say that there is none: these are read as the largest one.
func readQuota(value any) int64 {
	if text, ok := value.(string); ok && len(text) <= maxQuantity {
		digits := strings.TrimSuffix(strings.TrimSuffix(text, "i"), "E") // the suffix of 10^18
		if digits != text && digits != "" && strings.Trim(digits, "0123456789") == "" {
			if strings.Trim(digits, "0") == "" {
				return 0
			}
			return maxCards
		}
	}
	return readCards(value)
}

func readFlavor(u *unstructured.Unstructured) any {
	f := newFields(u)
	flavor := &Flavor{Identity: identityOf(u), Flavor: inventory.Flavor{Name: f.textAt("metadata", "name"),
		Labels: f.labelsAt(maxLabels, "spec", "nodeLabels")}}
	visitItems(f.listAt("spec", "nodeTaints"), func(entry *fields) {
		flavor.Taints = append(flavor.Taints, taintOf(entry))
	})
	visitItems(f.listAt("spec", "tolerations"), func(entry *fields) {
		flavor.Tolerations = append(flavor.Tolerations, corev1.Toleration{
			Key: entry.textAt("key"), Operator: corev1.TolerationOperator(entry.textAt("operator")), Value: entry.textAt("value"),
			Effect: corev1.TaintEffect(entry.textAt("effect")),
		})
	})
	return flavor
}

// visitItems visits the first objects of a list.
func visitItems(items []any, visit func(entry *fields)) {
	for _, element := range items[:min(len(items), maxFlavorParts)] {
		visit(itemOf(element))
	}
}

// LocalQueueResources returns the resources of LocalQueues in the versions that the program reads, the preferred one first.
func LocalQueueResources() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		{Group: groupKueue, Version: kueueVersion, Resource: "localqueues"},
		{Group: groupKueue, Version: olderKueueVersion, Resource: "localqueues"},
	}
}

// ReadLocalQueue returns what the program needs of a LocalQueue.
func ReadLocalQueue(u *unstructured.Unstructured) *inventory.LocalQueue {
	f := newFields(u)
	q := &inventory.LocalQueue{Namespace: u.GetNamespace(), Name: u.GetName(), ClusterQueue: f.textAt("spec", "clusterQueue"),
		Inactive: inactiveOf(f)}
	admitted := cardsByFlavor(f, "flavorsUsage")
	if f.value("status", "flavorsUsage") == nil {
		admitted = cardsByFlavor(f, "flavorUsage") // v1beta1
	}
	for flavor, reserved := range cardsByFlavor(f, "flavorsReservation") {
		for r, cards := range reserved {
			q.Reserved[r] += max(cards-max(admitted[flavor][r], 0), 0)
		}
	}
	return q
}

// queueOf returns the LocalQueue of a workload, empty if it names none, and whether Kueue has marked its pod template.
func queueOf(f *fields, t template) (queue string, managed bool) {
	queue = cmp.Or(f.label(labelQueue), t.label(labelQueue))
	return queue, queue != "" && t.annotation(annotationParent) != ""
}

// admission is what a pod shows of Kueue.
type admission struct {
	queued bool // Kueue manages it
	gated  bool // it waits for Kueue
}

func admissionOf(f *fields) admission {
	gated := false
	for gate := range f.itemsAt("spec", "schedulingGates") {
		gated = gated || gate.object["name"] == gateAdmission
	}
	return admission{queued: gated || f.label(labelManaged) == trueValue, gated: gated}
}
