package httpproxy

import "context"

// StartDraining asks clients to use other connections for their next requests. All requests are still served.
func (s *Server) StartDraining() { s.connections.StartDraining() }

// DrainConns stops accepting connections and returns true when the last one has ended, or false when ctx ends before the last request. Then
// Close cuts the open ones.
func (s *Server) DrainConns(ctx context.Context) bool {
	return s.connections.WaitForConns(ctx, s.listener, s.http)
}
