package ocilb

import (
	"slices"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// Health of backends, backend sets and load balancers.
const (
	healthOK       = "OK"
	healthWarning  = "WARNING"
	healthCritical = "CRITICAL"
	healthUnknown  = "UNKNOWN"
)

// listHealths lists the health of the load balancers of a compartment.
func (e *Emulator) listHealths(r *request) (answer, *lbapi.Error) {
	compartment, err := inCompartment(r)
	if err != nil {
		return answer{}, err
	}
	list := []lbapi.LoadBalancerHealthSummary{}
	for _, lb := range e.state.List(compartment) {
		list = append(list, lbapi.LoadBalancerHealthSummary{LoadBalancerID: lb.ID, Status: e.health(lb).Status})
	}
	p, err := paged(r, list)
	return answer{object: p}, err
}

func (e *Emulator) backendHealth(lb *lbapi.LoadBalancer, s *lbapi.BackendSet, b *lbapi.Backend) lbapi.BackendHealth {
	h := lbapi.BackendHealth{Status: healthUnknown, HealthCheckResults: []lbapi.HealthCheckResult{}}
	if !used(lb, s.Name) {
		return h
	}
	good, bad := 0, 0
	for i, result := range e.plane.Health(lb.ID, s.Name, b.Name) {
		if result == "" {
			continue // this node has not checked it yet
		}
		h.HealthCheckResults = append(h.HealthCheckResults, lbapi.HealthCheckResult{
			SubnetID: "ocid1.subnet.oc1..emulator", SourceIPAddress: []string{"10.0.0.2", "10.0.0.3"}[i%2], Timestamp: time.Now().UTC().Format(time.RFC3339Nano), HealthCheckStatus: result,
		})
		if result == healthOK {
			good++
		} else {
			bad++
		}
	}
	switch {
	case good > 0 && bad > 0:
		h.Status = healthWarning
	case good > 0:
		h.Status = healthOK
	case bad > 0:
		h.Status = healthCritical
	}
	return h
}

// used reports whether a listener can send requests to a set.
func used(lb *lbapi.LoadBalancer, set string) bool {
	for _, l := range lb.Listeners {
		if slices.Contains(lb.Targets(l), set) {
			return true
		}
	}
	return false
}

func (e *Emulator) setHealth(lb *lbapi.LoadBalancer, s *lbapi.BackendSet) lbapi.BackendSetHealth {
	h := lbapi.BackendSetHealth{
		Status: healthUnknown, WarningStateBackendNames: []string{}, CriticalStateBackendNames: []string{},
		UnknownStateBackendNames: []string{}, TotalBackendCount: len(s.Backends),
	}
	for i := range s.Backends {
		b := &s.Backends[i]
		switch e.backendHealth(lb, s, b).Status {
		case healthWarning:
			h.WarningStateBackendNames = append(h.WarningStateBackendNames, b.Name)
		case healthCritical:
			h.CriticalStateBackendNames = append(h.CriticalStateBackendNames, b.Name)
		case healthUnknown:
			h.UnknownStateBackendNames = append(h.UnknownStateBackendNames, b.Name)
		}
	}
	total, unknown := len(s.Backends), len(h.UnknownStateBackendNames)
	bad := unknown + len(h.WarningStateBackendNames) + len(h.CriticalStateBackendNames)
	switch {
	case total == 0 || 2*unknown > total:
	case 2*(total-bad) < total:
		h.Status = healthCritical
	case bad > 0:
		h.Status = healthWarning
	default:
		h.Status = healthOK
	}
	return h
}

func (e *Emulator) health(lb *lbapi.LoadBalancer) lbapi.LoadBalancerHealth {
	h := lbapi.LoadBalancerHealth{
		Status: healthUnknown, WarningStateBackendSetNames: []string{}, CriticalStateBackendSetNames: []string{},
		UnknownStateBackendSetNames: []string{}, TotalBackendSetCount: len(lb.BackendSets),
	}
	for _, s := range lbapi.Sorted(lb.BackendSets) {
		switch e.setHealth(lb, s).Status {
		case healthWarning:
			h.WarningStateBackendSetNames = append(h.WarningStateBackendSetNames, s.Name)
		case healthCritical:
			h.CriticalStateBackendSetNames = append(h.CriticalStateBackendSetNames, s.Name)
		case healthUnknown:
			h.UnknownStateBackendSetNames = append(h.UnknownStateBackendSetNames, s.Name)
		}
	}
	switch {
	case lb.LifecycleState != lbapi.Active && lb.LifecycleState != lbapi.Updating || len(lb.BackendSets) == 0:
	case len(h.CriticalStateBackendSetNames) > 0:
		h.Status = healthCritical
	case len(h.WarningStateBackendSetNames) > 0:
		h.Status = healthWarning
	case len(h.UnknownStateBackendSetNames) > 0: // the documentation says so of more than half, and not what fewer are
	default:
		h.Status = healthOK
	}
	return h
}
