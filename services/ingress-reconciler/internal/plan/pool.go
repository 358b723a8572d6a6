package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/hostname"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// Pool is an InferencePool to create for the pods of the engine.
type Pool struct {
	Name       string
	Selector   map[string]string
	TargetPort int32
	Picker     settings.EndpointPicker // with the name of its Service, not a template
}

// Fallback is the fallback Service to create.
type Fallback struct {
	Name        string
	Type        string
	Selector    map[string]string
	Port        int32
	TargetPort  backend.Port
	AppProtocol string // empty: OME's Service does not set it
	Annotations map[string]string
}

// PoolName returns the name of the InferencePool to create for a service. Data planes use this name as a label value.
func PoolName(service string) string { return boundedName(service, "-fairlead") }

// FallbackName returns the name of the fallback Service.
func FallbackName(service, suffix string) string { return boundedName(service, suffix) }

// boundedName returns a name with a suffix, truncated to the length of a DNS label. A truncated name has a hash before the suffix.
func boundedName(name, suffix string) string {
	if len(name)+len(suffix) <= validation.DNS1035LabelMaxLength {
		return name + suffix
	}
	sum := sha256.Sum256([]byte(name))
	hash := "-" + hex.EncodeToString(sum[:4])
	return strings.TrimRight(name[:validation.DNS1035LabelMaxLength-len(hash)-len(suffix)], "-.") + hash + suffix
}

// choosePool returns the InferencePool that receives the requests of the entry, or the reason why none can be used yet. If name and reason
// are empty, the Service of the entry receives the requests.
//
// A pool replaces the Service of the entry, so it must select the entry's pods. A created pool selects the pods of the engine. With a
// router it is not created, because it would bypass the router and, with it, the decoder.
func (b *builder) choosePool() (name, reason, message string) {
	p := b.Settings.Pool
	switch {
	case b.plan.Strategy != settings.HTTPRoute:
		return "", ReasonPoolUnsupported, fmt.Sprintf("strategy %s has no InferencePools", b.plan.Strategy)
	case b.Pools == nil:
		return "", ReasonAPIUnavailable, "the API server does not serve InferencePools"
	case p.Name != "":
		return b.namedPool(p.Name)
	}
	if entry, _ := b.entryRole(); entry != isvc.Engine {
		b.addWarning(entry, ReasonPoolUnsupported,
			"requests go to the %s: an InferencePool of the engine would bypass it. Remove the %s or inferencePool", entry, entry)
		return "", "", ""
	}
	return b.planPool(p.EndpointPickerRef)
}

// planPool plans an InferencePool of the engine's pods.
func (b *builder) planPool(ref *settings.EndpointPicker) (name, reason, message string) {
	engine, err := backend.FindService(b.Services, b.Service, isvc.Engine)
	if err != nil {
		return "", missingReason(err), err.Error()
	}
	pods, err := backend.SelectPods(b.Services, b.Service, isvc.Engine)
	switch {
	case err != nil:
		return "", ReasonPoolUnsupported, err.Error()
	case engine.TargetPort.Number == 0:
		return "", ReasonPoolUnsupported, fmt.Sprintf("Service %s has the target port %s by name: an InferencePool needs a number",
			engine.Name, engine.TargetPort.Name)
	}
	picker := *ref
	if picker.Name, err = pickerName(b.Service, &b.Settings); err != nil {
		return "", ReasonInvalidConfiguration, err.Error()
	}
	pool := PoolName(b.Service.Name)
	if problem := b.pickerProblem(picker.Name, picker.Port); problem != "" {
		return "", ReasonPickerNotFound, fmt.Sprintf("InferencePool %s: %s", pool, problem)
	}
	b.plan.Pool = &Pool{Name: pool, Selector: pods.Labels, TargetPort: engine.TargetPort.Number, Picker: picker}
	return pool, "", ""
}

// namedPool checks an existing InferencePool that the settings name.
//
//	the entry is the engine   the pool is used, with a warning if it selects none of the engine's pods, or workers
//	the entry is the router   the pool is used if its selector matches only the router's pods: a pool of several router replicas
//	                          is legitimate. Any other pool bypasses the router: the router's Service is used, with a warning
func (b *builder) namedPool(name string) (pool, reason, message string) {
	found := b.Pools[name]
	if found == nil {
		return "", ReasonPoolNotFound, fmt.Sprintf("InferencePool %s does not exist: create it, or correct inferencePool.name", name)
	}
	entry, _ := b.entryRole()
	selector := poolSelector(found)
	pods := b.podsOf(entry)
	match := pods.MatchSelector(selector)
	switch {
	case entry != isvc.Engine && (match == backend.MatchNone || b.podsOf(isvc.Engine).MatchSelector(selector) != backend.MatchNone):
		b.addWarning(entry, ReasonPoolUnsupported,
			"requests go to the %s: InferencePool %s would bypass it. Add %s: %s to the selector of the pool", entry, name,
			backend.LabelComponent, entry)
		return "", "", ""
	case match == backend.MatchNone:
		b.addWarning(entry, ReasonPoolMismatch, "InferencePool %s selects no pods of the %s: %s", name, entry,
			pods.DescribeMismatch(selector))
	case pods.IncludesWorkers(selector):
		b.addWarning(entry, ReasonPoolMismatch,
			"InferencePool %s also selects worker pods, which do not serve requests: add the selector of OME's Service to that of the pool",
			name)
	}
	if service, port, ok := pickerOf(found); ok {
		if problem := b.pickerProblem(service, port); problem != "" {
			return "", ReasonPickerNotFound, fmt.Sprintf("InferencePool %s: %s", name, problem)
		}
	}
	return name, "", ""
}

