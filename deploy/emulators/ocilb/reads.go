package ocilb

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// onBalancer returns an operation that reads a load balancer.
func (e *Emulator) onBalancer(read func(r *request, lb *lbapi.LoadBalancer) (any, *lbapi.Error)) operation {
	return func(r *request) (answer, *lbapi.Error) {
		lb, etag, err := e.state.Read(r.PathValue("lb"))
		if err != nil {
			return answer{}, err
		}
		object, err := read(r, lb)
		return answer{object: object, etag: etag}, err
	}
}

// one returns an operation that reads one of the objects of a load balancer.
func one[T any](e *Emulator, kind string, from func(lb *lbapi.LoadBalancer) map[string]T) operation {
	return e.onBalancer(func(r *request, lb *lbapi.LoadBalancer) (any, *lbapi.Error) {
		object, ok := from(lb)[r.PathValue("name")]
		if !ok {
			return nil, lbapi.NotFound(kind, r.PathValue("name"))
		}
		return object, nil
	})
}

// all returns an operation that lists the objects of a kind of a load balancer.
func all[T any](e *Emulator, from func(lb *lbapi.LoadBalancer) map[string]T) operation {
	return e.onBalancer(func(_ *request, lb *lbapi.LoadBalancer) (any, *lbapi.Error) { return sortedValues(from(lb)), nil })
}

// onSet returns an operation that reads a backend set.
func (e *Emulator) onSet(read func(r *request, lb *lbapi.LoadBalancer, s *lbapi.BackendSet) (any, *lbapi.Error)) operation {
	return e.onBalancer(func(r *request, lb *lbapi.LoadBalancer) (any, *lbapi.Error) {
		s := lb.BackendSets[r.PathValue("name")]
		if s == nil {
			return nil, lbapi.NotFound("backend set", r.PathValue("name"))
		}
		return read(r, lb, s)
	})
}

// onBackend returns an operation that reads a backend.
func (e *Emulator) onBackend(read func(lb *lbapi.LoadBalancer, s *lbapi.BackendSet, b *lbapi.Backend) any) operation {
	return e.onSet(func(r *request, lb *lbapi.LoadBalancer, s *lbapi.BackendSet) (any, *lbapi.Error) {
		b := s.Backend(r.PathValue("backend"))
		if b == nil {
			return nil, lbapi.NotFound("backend", r.PathValue("backend"))
		}
		return read(lb, s, b), nil
	})
}

// reads returns the operations that change nothing, by pattern.
func (e *Emulator) reads() map[string]named {
	const lb = "GET " + base + "/loadBalancers/{lb}"
	sets := func(lb *lbapi.LoadBalancer) map[string]*lbapi.BackendSet { return lb.BackendSets }
	policies := func(lb *lbapi.LoadBalancer) map[string]*lbapi.RoutingPolicy { return lb.RoutingPolicies }
	hostnames := func(lb *lbapi.LoadBalancer) map[string]*lbapi.Hostname { return lb.Hostnames }
	return map[string]named{
		"GET " + base + "/loadBalancers":                   {"ListLoadBalancers", e.listLoadBalancers},
		"GET " + base + "/loadBalancerWorkRequests/{work}": {"GetWorkRequest", e.workRequest},
		lb:                         {"GetLoadBalancer", e.onBalancer(func(_ *request, lb *lbapi.LoadBalancer) (any, *lbapi.Error) { return lb, nil })},
		lb + "/workRequests":       {"ListWorkRequests", e.workRequests},
		lb + "/health":             {"GetLoadBalancerHealth", e.onBalancer(func(_ *request, lb *lbapi.LoadBalancer) (any, *lbapi.Error) { return e.health(lb), nil })},
		lb + "/backendSets":        {"ListBackendSets", all(e, sets)},
		lb + "/backendSets/{name}": {"GetBackendSet", one(e, "backend set", sets)},
		lb + "/backendSets/{name}/health": {"GetBackendSetHealth", e.onSet(func(_ *request, lb *lbapi.LoadBalancer, s *lbapi.BackendSet) (any, *lbapi.Error) {
			return e.setHealth(lb, s), nil
		})},
		lb + "/backendSets/{name}/healthChecker": {"GetHealthChecker", e.onSet(func(_ *request, _ *lbapi.LoadBalancer, s *lbapi.BackendSet) (any, *lbapi.Error) {
			return s.HealthChecker, nil
		})},
		lb + "/backendSets/{name}/backends": {"ListBackends", e.onSet(func(_ *request, _ *lbapi.LoadBalancer, s *lbapi.BackendSet) (any, *lbapi.Error) {
			return s.Backends, nil
		})},
		lb + "/backendSets/{name}/backends/{backend}": {"GetBackend", e.onBackend(func(_ *lbapi.LoadBalancer, _ *lbapi.BackendSet, b *lbapi.Backend) any { return b })},
		lb + "/backendSets/{name}/backends/{backend}/health": {"GetBackendHealth", e.onBackend(func(lb *lbapi.LoadBalancer, s *lbapi.BackendSet, b *lbapi.Backend) any {
			return e.backendHealth(lb, s, b)
		})},
		lb + "/routingPolicies":        {"ListRoutingPolicies", all(e, policies)},
		lb + "/routingPolicies/{name}": {"GetRoutingPolicy", one(e, "routing policy", policies)},
		lb + "/hostnames":              {"ListHostnames", all(e, hostnames)},
		lb + "/hostnames/{name}":       {"GetHostname", one(e, "hostname", hostnames)},
		lb + "/certificates":           {"ListCertificates", all(e, func(lb *lbapi.LoadBalancer) map[string]*lbapi.Certificate { return lb.Certificates })},
		lb + "/ruleSets":               {"ListRuleSets", all(e, func(lb *lbapi.LoadBalancer) map[string]any { return lb.RuleSets })},
		lb + "/ruleSets/{name}":        {"GetRuleSet", one(e, "rule set", func(lb *lbapi.LoadBalancer) map[string]any { return lb.RuleSets })},
		lb + "/pathRouteSets":          {"ListPathRouteSets", all(e, func(lb *lbapi.LoadBalancer) map[string]any { return lb.PathRouteSets })},
		lb + "/sslCipherSuites":        {"ListSSLCipherSuites", all(e, func(lb *lbapi.LoadBalancer) map[string]any { return lb.SSLCipherSuites })},
	}
}

