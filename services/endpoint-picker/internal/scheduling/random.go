package scheduling

// Streams of random numbers that are drawn from the one number of a request, so that one draw says nothing of another.
const (
	streamExplore uint64 = iota + 1
	streamPick
)

// mix turns a number into another that looks unrelated to it: the last step of splitmix64.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// draw returns the i-th random number of a stream.
func (r *Request) draw(stream uint64, i int) uint64 {
	return mix(r.Random + mix(stream<<32+uint64(i)))
}

// unit maps a random number to 0 up to, but not, 1.
func unit(x uint64) float64 { return float64(x>>11) / (1 << 53) }
