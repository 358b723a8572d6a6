package ocilb

import (
	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
	"fairlead.dev/deploy/emulators/ocilb/internal/state"
)

// change returns the sub-resource that a request changes and the change, or refuses the request.
type change func(r *request) (resource string, apply state.Change, err *lbapi.Error)

// mutation returns an operation that submits a change.
func (e *Emulator) mutation(name string, c change) named {
	return named{name: name, serve: func(r *request) (answer, *lbapi.Error) {
		resource, apply, err := c(r)
		if err != nil {
			return answer{}, err
		}
		id, err := e.state.Submit(r.PathValue("lb"), state.Mutation{
			Type: name, Resource: resource, Body: r.body, Apply: apply, IfMatch: r.Header.Get(headerIfMatch), Token: r.Header.Get(headerRetryToken),
		})
		return answer{workRequest: id}, err
	}}
}

// put returns a change whose body is a D. Its function gets the name of the object in the path, or nothing in a request that creates it.
func put[D any](kind string, name func(d *D) *string, apply func(lb *lbapi.LoadBalancer, d *D, create bool, limits lbapi.Limits) *lbapi.Error) change {
	return func(r *request) (string, state.Change, *lbapi.Error) {
		d := new(D)
		if err := decode(r, d); err != nil {
			return "", nil, err
		}
		create := r.PathValue("name") == ""
		if !create {
			*name(d) = r.PathValue("name")
		}
		return kind + "/" + *name(d), func(lb *lbapi.LoadBalancer, limits lbapi.Limits) *lbapi.Error { return apply(lb, d, create, limits) }, nil
	}
}

// remove returns a change without a body.
func remove(kind string, apply func(lb *lbapi.LoadBalancer, name string) *lbapi.Error) change {
	return func(r *request) (string, state.Change, *lbapi.Error) {
		name := r.PathValue("name")
		return kind + "/" + name, func(lb *lbapi.LoadBalancer, _ lbapi.Limits) *lbapi.Error { return apply(lb, name) }, nil
	}
}

// Kinds of sub-resources.
const (
	kindSets         = "backendSets"
	kindListeners    = "listeners"
	kindPolicies     = "routingPolicies"
	kindHostnames    = "hostnames"
	kindCertificates = "certificates"
)

