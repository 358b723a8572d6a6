package ocilb

import (
	"encoding/json"
	"net/http"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// admin serves /_emu/, without signatures:
//
//	GET, PUT /_emu/modes                        Modes
//	PUT      /_emu/faults                       a list of Fault
//	PUT      /_emu/throttle                     Throttle
//	GET, DELETE /_emu/calls?operation=...       the audit log
//	GET      /_emu/loadBalancers/{lb}           the version that is in effect
//	PUT      /_emu/loadBalancers/{lb}           adds a load balancer, or replaces it at once, as Terraform or the console would
//	PUT      /_emu/loadBalancers/{lb}/backendSets/{name}   replaces a backend set at once
//	GET      /_emu/idle                         204 if no work request is in progress, 409 otherwise
func (e *Emulator) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_emu/modes", func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, e.Modes()) })
	mux.HandleFunc("PUT /_emu/modes", e.changeModes)
	mux.HandleFunc("PUT /_emu/faults", func(w http.ResponseWriter, r *http.Request) {
		var list []Fault
		if read(w, r, &list) {
			e.SetFaults(list...)
		}
	})
	mux.HandleFunc("PUT /_emu/throttle", func(w http.ResponseWriter, r *http.Request) {
		var t Throttle
		if read(w, r, &t) {
			e.SetThrottle(t)
		}
	})
	mux.HandleFunc("GET /_emu/calls", func(w http.ResponseWriter, r *http.Request) {
		write(w, http.StatusOK, e.Calls(r.URL.Query()["operation"]...))
	})
	mux.HandleFunc("DELETE /_emu/calls", func(http.ResponseWriter, *http.Request) { e.ForgetCalls() })
	mux.HandleFunc("GET /_emu/loadBalancers/{lb}", func(w http.ResponseWriter, r *http.Request) {
		if lb := e.Current(r.PathValue("lb")); lb != nil {
			write(w, http.StatusOK, lb)
			return
		}
		write(w, http.StatusNotFound, lbapi.NotFound("load balancer", r.PathValue("lb")))
	})
	mux.HandleFunc("PUT /_emu/loadBalancers/{lb}", e.replaceBalancer)
	mux.HandleFunc("PUT /_emu/loadBalancers/{lb}/backendSets/{name}", e.replaceSet)
	mux.HandleFunc("GET /_emu/idle", func(w http.ResponseWriter, _ *http.Request) {
		if !e.Idle() {
			w.WriteHeader(http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func (e *Emulator) changeModes(w http.ResponseWriter, r *http.Request) {
	var text json.RawMessage
	if !read(w, r, &text) {
		return
	}
	m := e.Modes()
	if err := m.Parse(text); err != nil {
		write(w, http.StatusBadRequest, lbapi.Errorf(http.StatusBadRequest, lbapi.CodeInvalidParameter, "%s", err))
		return
	}
	e.SetModes(m)
}

// balancerDetails are a load balancer in a request. Its objects have the names of their keys, and the forms of requests.
type balancerDetails struct {
	CompartmentID   string                              `json:"compartmentId"`
	DisplayName     string                              `json:"displayName"`
	BackendSets     map[string]*lbapi.BackendSetDetails `json:"backendSets"`
	RoutingPolicies map[string]*lbapi.RoutingPolicy     `json:"routingPolicies"`
	Listeners       map[string]*lbapi.Listener          `json:"listeners"`
}

// replaceBalancer adds a load balancer, or replaces it at once.
func (e *Emulator) replaceBalancer(w http.ResponseWriter, r *http.Request) {
	d := &balancerDetails{}
	if !read(w, r, d) {
		return
	}
	lb, err := d.build(r.PathValue("lb"), e.Modes().Limits)
	if err != nil {
		write(w, err.Status, err)
		return
	}
	e.Put(lb)
}

// build returns the load balancer, or refuses an object that the API would refuse.
func (d *balancerDetails) build(id string, limits lbapi.Limits) (*lbapi.LoadBalancer, *lbapi.Error) {
	lb := lbapi.New(id, d.CompartmentID, d.DisplayName, time.Now().UTC().Format(time.RFC3339Nano))
	for name, set := range d.BackendSets {
		if err := lb.PutBackendSet(name, set, true, limits); err != nil {
			return nil, err
		}
	}
	for name, policy := range d.RoutingPolicies {
		policy.Name = name
		if err := lb.PutRoutingPolicy(policy, true); err != nil {
			return nil, err
		}
	}
	for name, listener := range d.Listeners {
		listener.Name = name
		if err := lb.PutListener(listener, true, limits); err != nil {
			return nil, err
		}
	}
	return lb, nil
}

// replaceSet replaces a backend set at once.
func (e *Emulator) replaceSet(w http.ResponseWriter, r *http.Request) {
	d := &lbapi.BackendSetDetails{}
	if !read(w, r, d) {
		return
	}
	name := r.PathValue("name")
	err := e.state.Edit(r.PathValue("lb"), kindSets+"/"+name, func(lb *lbapi.LoadBalancer, limits lbapi.Limits) *lbapi.Error {
		return lb.PutBackendSet(name, d, lb.BackendSets[name] == nil, limits)
	})
	if err != nil {
		write(w, err.Status, err)
	}
}

// read decodes the body of a request, or answers with an error.
func read(w http.ResponseWriter, r *http.Request, to any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(to); err != nil {
		write(w, http.StatusBadRequest, lbapi.Errorf(http.StatusBadRequest, lbapi.CodeCannotParseRequest, "decode body: %s", err))
		return false
	}
	return true
}
