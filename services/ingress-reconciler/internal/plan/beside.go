package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// Pool is an InferencePool to be made for the pods of the engine.
type Pool struct {
	Name       string
	Selector   map[string]string
	TargetPort int32
	Picker     settings.EndpointPicker
}

// Fallback is a Service to be made beside OME's.
type Fallback struct {
	Name        string
	Type        string
	Selector    map[string]string
	Port        int32
	TargetPort  backend.Port
	AppProtocol string // empty: the Service of OME says none
	Annotations map[string]string
}

// PoolName returns the name of the InferencePool that is made for a service. Data planes make labels of it.
func PoolName(service string) string { return bounded(service, "-fairlead") }

// FallbackName returns the name of the Service that is made beside OME's.
func FallbackName(service, suffix string) string { return bounded(service, suffix) }

// bounded returns a name with a suffix that is no longer than a label. One that is too long has a hash in its middle.
func bounded(name, suffix string) string {
	if len(name)+len(suffix) <= validation.DNS1035LabelMaxLength {
		return name + suffix
	}
	sum := sha256.Sum256([]byte(name))
	hash := "-" + hex.EncodeToString(sum[:4])
	return strings.TrimRight(name[:validation.DNS1035LabelMaxLength-len(hash)-len(suffix)], "-.") + hash + suffix
}

// errName means that pods of a service cannot have a label with its name, and so cannot be selected.
var errName = fmt.Errorf("the name of the service has more than %d characters: no label of pods can hold it", validation.LabelValueMaxLength)

// pool returns the InferencePool that takes the requests of the entry, or why it cannot.
func (b *builder) pool() (name, reason, message string) {
	p := b.Settings.Pool
	switch {
	case b.plan.Strategy != settings.HTTPRoute:
		return "", ReasonPoolUnsupported, fmt.Sprintf("strategy %s has no InferencePools", b.plan.Strategy)
	case b.Pools == nil:
		return "", ReasonAPIUnavailable, "the API server has no InferencePools"
	case p.Name != "" && !b.Pools[p.Name]:
		return "", ReasonPoolNotFound, fmt.Sprintf("there is no InferencePool %s", p.Name)
	case p.Name != "":
		return p.Name, "", ""
	}
	if len(b.Service.Name) > validation.LabelValueMaxLength {
		return "", ReasonPoolUnsupported, errName.Error()
	}
	if !b.present(isvc.Engine) {
		return "", ReasonPoolUnsupported, "there is no engine to make an InferencePool of"
	}
	engine, err := backend.Find(b.Services, b.Service, isvc.Engine)
	if err != nil {
		return "", missing(err), err.Error()
	}
	if engine.TargetPort.Number == 0 {
		return "", ReasonPoolUnsupported, fmt.Sprintf("Service %s has its target port %s by name, which an InferencePool cannot", engine.Name, engine.TargetPort.Name)
	}
	b.plan.Pool = &Pool{Name: PoolName(b.Service.Name), Selector: b.leaders(isvc.Engine), TargetPort: engine.TargetPort.Number, Picker: *p.EndpointPickerRef}
	return b.plan.Pool.Name, "", ""
}

// Labels of pods.
const (
	labelWorkerIndex = "leaderworkerset.sigs.k8s.io/worker-index" // 0: the leader
	labelRayNodeType = "ray.io/node-type"
	rayHead          = "head"
)

// leaders selects the pods of a component that take requests: of several that are one replica, the leader.
func (b *builder) leaders(r isvc.Role) map[string]string {
	selector := map[string]string{backend.LabelService: b.Service.Name, backend.LabelComponent: string(r)}
	switch mode := b.mode(r); {
	case mode == isvc.MultiNodeRayVLLM:
		selector[labelRayNodeType] = rayHead
	case mode == isvc.MultiNode, b.Service.Components[r] != nil && b.Service.Components[r].Nodes:
		selector[labelWorkerIndex] = "0"
	}
	return selector
}

// fallback plans a Service beside OME's, if one is asked for and the entry has one.
func (b *builder) fallback(entry isvc.Role) {
	f := b.Settings.Fallback
	if f == nil {
		return
	}
	if len(b.Service.Name) > validation.LabelValueMaxLength {
		b.addReason(entry, ReasonInvalidConfiguration, "fallbackService: %s", errName)
		return
	}
	service, err := backend.Find(b.Services, b.Service, entry)
	if err != nil {
		b.keepSlots(Entry)
		b.addReason(entry, missing(err), "%s", err)
		return
	}
	b.plan.Fallback = &Fallback{
		Name: FallbackName(b.Service.Name, f.Suffix), Type: f.Type, Selector: b.leaders(entry), Port: service.Port, TargetPort: service.TargetPort,
		AppProtocol: service.AppProtocol, Annotations: b.Settings.FallbackAnnotations(),
	}
}