// mutations returns the operations that change a load balancer, by pattern.
func (e *Emulator) mutations() map[string]named {
	const lb = " " + base + "/loadBalancers/{lb}"
	const set, backend = lb + "/backendSets/{name}", lb + "/backendSets/{name}/backends/{backend}"
	putSet := put(kindSets, func(d *lbapi.BackendSetDetails) *string { return &d.Name }, func(lb *lbapi.LoadBalancer, d *lbapi.BackendSetDetails, create bool, limits lbapi.Limits) *lbapi.Error {
		return lb.PutBackendSet(d.Name, d, create, limits)
	})
	putListener := put(kindListeners, func(d *lbapi.Listener) *string { return &d.Name }, func(lb *lbapi.LoadBalancer, d *lbapi.Listener, create bool, limits lbapi.Limits) *lbapi.Error {
		return lb.PutListener(d, create, limits)
	})
	putPolicy := put(kindPolicies, func(d *lbapi.RoutingPolicy) *string { return &d.Name }, func(lb *lbapi.LoadBalancer, d *lbapi.RoutingPolicy, create bool, _ lbapi.Limits) *lbapi.Error {
		return lb.PutRoutingPolicy(d, create)
	})
	putHostname := put(kindHostnames, func(d *lbapi.Hostname) *string { return &d.Name }, func(lb *lbapi.LoadBalancer, d *lbapi.Hostname, create bool, _ lbapi.Limits) *lbapi.Error {
		if (lb.Hostnames[d.Name] == nil) != create {
			if create {
				return lbapi.Exists("hostname", d.Name)
			}
			return lbapi.NotFound("hostname", d.Name)
		}
		lb.Hostnames[d.Name] = d
		return nil
	})
	putCertificate := put(kindCertificates, func(d *lbapi.Certificate) *string { return &d.CertificateName }, func(lb *lbapi.LoadBalancer, d *lbapi.Certificate, _ bool, _ lbapi.Limits) *lbapi.Error {
		if lb.Certificates[d.CertificateName] != nil {
			return lbapi.Exists("certificate", d.CertificateName)
		}
		lb.Certificates[d.CertificateName] = d
		return nil
	})
	return map[string]named{
		"POST" + lb + "/backendSets":   e.mutation("CreateBackendSet", putSet),
		"PUT" + set:                    e.mutation("UpdateBackendSet", putSet),
		"DELETE" + set:                 e.mutation("DeleteBackendSet", remove(kindSets, (*lbapi.LoadBalancer).DeleteBackendSet)),
		"PUT" + set + "/healthChecker": e.mutation("UpdateHealthChecker", updateHealthChecker),
		"POST" + set + "/backends": e.mutation("CreateBackend", onBackends(func(lb *lbapi.LoadBalancer, set, _ string, d *lbapi.BackendDetails, limits lbapi.Limits) *lbapi.Error {
			return lb.AddBackend(set, d, limits)
		})),
		"PUT" + backend: e.mutation("UpdateBackend", onBackends(func(lb *lbapi.LoadBalancer, set, name string, d *lbapi.UpdateBackendDetails, limits lbapi.Limits) *lbapi.Error {
			return lb.UpdateBackend(set, name, d, limits)
		})),
		"DELETE" + backend:                        e.mutation("DeleteBackend", deleteBackend),
		"POST" + lb + "/listeners":                e.mutation("CreateListener", putListener),
		"PUT" + lb + "/listeners/{name}":          e.mutation("UpdateListener", putListener),
		"DELETE" + lb + "/listeners/{name}":       e.mutation("DeleteListener", remove(kindListeners, deleteFrom("listener", func(lb *lbapi.LoadBalancer) map[string]*lbapi.Listener { return lb.Listeners }))),
		"POST" + lb + "/routingPolicies":          e.mutation("CreateRoutingPolicy", putPolicy),
		"PUT" + lb + "/routingPolicies/{name}":    e.mutation("UpdateRoutingPolicy", putPolicy),
		"DELETE" + lb + "/routingPolicies/{name}": e.mutation("DeleteRoutingPolicy", remove(kindPolicies, (*lbapi.LoadBalancer).DeleteRoutingPolicy)),
		"POST" + lb + "/hostnames":                e.mutation("CreateHostname", putHostname),
		"PUT" + lb + "/hostnames/{name}":          e.mutation("UpdateHostname", putHostname),
		"DELETE" + lb + "/hostnames/{name}":       e.mutation("DeleteHostname", remove(kindHostnames, deleteFrom("hostname", func(lb *lbapi.LoadBalancer) map[string]*lbapi.Hostname { return lb.Hostnames }))),
		"POST" + lb + "/certificates":             e.mutation("CreateCertificate", putCertificate),
		"DELETE" + lb + "/certificates/{name}":    e.mutation("DeleteCertificate", remove(kindCertificates, (*lbapi.LoadBalancer).DeleteCertificate)),
	}
}

// deleteFrom deletes an object that nothing refers to.
func deleteFrom[T any](kind string, from func(lb *lbapi.LoadBalancer) map[string]T) func(lb *lbapi.LoadBalancer, name string) *lbapi.Error {
	return func(lb *lbapi.LoadBalancer, name string) *lbapi.Error {
		if _, ok := from(lb)[name]; !ok {
			return lbapi.NotFound(kind, name)
		}
		delete(from(lb), name)
		return nil
	}
}

// onBackends returns a change of one backend. It implicitly changes the backend set.
func onBackends[D any](apply func(lb *lbapi.LoadBalancer, set, name string, d *D, limits lbapi.Limits) *lbapi.Error) change {
	return func(r *request) (string, state.Change, *lbapi.Error) {
		d := new(D)
		if err := decode(r, d); err != nil {
			return "", nil, err
		}
		set, name := r.PathValue("name"), r.PathValue("backend")
		return kindSets + "/" + set, func(lb *lbapi.LoadBalancer, limits lbapi.Limits) *lbapi.Error { return apply(lb, set, name, d, limits) }, nil
	}
}

func deleteBackend(r *request) (string, state.Change, *lbapi.Error) {
	set, name := r.PathValue("name"), r.PathValue("backend")
	return kindSets + "/" + set, func(lb *lbapi.LoadBalancer, _ lbapi.Limits) *lbapi.Error { return lb.DeleteBackend(set, name) }, nil
}

func updateHealthChecker(r *request) (string, state.Change, *lbapi.Error) {
	d := &lbapi.HealthCheckerDetails{}
	if err := decode(r, d); err != nil {
		return "", nil, err
	}
	checker, err := d.HealthChecker()
	if err != nil {
		return "", nil, err
	}
	set := r.PathValue("name")
	return kindSets + "/" + set, func(lb *lbapi.LoadBalancer, _ lbapi.Limits) *lbapi.Error {
		s := lb.BackendSets[set]
		if s == nil {
			return lbapi.NotFound("backend set", set)
		}
		c := *s
		c.HealthChecker = checker
		lb.BackendSets[set] = &c
		return nil
	}, nil
}
