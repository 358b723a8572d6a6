package proxy

import "context"

// Leave asks clients to use other connections for their next requests. All requests are still served.
func (s *Server) Leave() { s.connections.Leave() }

// Drain stops accepting connections and returns true when the last one has ended, or false when ctx ends before the last request. Then
// Close cuts the open ones.
func (s *Server) Drain(ctx context.Context) bool { return s.connections.Wait(ctx, s.listener, s.http) }
