package ocilb

import (
	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
	"fairlead.dev/deploy/emulators/ocilb/internal/state"
)

// change returns the mutation that a request asks for, or refuses the request.
type change func(r *request) (state.Mutation, *lbapi.Error)

// mutation returns an operation that submits a change.
func (e *Emulator) mutation(name string, c change) named {
	return named{name: name, serve: func(r *request) (answer, *lbapi.Error) {
		token, err := retryToken(r)
		if err != nil {
			return answer{}, err
		}
		m, err := c(r)
		if err != nil {
			return answer{}, err
		}
		m.Type, m.Body, m.IfMatch, m.Token = name, r.body, r.Header.Get(headerIfMatch), token
		id, err := e.state.Submit(r.PathValue("lb"), m)
		return answer{workRequest: id}, err
	}}
}

// kind is a kind of sub-resources that requests create, replace and delete by name. D is its form in requests.
type kind[D any] struct {
	resource, one string // name in paths, and in those of operations
	name          func(d *D) *string
	put           func(lb *lbapi.LoadBalancer, d *D, create bool, limits lbapi.Limits) *lbapi.Error
	remove        func(lb *lbapi.LoadBalancer, name string) *lbapi.Error
}

// mutations adds the operations of a kind: to create, to replace and to delete.
func (k *kind[D]) mutations(e *Emulator, to map[string]named) {
	all := " " + onBalancerPath + "/" + k.resource
	to["POST"+all] = e.mutation("Create"+k.one, k.putChange)
	to["PUT"+all+"/{name}"] = e.mutation("Update"+k.one, k.putChange)
	to["DELETE"+all+"/{name}"] = e.mutation("Delete"+k.one, k.removeChange)
}

func (k *kind[D]) putChange(r *request) (state.Mutation, *lbapi.Error) {
	d := new(D)
	if err := decode(r, d); err != nil {
		return state.Mutation{}, err
	}
	create := r.PathValue("name") == ""
	if !create {
		*k.name(d) = r.PathValue("name")
	}
	return state.Mutation{
		Resource: lbapi.Resource(k.resource, *k.name(d)), Apply: func(lb *lbapi.LoadBalancer, limits lbapi.Limits) *lbapi.Error {
			return k.put(lb, d, create, limits)
		},
	}, nil
}

func (k *kind[D]) removeChange(r *request) (state.Mutation, *lbapi.Error) {
	name := r.PathValue("name")
	return state.Mutation{Resource: lbapi.Resource(k.resource, name), Apply: func(lb *lbapi.LoadBalancer, _ lbapi.Limits) *lbapi.Error {
		return k.remove(lb, name)
	}}, nil
}

// mutations returns the operations that change sub-resources, by pattern.
func (e *Emulator) mutations() map[string]named {
	all := map[string]named{}
	e.mutationsOfTraffic(all)
	e.mutationsOfOptions(all)
	const set, backend = " " + onBalancerPath + "/backendSets/{name}", " " + onBalancerPath + "/backendSets/{name}/backends/{backend}"
	all["PUT"+set+"/healthChecker"] = e.mutation("UpdateHealthChecker", onSet(func(lb *lbapi.LoadBalancer, set, _ string, d *lbapi.HealthCheckerDetails, _ lbapi.Limits) *lbapi.Error {
		return lb.UpdateHealthChecker(set, d)
	}))
	all["POST"+set+"/backends"] = e.mutation("CreateBackend", onSet(func(lb *lbapi.LoadBalancer, set, _ string, d *lbapi.BackendDetails, limits lbapi.Limits) *lbapi.Error {
		return lb.AddBackend(set, d, limits)
	}))
	all["PUT"+backend] = e.mutation("UpdateBackend", onSet(func(lb *lbapi.LoadBalancer, set, name string, d *lbapi.UpdateBackendDetails, limits lbapi.Limits) *lbapi.Error {
		return lb.UpdateBackend(set, name, d, limits)
	}))
	all["DELETE"+backend] = e.mutation("DeleteBackend", deleteBackend)
	return all
}

