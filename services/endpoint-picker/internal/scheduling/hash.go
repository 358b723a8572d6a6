package scheduling

import "github.com/cespare/xxhash/v2"

// Hash returns a hash of the endpoint. The port distinguishes the endpoints of one pod. The address is not included, because
// it changes when a pod of the same name is recreated.
func (s *Server) Hash() uint64 { return mix(xxhash.Sum64String(s.Name) + uint64(s.Address.Port())) }

// Rendezvous returns the rank of a server for a prompt, from their hashes: the highest is first. Pickers with the same
// servers agree on it.
func Rendezvous(prompt, server uint64) uint64 { return mix(server ^ mix(prompt)) }