func (e *Emulator) listLoadBalancers(r *request) (answer, *lbapi.Error) {
	compartment := r.URL.Query().Get("compartmentId")
	if compartment == "" {
		return answer{}, lbapi.Errorf(http.StatusBadRequest, lbapi.CodeMissingParameter, "The required parameter 'compartmentId' is missing")
	}
	p, err := paged(r, e.state.List(compartment))
	return answer{object: p}, err
}

func (e *Emulator) workRequest(r *request) (answer, *lbapi.Error) {
	w, err := e.state.WorkRequest(r.PathValue("work"))
	return answer{object: w}, err
}

func (e *Emulator) workRequests(r *request) (answer, *lbapi.Error) {
	works, err := e.state.WorkRequests(r.PathValue("lb"))
	if err != nil {
		return answer{}, err
	}
	p, err := paged(r, works)
	return answer{object: p}, err
}

// Health of backends and backend sets.
const (
	healthOK       = "OK"
	healthWarning  = "WARNING"
	healthCritical = "CRITICAL"
	healthUnknown  = "UNKNOWN"
)

func (e *Emulator) backendHealth(lb *lbapi.LoadBalancer, s *lbapi.BackendSet, b *lbapi.Backend) lbapi.BackendHealth {
	h := lbapi.BackendHealth{Status: healthUnknown, HealthCheckResults: []lbapi.HealthCheckResult{}}
	if !e.used(lb, s.Name) {
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
func (e *Emulator) used(lb *lbapi.LoadBalancer, set string) bool {
	for _, l := range lb.Listeners {
		if l.DefaultBackendSetName == set {
			return true
		}
		if l.RoutingPolicyName != nil && lb.RoutingPolicies[*l.RoutingPolicyName] != nil {
			for _, rule := range lb.RoutingPolicies[*l.RoutingPolicyName].Rules {
				if rule.Actions[0].BackendSetName == set {
					return true
				}
			}
		}
	}
	return false
}

func (e *Emulator) setHealth(lb *lbapi.LoadBalancer, s *lbapi.BackendSet) lbapi.BackendSetHealth {
	h := lbapi.BackendSetHealth{
		Status: healthOK, WarningStateBackendNames: []string{}, CriticalStateBackendNames: []string{}, UnknownStateBackendNames: []string{},
		TotalBackendCount: len(s.Backends),
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
	h.Status = overall(len(s.Backends), len(h.WarningStateBackendNames), len(h.CriticalStateBackendNames), len(h.UnknownStateBackendNames))
	return h
}

func (e *Emulator) health(lb *lbapi.LoadBalancer) lbapi.LoadBalancerHealth {
	h := lbapi.LoadBalancerHealth{
		WarningStateBackendSetNames: []string{}, CriticalStateBackendSetNames: []string{}, UnknownStateBackendSetNames: []string{}, TotalBackendSetCount: len(lb.BackendSets),
	}
	for _, name := range slices.Sorted(maps.Keys(lb.BackendSets)) {
		switch e.setHealth(lb, lb.BackendSets[name]).Status {
		case healthWarning:
			h.WarningStateBackendSetNames = append(h.WarningStateBackendSetNames, name)
		case healthCritical:
			h.CriticalStateBackendSetNames = append(h.CriticalStateBackendSetNames, name)
		case healthUnknown:
			h.UnknownStateBackendSetNames = append(h.UnknownStateBackendSetNames, name)
		}
	}
	h.Status = overall(len(lb.BackendSets), len(h.WarningStateBackendSetNames), len(h.CriticalStateBackendSetNames), len(h.UnknownStateBackendSetNames))
	return h
}

// overall returns the status of a whole whose parts are not all healthy: CRITICAL from half of them on.
func overall(total, warning, critical, unknown int) string {
	switch {
	case total == 0 || unknown == total:
		return healthUnknown
	case 2*critical >= total:
		return healthCritical
	case warning+critical+unknown > 0:
		return healthWarning
	}
	return healthOK
}
