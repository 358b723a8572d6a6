package endpoint

import "github.com/cespare/xxhash/v2"

// hashServer returns the hash of a server. The port distinguishes the servers of one pod. The address is not part of it, because it
// changes when a pod of the same name is recreated.
func hashServer(name string, port uint16) uint64 {
	return MixHash(xxhash.Sum64String(name) + uint64(port))
}

// RankServer returns the rank of a server for a key, from their hashes: the highest is first (rendezvous hashing). Pickers with the same
// servers agree on it without communication, and a server that joins or leaves moves only its own keys.
func RankServer(key, server uint64) uint64 { return MixHash(server ^ MixHash(key)) }

// MixHash scrambles a number: the last step of splitmix64.
func MixHash(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
