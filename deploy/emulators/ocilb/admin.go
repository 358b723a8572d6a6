package ocilb

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/body"
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
	mux.HandleFunc("PUT /_emu/faults", e.changeFaults)
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

func (e *Emulator) changeFaults(w http.ResponseWriter, r *http.Request) {
	var list []Fault
	if !read(w, r, &list) {
		return
	}
	for i := range list {
		if err := list[i].validate(); err != nil {
			write(w, err.Status, err)
			return
		}
	}
	e.SetFaults(list...)
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
	CompartmentID   string                          `json:"compartmentId"`
	DisplayName     string                          `json:"displayName"`
	FixedShape      string                          `json:"fixedShape"` // empty: the flexible one
	RoutingPolicies map[string]*lbapi.RoutingPolicy `json:"routingPolicies"`

	lbapi.Objects
}

// replaceBalancer adds a load balancer, or replaces it at once.
func (e *Emulator) replaceBalancer(w http.ResponseWriter, r *http.Request) {
	d := &balancerDetails{}
	if !read(w, r, d) {
		return
	}
	lb := lbapi.New(r.PathValue("lb"), d.CompartmentID, d.DisplayName, time.Now().UTC().Format(time.RFC3339Nano))
	err := lb.Add(&d.Objects, d.RoutingPolicies, e.Modes().Limits)
	if err == nil && d.FixedShape != "" {
		err = lb.SetFixedShape(d.FixedShape)
	}
	if err != nil {
		write(w, err.Status, err)
		return
	}
	e.Put(lb)
}

// replaceSet replaces a backend set at once.
func (e *Emulator) replaceSet(w http.ResponseWriter, r *http.Request) {
	d := &lbapi.BackendSetDetails{}
	if !read(w, r, d) {
		return
	}
	name := r.PathValue("name")
	err := e.state.Edit(r.PathValue("lb"), func(lb *lbapi.LoadBalancer, limits lbapi.Limits) *lbapi.Error {
		return lb.PutBackendSet(name, d, lb.BackendSets[name] == nil, limits)
	})
	if err != nil {
		write(w, err.Status, err)
	}
}

// read decodes the body of a request, or answers with an error.
func read(w http.ResponseWriter, r *http.Request, to any) bool {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = body.DecodeStrict(text, to)
	}
	if err != nil {
		write(w, http.StatusBadRequest, lbapi.Errorf(http.StatusBadRequest, lbapi.CodeCannotParseRequest, "decode body: %s", err))
		return false
	}
	return true
}
