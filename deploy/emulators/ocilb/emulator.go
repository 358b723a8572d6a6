// Package ocilb emulates the API of OCI Load Balancers (application load balancers, version 20170115) and their data plane.
//
// Clients are the real SDK with a throwaway key: requests are signed, mutations are work requests, and the ETag is that of the
// whole load balancer. The documentation leaves behavior open, and sources disagree; Modes has a value for each reading, and the
// default is the unpleasant one. Faults are injected by operation.
//
//	/20170115/    the API, with all operations of the SDK
//	/_emu/        modes, faults, the audit log, foreign edits: see Emulator.admin
//
// The data plane listens where the listeners of a load balancer say, evaluates routing policies, path routes and rule sets, keeps
// sessions, terminates and starts TLS, checks the health of backends and forwards requests over connections that it reuses: see
// package dataplane, also for what has no effect.
//
// All load balancers have the same address, unless Edit gives them another one. OCIDs of other services are not looked up: a listener whose
// certificate is one of Oracle's certificates service has a throwaway certificate, and nobody trusts the certificate authorities of that
// service. Private keys that PKCS #8 encrypts are refused.
package ocilb

import (
	"context"
	"crypto/rsa"
	"net/http"
	"slices"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/dataplane"
	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
	"fairlead.dev/deploy/emulators/ocilb/internal/signature"
	"fairlead.dev/deploy/emulators/ocilb/internal/state"
)

// maxSkew is the limit of the service for the difference of clocks.
const maxSkew = 5 * time.Minute

// Options configure an Emulator.
type Options struct {
	Modes Modes
	// Keys are the public keys of callers, by key id: "<tenancy>/<user>/<fingerprint>", or "ST$<token>" of a principal. If it is nil,
	// signatures are not verified.
	Keys map[string]*rsa.PublicKey
	Seed uint64
	// Plane configures the data plane.
	Plane dataplane.Options
}

// DefaultOptions returns options with the unpleasant modes and without keys.
func DefaultOptions() Options {
	return Options{Modes: state.DefaultModes(), Seed: 1, Plane: dataplane.DefaultOptions()}
}

// The API and the modes.
type (
	// Modes are the behaviors that documents leave open.
	Modes = state.Modes
	// Concurrency is how a load balancer treats a mutation while another one is in progress.
	Concurrency = state.Concurrency
	// EtagChange is when a mutation changes the ETag.
	EtagChange = state.EtagChange
	// Duration is a duration that JSON has as text.
	Duration = state.Duration
	// LoadBalancer is a load balancer with everything in it.
	LoadBalancer = lbapi.LoadBalancer
	// BackendSet is a backend set.
	BackendSet = lbapi.BackendSet
	// Backend is a backend.
	Backend = lbapi.Backend
	// HealthChecker is the health check of a backend set.
	HealthChecker = lbapi.HealthChecker
	// SSLConfiguration is the TLS of a backend set or of a listener.
	SSLConfiguration = lbapi.SSLConfiguration
	// LBCookieSessionPersistenceConfiguration is the session persistence of a backend set by a cookie of the load balancer.
	LBCookieSessionPersistenceConfiguration = lbapi.LBCookieSessionPersistenceConfiguration
	// Listener is a listener.
	Listener = lbapi.Listener
	// ConnectionConfiguration is the connection configuration of a listener.
	ConnectionConfiguration = lbapi.ConnectionConfiguration
	// RoutingPolicy is a routing policy.
	RoutingPolicy = lbapi.RoutingPolicy
	// RoutingRule is a rule of a routing policy.
	RoutingRule = lbapi.RoutingRule
	// Action is the action of a rule.
	Action = lbapi.Action
	// Hostname is a name that listeners can have.
	Hostname = lbapi.Hostname
	// PathRouteSet is a path route set.
	PathRouteSet = lbapi.PathRouteSet
	// PathRoute is a rule of a path route set.
	PathRoute = lbapi.PathRoute
	// PathMatchType is how a path route compares paths.
	PathMatchType = lbapi.PathMatchType
	// RuleSet is a rule set.
	RuleSet = lbapi.RuleSet
	// Rule is a rule of a rule set.
	Rule = lbapi.Rule
	// CertificateDetails are a certificate with its private key.
	CertificateDetails = lbapi.CertificateDetails
	// SessionPersistenceConfiguration is the session persistence of a backend set by a cookie of the application.
	SessionPersistenceConfiguration = lbapi.SessionPersistenceConfiguration
	// Error is an error of the service.
	Error = lbapi.Error
)

// Values of the modes.
const (
	Queue    = state.Queue
	Parallel = state.Parallel
	Busy     = state.Busy
	Conflict = state.Conflict

	AtCompletion = state.AtCompletion
	AtAcceptance = state.AtAcceptance
	AtBoth       = state.AtBoth
)

// Emulator is an http.Handler that serves the API.
type Emulator struct {
	state    *state.State
	plane    *dataplane.Plane
	faults   *faults
	audit    *audit
	verifier *signature.Verifier // nil if signatures are not verified
	handler  http.Handler
	ending   context.Context
	end      context.CancelFunc
}

// New returns an Emulator. Close stops its data plane.
func New(o Options) *Emulator {
	e := &Emulator{faults: newFaults(o.Seed), audit: &audit{}, plane: dataplane.New(o.Plane)}
	e.ending, e.end = context.WithCancel(context.Background())
	e.state = state.New(o.Modes, o.Seed, e.plane.Update)
	if o.Keys != nil {
		e.verifier = &signature.Verifier{Key: func(id string) *rsa.PublicKey { return o.Keys[id] }, Skew: maxSkew, Now: time.Now}
	}
	e.handler = e.routes()
	return e
}

// ServeHTTP implements http.Handler.
func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.handler.ServeHTTP(w, r) }

// Close stops the data plane, and ends requests that hang.
func (e *Emulator) Close() {
	e.end()
	e.plane.Close()
}

// Create adds an active load balancer without listeners and backend sets, as Terraform would have made it.
func (e *Emulator) Create(id, compartment, name string) {
	e.state.Put(lbapi.New(id, compartment, name, time.Now().UTC().Format(time.RFC3339Nano)))
}

// Put adds a load balancer, or replaces it at once.
func (e *Emulator) Put(lb *LoadBalancer) { e.state.Put(lb) }

// Edit changes a load balancer at once, as another client would. apply may change backend sets and listeners in place. Retry tokens
// of what it changes become invalid.
func (e *Emulator) Edit(id string, apply func(lb *LoadBalancer) *Error) *Error {
	return e.state.Edit(id, func(lb *LoadBalancer, _ lbapi.Limits) *Error {
		for name, s := range lb.BackendSets {
			own := *s
			own.Backends = slices.Clone(s.Backends)
			lb.BackendSets[name] = &own
		}
		for name, l := range lb.Listeners {
			own := *l
			lb.Listeners[name] = &own
		}
		return apply(lb)
	})
}

// Current returns the version of a load balancer that is in effect, or nil. The result must not be changed.
func (e *Emulator) Current(id string) *LoadBalancer { return e.state.Current(id) }

// SetModes replaces the modes.
func (e *Emulator) SetModes(m Modes) { e.state.SetModes(m) }

// Modes returns the modes.
func (e *Emulator) Modes() Modes { return e.state.Modes() }

// Idle reports whether no work request is in progress at load balancers; without names, at any.
func (e *Emulator) Idle(ids ...string) bool { return e.state.Idle(ids...) }
