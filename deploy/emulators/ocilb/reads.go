package ocilb

import (
	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// onBalancerPath is the path of a load balancer.
const onBalancerPath = base + "/loadBalancers/{lb}"

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
func one[T any](e *Emulator, what string, from func(lb *lbapi.LoadBalancer) map[string]*T) operation {
	return e.onBalancer(func(r *request, lb *lbapi.LoadBalancer) (any, *lbapi.Error) {
		object := from(lb)[r.PathValue("name")]
		if object == nil {
			return nil, lbapi.NotFound(what, r.PathValue("name"))
		}
		return object, nil
	})
}

// all returns an operation that lists the objects of a kind of a load balancer.
func all[T any](e *Emulator, from func(lb *lbapi.LoadBalancer) map[string]*T) operation {
	return e.onBalancer(func(_ *request, lb *lbapi.LoadBalancer) (any, *lbapi.Error) { return lbapi.Sorted(from(lb)), nil })
}

// inSet returns an operation that reads a backend set.
func (e *Emulator) inSet(read func(r *request, lb *lbapi.LoadBalancer, s *lbapi.BackendSet) (any, *lbapi.Error)) operation {
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
	return e.inSet(func(r *request, lb *lbapi.LoadBalancer, s *lbapi.BackendSet) (any, *lbapi.Error) {
		b := s.Backend(r.PathValue("backend"))
		if b == nil {
			return nil, lbapi.NotFound("backend", r.PathValue("backend"))
		}
		return read(lb, s, b), nil
	})
}

// reads returns the operations that change nothing, by pattern.
func (e *Emulator) reads() map[string]named {
	const lb = "GET " + onBalancerPath
	operations := map[string]named{
		"GET " + base + "/loadBalancers":                   {"ListLoadBalancers", e.listLoadBalancers},
		"GET " + base + "/loadBalancerHealths":             {"ListLoadBalancerHealths", e.listHealths},
		"GET " + base + "/loadBalancerWorkRequests/{work}": {"GetWorkRequest", e.workRequest},
		"GET " + base + "/loadBalancerPolicies":            {"ListPolicies", names(lbapi.Policies()...)},
		"GET " + base + "/loadBalancerProtocols":           {"ListProtocols", names(lbapi.Protocols()...)},
		"GET " + base + "/loadBalancerShapes":              {"ListShapes", names(lbapi.FlexibleShape)},

		lb:                             {"GetLoadBalancer", e.onBalancer(func(_ *request, lb *lbapi.LoadBalancer) (any, *lbapi.Error) { return lb, nil })},
		lb + "/workRequests":           {"ListWorkRequests", e.workRequests},
		lb + "/health":                 {"GetLoadBalancerHealth", e.onBalancer(func(_ *request, lb *lbapi.LoadBalancer) (any, *lbapi.Error) { return e.health(lb), nil })},
		lb + "/listeners/{name}/rules": {"ListListenerRules", e.onBalancer(listenerRules)},
	}
	e.readsOfSets(operations)
	e.readsOfObjects(operations)
	return operations
}

// readsOfSets adds the operations that read backend sets.
func (e *Emulator) readsOfSets(to map[string]named) {
	const all = "GET " + onBalancerPath + "/backendSets"
	const set, backend = all + "/{name}", all + "/{name}/backends/{backend}"
	to[set+"/health"] = named{"GetBackendSetHealth", e.inSet(func(_ *request, lb *lbapi.LoadBalancer, s *lbapi.BackendSet) (any, *lbapi.Error) {
		return e.setHealth(lb, s), nil
	})}
	to[set+"/healthChecker"] = named{"GetHealthChecker", e.inSet(func(_ *request, _ *lbapi.LoadBalancer, s *lbapi.BackendSet) (any, *lbapi.Error) {
		return s.HealthChecker, nil
	})}
	to[set+"/backends"] = named{"ListBackends", e.inSet(func(_ *request, _ *lbapi.LoadBalancer, s *lbapi.BackendSet) (any, *lbapi.Error) {
		return s.Backends, nil
	})}
	to[backend] = named{"GetBackend", e.onBackend(func(_ *lbapi.LoadBalancer, _ *lbapi.BackendSet, b *lbapi.Backend) any { return b })}
	to[backend+"/health"] = named{"GetBackendHealth", e.onBackend(func(lb *lbapi.LoadBalancer, s *lbapi.BackendSet, b *lbapi.Backend) any {
		return e.backendHealth(lb, s, b)
	})}
}

// readsOfObjects adds the operations that list the objects of each kind, and that read one of them by its name.
func (e *Emulator) readsOfObjects(to map[string]named) {
	sets := func(lb *lbapi.LoadBalancer) map[string]*lbapi.BackendSet { return lb.BackendSets }
	policies := func(lb *lbapi.LoadBalancer) map[string]*lbapi.RoutingPolicy { return lb.RoutingPolicies }
	hostnames := func(lb *lbapi.LoadBalancer) map[string]*lbapi.Hostname { return lb.Hostnames }
	rules := func(lb *lbapi.LoadBalancer) map[string]*lbapi.RuleSet { return lb.RuleSets }
	paths := func(lb *lbapi.LoadBalancer) map[string]*lbapi.PathRouteSet { return lb.PathRouteSets }
	suites := func(lb *lbapi.LoadBalancer) map[string]*lbapi.SSLCipherSuite { return lb.SSLCipherSuites }
	certificates := func(lb *lbapi.LoadBalancer) map[string]*lbapi.Certificate { return lb.Certificates }
	const lb = "GET " + onBalancerPath
	to[lb+"/backendSets"] = named{"ListBackendSets", all(e, sets)}
	to[lb+"/backendSets/{name}"] = named{"GetBackendSet", one(e, "backend set", sets)}
	to[lb+"/routingPolicies"] = named{"ListRoutingPolicies", all(e, policies)}
	to[lb+"/routingPolicies/{name}"] = named{"GetRoutingPolicy", one(e, "routing policy", policies)}
	to[lb+"/hostnames"] = named{"ListHostnames", all(e, hostnames)}
	to[lb+"/hostnames/{name}"] = named{"GetHostname", one(e, "hostname", hostnames)}
	to[lb+"/ruleSets"] = named{"ListRuleSets", all(e, rules)}
	to[lb+"/ruleSets/{name}"] = named{"GetRuleSet", one(e, "rule set", rules)}
	to[lb+"/pathRouteSets"] = named{"ListPathRouteSets", all(e, paths)}
	to[lb+"/pathRouteSets/{name}"] = named{"GetPathRouteSet", one(e, "path route set", paths)}
	to[lb+"/sslCipherSuites"] = named{"ListSSLCipherSuites", all(e, suites)}
	to[lb+"/sslCipherSuites/{name}"] = named{"GetSSLCipherSuite", one(e, "cipher suite", suites)}
	to[lb+"/certificates"] = named{"ListCertificates", all(e, certificates)}
}

// names returns an operation that lists names, which are the same for all compartments.
func names(all ...string) operation {
	type object struct {
		Name string `json:"name"`
	}
	return func(r *request) (answer, *lbapi.Error) {
		if _, err := inCompartment(r); err != nil {
			return answer{}, err
		}
		list := make([]object, 0, len(all))
		for _, name := range all {
			list = append(list, object{Name: name})
		}
		p, err := paged(r, list)
		return answer{object: p}, err
	}
}

// listenerRules lists the rules of a listener.
func listenerRules(r *request, lb *lbapi.LoadBalancer) (any, *lbapi.Error) {
	l := lb.Listeners[r.PathValue("name")]
	if l == nil {
		return nil, lbapi.NotFound("listener", r.PathValue("name"))
	}
	return lb.RulesOf(l), nil
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