// podsOf returns the known labels of the pods of a component.
func (b *builder) podsOf(r isvc.Role) backend.Pods {
	pods, err := backend.SelectPods(b.Services, b.Service, r)
	if err != nil {
		return backend.Pods{Labels: map[string]string{backend.LabelComponent: string(r)}}
	}
	return pods
}

func poolSelector(p *inferencev1.InferencePool) map[string]string {
	labels := map[string]string{}
	for key, value := range p.Spec.Selector.MatchLabels {
		labels[string(key)] = string(value)
	}
	return labels
}

// pickerOf returns the Service of the endpoint picker of a pool. It returns false if the picker is not a Service.
func pickerOf(p *inferencev1.InferencePool) (name string, port int32, ok bool) {
	ref := p.Spec.EndpointPickerRef
	if ref == nil || ref.Port == nil || ref.Group != nil && *ref.Group != "" || ref.Kind != "" && ref.Kind != "Service" {
		return "", 0, false
	}
	return string(ref.Name), int32(ref.Port.Number), true
}

// pickerName returns the name of the endpoint picker's Service for a pool to create.
func pickerName(s *isvc.Service, conf *settings.Settings) (string, error) {
	name, err := conf.Picker.Render(hostname.Values{
		Name: s.Name, Namespace: s.Namespace, IngressDomain: conf.Domain, Annotations: s.Annotations, Labels: s.Labels,
	})
	if err == nil {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			err = fmt.Errorf("%q is not the name of a Service: %s", name, problems[0])
		}
	}
	if err != nil {
		return "", fmt.Errorf("inferencePool.endpointPickerRef.name: %w", err)
	}
	return name, nil
}

// PickerService returns the name of the endpoint picker's Service, in the namespace of the InferenceService, that Build looks up in
// Input.Pickers. It returns false if Build needs no such Service.
func PickerService(in *Input) (name string, ok bool) {
	p := in.Settings.Pool
	switch {
	case p == nil:
		return "", false
	case p.Name != "" && in.Pools[p.Name] != nil:
		name, _, ok = pickerOf(in.Pools[p.Name])
		return name, ok
	case p.Name != "" || in.Settings.Picker == nil:
		return "", false
	}
	name, err := pickerName(in.Service, &in.Settings)
	return name, err == nil
}

// pickerProblem returns the reason why the Service of an endpoint picker cannot be used, or "".
func (b *builder) pickerProblem(name string, port int32) string {
	service := b.Pickers[name]
	if service == nil {
		return fmt.Sprintf("Service %s of the endpoint picker does not exist: create it, or correct endpointPickerRef", name)
	}
	if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Port == port && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP)
	}) {
		return fmt.Sprintf("Service %s of the endpoint picker has no TCP port %d: correct the port of the Service or of endpointPickerRef",
			name, port)
	}
	return ""
}

// planFallback plans the fallback Service, if it is configured and the entry has a Service.
func (b *builder) planFallback(entry isvc.Role) {
	f := b.Settings.Fallback
	if f == nil {
		return
	}
	service, err := backend.FindService(b.Services, b.Service, entry)
	if err != nil {
		b.freezeSlots(Entry)
		b.addReason(entry, missingReason(err), "%s", err)
		return
	}
	pods, err := backend.SelectPods(b.Services, b.Service, entry)
	if err != nil {
		b.freezeSlots(Entry)
		b.addReason(entry, ReasonInvalidConfiguration, "fallbackService: %s", err)
		return
	}
	b.plan.Fallback = &Fallback{
		Name: FallbackName(b.Service.Name, f.Suffix), Type: f.Type, Selector: pods.Labels, Port: service.Port,
		TargetPort: service.TargetPort, AppProtocol: service.AppProtocol, Annotations: b.Settings.FallbackAnnotations(),
	}
}

// warnOfWorkers adds a warning for each component whose Service in OME also selects worker pods, which do not serve requests.
func (b *builder) warnOfWorkers() {
	roles := map[isvc.Role]bool{}
	for i := range b.plan.Exposures {
		if e := &b.plan.Exposures[i]; e.Backend.Pool == "" {
			roles[e.Role] = true
		}
	}
	for _, r := range slices.Sorted(maps.Keys(roles)) {
		if b.podsOf(r).Workers {
			b.addWarning(r, ReasonWorkersSelected,
				"OME's Service %s also sends requests to worker pods: add leader: {} and worker: {} to spec.%s",
				backend.ServiceName(b.Service.Name, r), r)
		}
	}
}