// mutationsOfTraffic adds the operations of what decides where requests go.
func (e *Emulator) mutationsOfTraffic(to map[string]named) {
	sets := kind[lbapi.BackendSetDetails]{
		resource: lbapi.KindBackendSets, one: "BackendSet", name: func(d *lbapi.BackendSetDetails) *string { return &d.Name },
		put: func(lb *lbapi.LoadBalancer, d *lbapi.BackendSetDetails, create bool, limits lbapi.Limits) *lbapi.Error {
			return lb.PutBackendSet(d.Name, d, create, limits)
		},
		remove: (*lbapi.LoadBalancer).DeleteBackendSet,
	}
	sets.mutations(e, to)
	listeners := kind[lbapi.Listener]{
		resource: lbapi.KindListeners, one: "Listener", name: func(d *lbapi.Listener) *string { return &d.Name },
		put: (*lbapi.LoadBalancer).PutListener, remove: (*lbapi.LoadBalancer).DeleteListener,
	}
	listeners.mutations(e, to)
	policies := kind[lbapi.RoutingPolicy]{
		resource: lbapi.KindRoutingPolicies, one: "RoutingPolicy", name: func(d *lbapi.RoutingPolicy) *string { return &d.Name },
		put: func(lb *lbapi.LoadBalancer, d *lbapi.RoutingPolicy, create bool, _ lbapi.Limits) *lbapi.Error {
			return lb.PutRoutingPolicy(d, create)
		},
		remove: (*lbapi.LoadBalancer).DeleteRoutingPolicy,
	}
	policies.mutations(e, to)
	paths := kind[lbapi.PathRouteSet]{
		resource: lbapi.KindPathRouteSets, one: "PathRouteSet", name: func(d *lbapi.PathRouteSet) *string { return &d.Name },
		put: (*lbapi.LoadBalancer).PutPathRouteSet, remove: (*lbapi.LoadBalancer).DeletePathRouteSet,
	}
	paths.mutations(e, to)
}

// mutationsOfOptions adds the operations of what listeners and backend sets refer to by name.
func (e *Emulator) mutationsOfOptions(to map[string]named) {
	hostnames := kind[lbapi.Hostname]{
		resource: lbapi.KindHostnames, one: "Hostname", name: func(d *lbapi.Hostname) *string { return &d.Name },
		put: func(lb *lbapi.LoadBalancer, d *lbapi.Hostname, create bool, _ lbapi.Limits) *lbapi.Error {
			return lb.PutHostname(d, create)
		},
		remove: (*lbapi.LoadBalancer).DeleteHostname,
	}
	hostnames.mutations(e, to)
	rules := kind[lbapi.RuleSet]{
		resource: lbapi.KindRuleSets, one: "RuleSet", name: func(d *lbapi.RuleSet) *string { return &d.Name },
		put: (*lbapi.LoadBalancer).PutRuleSet, remove: (*lbapi.LoadBalancer).DeleteRuleSet,
	}
	rules.mutations(e, to)
	suites := kind[lbapi.SSLCipherSuite]{
		resource: lbapi.KindSSLCipherSuites, one: "SSLCipherSuite", name: func(d *lbapi.SSLCipherSuite) *string { return &d.Name },
		put: func(lb *lbapi.LoadBalancer, d *lbapi.SSLCipherSuite, create bool, _ lbapi.Limits) *lbapi.Error {
			return lb.PutSSLCipherSuite(d, create)
		},
		remove: (*lbapi.LoadBalancer).DeleteSSLCipherSuite,
	}
	suites.mutations(e, to)
	certificates := kind[lbapi.CertificateDetails]{
		resource: lbapi.KindCertificates, one: "Certificate", name: func(d *lbapi.CertificateDetails) *string { return &d.CertificateName },
		put: func(lb *lbapi.LoadBalancer, d *lbapi.CertificateDetails, _ bool, _ lbapi.Limits) *lbapi.Error {
			return lb.PutCertificate(d)
		},
		remove: (*lbapi.LoadBalancer).DeleteCertificate,
	}
	certificates.mutations(e, to)
	delete(to, "PUT "+onBalancerPath+"/certificates/{name}") // they cannot be changed
}

// onSet returns a change of a part of a backend set: it implicitly changes the set.
func onSet[D any](apply func(lb *lbapi.LoadBalancer, set, name string, d *D, limits lbapi.Limits) *lbapi.Error) change {
	return func(r *request) (state.Mutation, *lbapi.Error) {
		d := new(D)
		if err := decode(r, d); err != nil {
			return state.Mutation{}, err
		}
		set, name := r.PathValue("name"), r.PathValue("backend")
		return state.Mutation{
			Resource: lbapi.Resource(lbapi.KindBackendSets, set), Apply: func(lb *lbapi.LoadBalancer, limits lbapi.Limits) *lbapi.Error {
				return apply(lb, set, name, d, limits)
			},
		}, nil
	}
}

func deleteBackend(r *request) (state.Mutation, *lbapi.Error) {
	set, name := r.PathValue("name"), r.PathValue("backend")
	return state.Mutation{
		Resource: lbapi.Resource(lbapi.KindBackendSets, set), Apply: func(lb *lbapi.LoadBalancer, _ lbapi.Limits) *lbapi.Error {
			return lb.DeleteBackend(set, name)
		},
	}, nil
}
