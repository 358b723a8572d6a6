package scheduling

import "fairlead.dev/services/endpoint-picker/internal/rendezvous"

// scramble scrambles a number.
func scramble(x uint64) uint64 { return rendezvous.Mix(x) }

// DrawRandom returns the i-th random number of a stream. Draws of different streams are independent: each plugin has its own.
func (r *Request) DrawRandom(stream uint64, i int) uint64 {
	return scramble(r.Random + scramble(stream<<32+uint64(i)))
}

// Unit maps a random number to the interval [0, 1).
func Unit(x uint64) float64 { return float64(x>>11) / (1 << 53) }
