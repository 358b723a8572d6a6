package scheduling

// mix scrambles a number: the last step of splitmix64.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// Draw returns the i-th random number of a stream. Draws of different streams are independent: each plugin has its own.
func (r *Request) Draw(stream uint64, i int) uint64 {
	return mix(r.Random + mix(stream<<32+uint64(i)))
}

// Unit maps a random number to the interval [0, 1).
func Unit(x uint64) float64 { return float64(x>>11) / (1 << 53) }
