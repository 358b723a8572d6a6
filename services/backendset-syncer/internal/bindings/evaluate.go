package bindings

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/observe"
	"fairlead.dev/services/backendset-syncer/internal/plan"
	"fairlead.dev/services/backendset-syncer/internal/policy"
)

// Evaluator decides which bindings may write their backend sets, and what.
type Evaluator struct {
	caches        informers.Caches
	observer      *observe.Observer
	configuration policy.Source
	owners        *setOwners
	records       string // namespace of the records of load balancers
}

// NewEvaluator returns an Evaluator that has granted nothing.
func NewEvaluator(caches informers.Caches, c policy.Source, records string) *Evaluator {
	return &Evaluator{caches: caches, observer: observe.New(caches), configuration: c, owners: newSetOwners(), records: records}
}

// Decision is what a binding may do.
type Decision struct {
	key        actor.Key
	permission policy.Permission
	owns       bool // its backend set
	configured bool // there is a configuration
	takesOver  bool // the backends that the set has
	endpoints  observe.ServiceEndpoints
	// reason and message of the condition, if it is not what an actor reports.
	reason, message string
	// writes means that the actor writes the set. Otherwise the set stays as it is.
	writes bool
}

// BlockingProblem returns why the binding does not write its set, empty if it does.
func (d *Decision) BlockingProblem() string {
	if d.writes {
		return ""
	}
	return d.message
}

// ConditionMessage explains what is wrong with the binding although it writes its set, empty if nothing is.
func (d *Decision) ConditionMessage() string { return d.message }

// refuseWrite lets the set stay as it is.
func (d *Decision) refuseWrite(reason, message string) *Decision {
	d.reason, d.message = reason, message
	return d
}

// Evaluate decides about a binding.
func (e *Evaluator) Evaluate(b *v1alpha1.BackendSetBinding) *Decision {
	document, _ := e.configuration()
	d := &Decision{key: keyOf(b), configured: document != nil}
	var problem string
	if d.permission, problem = e.checkPermission(b); problem != "" {
		return d.refuseWrite(v1alpha1.ReasonNotAllowed, problem)
	}
	if problem = e.checkOwnership(d.key, b); problem != "" {
		return d.refuseWrite(v1alpha1.ReasonConflict, problem)
	}
	d.owns, d.writes = true, true
	d.takesOver = d.permission.TakeOver || e.owners.wasOwned(d.key)
	service := cache.ObjectName{Namespace: b.Namespace, Name: b.Spec.ServiceRef.Name}
	endpoints, err := e.observer.ServiceEndpoints(service, b.Spec.ServiceRef.Port, document.IsPod)
	missing := fmt.Sprintf("Service %s does not exist", service.Name)
	switch d.endpoints = endpoints; {
	case b.DeletionTimestamp != nil: // they all leave the set
	case err != nil:
		d.writes = false
		return d.refuseWrite(v1alpha1.ReasonServiceInvalid, err.Error()+"; the backend set keeps its backends")
	case endpoints.Missing && b.Status.HeldSince == nil:
		d.writes = false
		return d.refuseWrite(v1alpha1.ReasonServiceInvalid, missing+"; the backend set keeps its backends")
	case endpoints.Missing:
		d.reason, d.message = v1alpha1.ReasonServiceInvalid, missing+": its endpoints leave the backend set"
	case endpoints.Refused != "":
		d.reason, d.message = v1alpha1.ReasonAddressesRefused, endpoints.Refused
	}
	return d
}

// checkOwnership returns why a binding does not own its backend set, empty if it does.
func (e *Evaluator) checkOwnership(key actor.Key, b *v1alpha1.BackendSetBinding) string {
	if lbrecord.ListsSet(e.caches.ConfigMaps, e.records, key.LoadBalancer, key.Set) {
		return fmt.Sprintf("backend set %s belongs to Gateways: bind another one", key.Set)
	}
	bound := informers.BindingsOfSet(e.caches.Bindings, key.LoadBalancer, key.Set)
	rivals := slices.DeleteFunc(bound, func(x *v1alpha1.BackendSetBinding) bool {
		if x.UID == b.UID {
			return true
		}
		_, problem := e.checkPermission(x)
		return problem != ""
	})
	if owner := e.owners.chooseOwner(key, b, rivals); owner.UID != b.UID {
		return conflictMessage(b, owner)
	}
	return ""
}

// checkPermission returns what the administrator permits a binding, or why it permits nothing.
func (e *Evaluator) checkPermission(b *v1alpha1.BackendSetBinding) (policy.Permission, string) {
	document, invalid := e.configuration()
	permission, err := document.PermitBinding(b.Namespace, b.Spec.LoadBalancerID, b.Spec.BackendSetName)
	switch {
	case err != nil && invalid != "":
		return permission, fmt.Sprintf("%s (%s)", err, invalid)
	case err != nil:
		return permission, err.Error()
	case exceedsLimit(permission.Bindings, b, informers.BindingsOfNamespace(e.caches.Bindings, b.Namespace)):
		return permission, fmt.Sprintf(
			"the namespace has more than %d bindings, its limit in the configuration: delete some or ask the "+
				"administrator to raise the limit",
			permission.Bindings)
	}
	return permission, ""
}

// BuildWanted returns what the actor of the load balancer should do for a binding.
func (d *Decision) BuildWanted(b *v1alpha1.BackendSetBinding) *actor.Wanted {
	w := &actor.Wanted{
		Endpoints: d.endpoints.Endpoints, Services: []string{b.Namespace + "/" + b.Spec.ServiceRef.Name},
		Weight: int(max(b.Spec.Weight, 1)), Maximum: d.permission.Backends, Drain: drainOf(b), Health: healthOf(b),
		Emptying: b.DeletionTimestamp != nil, Watching: b.Status.HeldSince == nil, Limits: d.permission.Limits,
	}
	if !w.Watching {
		w.Claimed = b.Status.HeldSince.Time
	}
	return w
}

func drainOf(b *v1alpha1.BackendSetBinding) plan.Drain {
	return plan.Drain{
		Minimum: ptr.Deref(b.Spec.Drain.Minimum, metav1.Duration{}).Duration,
		Maximum: ptr.Deref(b.Spec.Drain.Maximum, metav1.Duration{Duration: plan.DefaultDrain}).Duration,
	}
}

func healthOf(b *v1alpha1.BackendSetBinding) *plan.HealthChecker {
	h := b.Spec.HealthChecker
	if h == nil {
		return nil
	}
	return &plan.HealthChecker{
		Protocol: h.Protocol, URLPath: h.URLPath, Port: int(h.Port), ReturnCode: int(h.ReturnCode), Retries: int(h.Retries),
		Timeout:  time.Duration(h.TimeoutMilliseconds) * time.Millisecond,
		Interval: time.Duration(h.IntervalMilliseconds) * time.Millisecond,
	}
}
