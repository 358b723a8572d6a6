package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/observe"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
	"fairlead.dev/services/backendset-syncer/internal/policy"
)

// references reads what bindings refer to.
type references interface {
	Rivals(b *v1alpha1.BackendSetBinding) []*v1alpha1.BackendSetBinding
	Siblings(b *v1alpha1.BackendSetBinding) []*v1alpha1.BackendSetBinding
	Endpoints(b *v1alpha1.BackendSetBinding, isPod func(netip.Addr) bool) (observe.Endpoints, error)
}

// configuration has the administrator's document, and the problem of its last text.
type configuration interface {
	Current() (*policy.Document, string)
}

// Judge decides which bindings may write their backend sets, and what.
type Judge struct {
	observer      references
	configuration configuration
	holders       *holders
	recorded      Recorded
}

// Recorded reports whether a backend set belongs to Gateways, according to the record of its load balancer.
type Recorded func(loadBalancer, set string) bool

// NewJudge returns a Judge that has granted nothing. recorded may be nil: no set belongs to Gateways.
func NewJudge(o references, c configuration, recorded Recorded) *Judge {
	return &Judge{observer: o, configuration: c, holders: newHolders(), recorded: recorded}
}

// Verdict is what a binding may do.
type Verdict struct {
	key        actor.Key
	permission policy.Permission
	owns       bool // its backend set
	configured bool // there is a configuration
	takesOver  bool // the backends that the set has
	endpoints  observe.Endpoints
	// reason and message of the condition, if it is not what an actor reports.
	reason, message string
	// writes means that the actor writes the set. Otherwise the set stays as it is.
	writes bool
}

// Problem returns why the binding does not write its set, empty if it does.
func (v *Verdict) Problem() string {
	if v.writes {
		return ""
	}
	return v.message
}

// Message explains what is wrong with the binding although it writes its set, empty if nothing is.
func (v *Verdict) Message() string { return v.message }

// refuse lets the set stay as it is.
func (v *Verdict) refuse(reason, message string) *Verdict {
	v.reason, v.message = reason, message
	return v
}

// Of decides about a binding.
func (j *Judge) Of(b *v1alpha1.BackendSetBinding) *Verdict {
	document, _ := j.configuration.Current()
	v := &Verdict{key: keyOf(b), configured: document != nil}
	var problem string
	if v.permission, problem = j.permit(b); problem != "" {
		return v.refuse(v1alpha1.ReasonNotAllowed, problem)
	}
	if problem = j.grant(v.key, b); problem != "" {
		return v.refuse(v1alpha1.ReasonConflict, problem)
	}
	v.owns, v.writes = true, true
	v.takesOver = v.permission.TakeOver || j.holders.wasOwned(v.key)
	endpoints, err := j.observer.Endpoints(b, document.IsPod)
	missing := fmt.Sprintf("Service %s does not exist", b.Spec.ServiceRef.Name)
	switch v.endpoints = endpoints; {
	case b.DeletionTimestamp != nil: // they all leave the set
	case err != nil:
		v.writes = false
		return v.refuse(v1alpha1.ReasonServiceInvalid, err.Error()+"; the backend set keeps its backends")
	case endpoints.Missing && b.Status.HeldSince == nil:
		v.writes = false
		return v.refuse(v1alpha1.ReasonServiceInvalid, missing+"; the backend set keeps its backends")
	case endpoints.Missing:
		v.reason, v.message = v1alpha1.ReasonServiceInvalid, missing+": its endpoints leave the backend set"
	case endpoints.Refused != "":
		v.reason, v.message = v1alpha1.ReasonAddressesRefused, endpoints.Refused
	}
	return v
}

// grant returns why a binding does not own its backend set, empty if it does.
func (j *Judge) grant(key actor.Key, b *v1alpha1.BackendSetBinding) string {
	if j.recorded != nil && j.recorded(key.LoadBalancer, key.Set) {
		return fmt.Sprintf("backend set %s belongs to Gateways: bind another one", key.Set)
	}
	rivals := slices.DeleteFunc(slices.Clone(j.observer.Rivals(b)), func(x *v1alpha1.BackendSetBinding) bool {
		if x.UID == b.UID {
			return true
		}
		_, problem := j.permit(x)
		return problem != ""
	})
	if owner := j.holders.grant(key, b, rivals); owner.UID != b.UID {
		return conflict(b, owner)
	}
	return ""
}

// permit returns what the administrator permits a binding, or why it permits nothing.
func (j *Judge) permit(b *v1alpha1.BackendSetBinding) (policy.Permission, string) {
	document, invalid := j.configuration.Current()
	permission, err := document.Permit(b.Namespace, b.Spec.LoadBalancerID, b.Spec.BackendSetName)
	switch {
	case err != nil && invalid != "":
		return permission, fmt.Sprintf("%s (%s)", err, invalid)
	case err != nil:
		return permission, err.Error()
	case isBeyond(permission.Bindings, b, j.observer.Siblings(b)):
		return permission, fmt.Sprintf("the namespace has more than %d bindings, its limit in the configuration: delete some or ask the administrator to raise the limit", permission.Bindings)
	}
	return permission, ""
}

// Wanted returns what the actor of the load balancer should do for a binding.
func (v *Verdict) Wanted(b *v1alpha1.BackendSetBinding) *actor.Wanted {
	w := &actor.Wanted{
		Endpoints: v.endpoints.All, Services: []string{b.Namespace + "/" + b.Spec.ServiceRef.Name}, Weight: int(max(b.Spec.Weight, 1)), Maximum: v.permission.Backends,
		Drain: drainOf(b), Health: healthOf(b), Emptying: b.DeletionTimestamp != nil, Watching: b.Status.HeldSince == nil, Limits: v.permission.Limits,
	}
	if !w.Watching {
		w.Claimed = b.Status.HeldSince.Time
	}
	return w
}

// defaultDrain is the default of the API: longer than any stream that a gateway permits.
const defaultDrain = time.Hour

func drainOf(b *v1alpha1.BackendSetBinding) plan.Drain {
	d := plan.Drain{Maximum: defaultDrain}
	if m := b.Spec.Drain.Maximum; m != nil {
		d.Maximum = m.Duration
	}
	if m := b.Spec.Drain.Minimum; m != nil {
		d.Minimum = m.Duration
	}
	return d
}

func healthOf(b *v1alpha1.BackendSetBinding) *ociapi.HealthChecker {
	h := b.Spec.HealthChecker
	if h == nil {
		return nil
	}
	return &ociapi.HealthChecker{
		Protocol: h.Protocol, URLPath: h.URLPath, Port: int(h.Port), ReturnCode: int(h.ReturnCode), Retries: int(h.Retries),
		Timeout: time.Duration(h.TimeoutMilliseconds) * time.Millisecond, Interval: time.Duration(h.IntervalMilliseconds) * time.Millisecond,
	}
}
