// A HealthServer answers gRPC health checks, by Check and Watch, under the names that charts of endpoint pickers use.
//
//	name                                             serving
//	liveness                                         always
//	"", readiness, inference-extension, and the      while the picker is ready and not draining
//	ext_proc service
//
// Liveness never depends on the cluster: a missing pool must not restart the picker.

package grpcserver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// Names in health checks, besides the ext_proc service's.
const (
	Liveness  = "liveness"
	Readiness = "readiness"
	chartName = "inference-extension"
)

// refreshInterval is the maximum delay of a change for watchers and checks.
const refreshInterval = 100 * time.Millisecond

var errDraining = errors.New("the picker is draining")

// readiness returns the reason why requests cannot be placed, if any.
type readiness interface {
	CheckReady() error
}

// HealthServer answers health checks.
type HealthServer struct {
	readiness readiness
	server    *health.Server
	names     []string // names that follow readiness
	draining  atomic.Bool

	refreshing sync.Mutex // so that the last refresh has the newest state
}

// NewHealthServer returns a HealthServer. It serves after Register. The names of the services whose health is the picker's readiness are
// added to the fixed ones.
func NewHealthServer(r readiness, services ...string) *HealthServer {
	s := &HealthServer{readiness: r, server: health.NewServer(), names: append([]string{"", Readiness, chartName}, services...)}
	s.server.SetServingStatus(Liveness, healthv1.HealthCheckResponse_SERVING)
	s.refreshHealth()
	return s
}

// Register adds the service to a gRPC server.
func (s *HealthServer) Register(r grpc.ServiceRegistrar) { healthv1.RegisterHealthServer(r, s.server) }

// CheckReady returns the reason why the picker should not get requests, nil if it should.
func (s *HealthServer) CheckReady() error {
	if s.draining.Load() {
		return errDraining
	}
	return s.readiness.CheckReady()
}

// SetDraining makes the picker unready permanently.
func (s *HealthServer) SetDraining() {
	s.draining.Store(true)
	s.refreshHealth()
}

// Run refreshes the answers until ctx ends.
func (s *HealthServer) Run(ctx context.Context) {
	ticker := time.NewTicker(refreshInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.refreshHealth()
		}
	}
}

// refreshHealth updates the health of all names.
func (s *HealthServer) refreshHealth() {
	s.refreshing.Lock()
	defer s.refreshing.Unlock()
	state := healthv1.HealthCheckResponse_SERVING
	if s.CheckReady() != nil {
		state = healthv1.HealthCheckResponse_NOT_SERVING
	}
	for _, name := range s.names {
		s.server.SetServingStatus(name, state)
	}
}
