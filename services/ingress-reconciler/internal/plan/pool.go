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

// Fallback is a Service to create beside OME's.
type Fallback struct {
	Name        string
	Type        string
	Selector    map[string]string
	Port        int32
	TargetPort  backend.Port
	AppProtocol string // empty: the Service of OME says none
	Annotations map[string]string
}

// PoolName returns the name of the InferencePool that is created for a service. Data planes use it as the value of a label.
func PoolName(service string) string { return bounded(service, "-fairlead") }

// FallbackName returns the name of the Service that is created beside OME's.
func FallbackName(service, suffix string) string { return bounded(service, suffix) }

// bounded returns a name with a suffix that fits in a DNS label. A name that is too long is cut and has a hash before the
// suffix.
func bounded(name, suffix string) string {
	if len(name)+len(suffix) <= validation.DNS1035LabelMaxLength {
		return name + suffix
	}
	sum := sha256.Sum256([]byte(name))
	hash := "-" + hex.EncodeToString(sum[:4])
	return strings.TrimRight(name[:validation.DNS1035LabelMaxLength-len(hash)-len(suffix)], "-.") + hash + suffix
}

// pool returns the InferencePool that takes the requests of the entry, or why there is none for now. Without a name and a
// reason the Service of the entry takes them.
//
// A pool replaces the entry, so it must be a pool of the entry's pods. A pool that is created has the pods of the engine:
// beside a router it is not created, as it would bypass the router and, with it, the decoder.
func (b *builder) pool() (name, reason, message string) {
	p := b.Settings.Pool
	switch {
	case b.plan.Strategy != settings.HTTPRoute:
		return "", ReasonPoolUnsupported, fmt.Sprintf("strategy %s has no InferencePools", b.plan.Strategy)
	case b.Pools == nil:
		return "", ReasonAPIUnavailable, "the API server has no InferencePools"
	case p.Name != "":
		return b.namedPool(p.Name)
	}
	if entry, _ := b.entry(); entry != isvc.Engine {
		b.addWarning(entry, ReasonPoolUnsupported, "requests go to the %s: an InferencePool of the engine would bypass it. Remove the %s or inferencePool", entry, entry)
		return "", "", ""
	}
	return b.createdPool(p.EndpointPickerRef)
}

// createdPool plans an InferencePool of the engine's pods.
func (b *builder) createdPool(ref *settings.EndpointPicker) (name, reason, message string) {
	engine, err := backend.Find(b.Services, b.Service, isvc.Engine)
	if err != nil {
		return "", missing(err), err.Error()
	}
	pods, err := backend.SelectPods(b.Services, b.Service, isvc.Engine)
	switch {
	case err != nil:
		return "", ReasonPoolUnsupported, err.Error()
	case engine.TargetPort.Number == 0:
		return "", ReasonPoolUnsupported, fmt.Sprintf("Service %s has the target port %s by name: an InferencePool needs a number", engine.Name, engine.TargetPort.Name)
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

// namedPool checks an InferencePool that somebody else has made.
//
//	the entry is the engine   the pool is used. A warning says if it selects none of the engine's pods, or workers
//	the entry is the router   the pool is used if its selector names the router's pods and no others: a pool of several router
//	                          replicas is legitimate. Any other pool bypasses the router: its Service is used, with a warning
func (b *builder) namedPool(name string) (pool, reason, message string) {
	found := b.Pools[name]
	if found == nil {
		return "", ReasonPoolNotFound, fmt.Sprintf("there is no InferencePool %s: create it, or correct inferencePool.name", name)
	}
	entry, _ := b.entry()
	selector := poolSelector(found)
	pods := b.podsOf(entry)
	match := pods.Match(selector)
	switch {
	case entry != isvc.Engine && (match == backend.MatchNone || b.podsOf(isvc.Engine).Match(selector) != backend.MatchNone):
		b.addWarning(entry, ReasonPoolUnsupported, "requests go to the %s: InferencePool %s would bypass it. Add %s: %s to the selector of the pool", entry, name, backend.LabelComponent, entry)
		return "", "", ""
	case match == backend.MatchNone:
		b.addWarning(entry, ReasonPoolMismatch, "InferencePool %s selects no pods of the %s: %s", name, entry, pods.Difference(selector))
	case pods.IncludesWorkers(selector):
		b.addWarning(entry, ReasonPoolMismatch, "InferencePool %s also selects worker pods, which do not serve requests: add the selector of OME's Service to that of the pool", name)
	}
	if service, port, ok := pickerOf(found); ok {
		if problem := b.pickerProblem(service, port); problem != "" {
			return "", ReasonPickerNotFound, fmt.Sprintf("InferencePool %s: %s", name, problem)
		}
	}
	return name, "", ""
}

// podsOf returns what is known of the pods of a component.
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

// pickerOf returns the Service of the endpoint picker of a pool. It reports false if the picker is no Service.
func pickerOf(p *inferencev1.InferencePool) (name string, port int32, ok bool) {
	ref := p.Spec.EndpointPickerRef
	if ref == nil || ref.Port == nil || ref.Group != nil && *ref.Group != "" || ref.Kind != "" && ref.Kind != "Service" {
		return "", 0, false
	}
	return string(ref.Name), int32(ref.Port.Number), true
}

// pickerName returns the name of the Service of the endpoint picker of a pool that is created.
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

// PickerService returns the name of the Service of the endpoint picker, in the namespace of the service, that a plan looks up
// in Input.Pickers. It reports false if there is none to look up.
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

// pickerProblem returns why the Service of an endpoint picker cannot be used, or "".
func (b *builder) pickerProblem(name string, port int32) string {
	service := b.Pickers[name]
	if service == nil {
		return fmt.Sprintf("there is no Service %s for the endpoint picker: create it, or correct endpointPickerRef", name)
	}
	if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Port == port && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP)
	}) {
		return fmt.Sprintf("Service %s of the endpoint picker has no TCP port %d: correct the port of the Service or of endpointPickerRef", name, port)
	}
	return ""
}

// fallback plans a Service beside OME's, if one is configured and the entry has a Service.
func (b *builder) fallback(entry isvc.Role) {
	f := b.Settings.Fallback
	if f == nil {
		return
	}
	service, err := backend.Find(b.Services, b.Service, entry)
	if err != nil {
		b.keepSlots(Entry)
		b.addReason(entry, missing(err), "%s", err)
		return
	}
	pods, err := backend.SelectPods(b.Services, b.Service, entry)
	if err != nil {
		b.keepSlots(Entry)
		b.addReason(entry, ReasonInvalidConfiguration, "fallbackService: %s", err)
		return
	}
	b.plan.Fallback = &Fallback{
		Name: FallbackName(b.Service.Name, f.Suffix), Type: f.Type, Selector: pods.Labels, Port: service.Port, TargetPort: service.TargetPort,
		AppProtocol: service.AppProtocol, Annotations: b.Settings.FallbackAnnotations(),
	}
}

// warnOfWorkers warns of each component whose requests OME's own Service also sends to worker pods, which do not serve them.
func (b *builder) warnOfWorkers() {
	roles := map[isvc.Role]bool{}
	for i := range b.plan.Exposures {
		if e := &b.plan.Exposures[i]; e.Backend.Pool == "" {
			roles[e.Role] = true
		}
	}
	for _, r := range slices.Sorted(maps.Keys(roles)) {
		if b.podsOf(r).Workers {
			b.addWarning(r, ReasonWorkersSelected, "OME's Service %s also sends requests to worker pods: add leader: {} and worker: {} to spec.%s", backend.Name(b.Service.Name, r), r)
		}
	}
}
