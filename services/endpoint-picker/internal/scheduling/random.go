package scheduling

import "fairlead.dev/services/endpoint-picker/internal/endpoint"

// DrawRandom returns the i-th random number of a stream. Draws of different streams are independent: each plugin has its own.
func (r *Request) DrawRandom(stream uint64, i int) uint64 {
	return endpoint.MixHash(r.Random + endpoint.MixHash(stream<<32+uint64(i)))
}

// Unit maps a random number to the interval [0, 1).
func Unit(x uint64) float64 { return float64(x>>11) / (1 << 53) }
