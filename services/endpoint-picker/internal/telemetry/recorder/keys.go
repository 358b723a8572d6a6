package recorder

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
)

// kind keeps hashes of different things apart.
type kind uint64

const (
	kindPrefix  kind = iota // of a prompt
	kindUnknown             // a part of a prompt that the picker did not read: the same as no other
	kindModel
)

// keys makes hashes that mean nothing outside of one recording. The key is random and is never written, so nobody who reads the
// recording can test whether a prompt begins with a certain text.
type keys struct{ block cipher.Block }

func newKeys() *keys {
	var key [16]byte
	_, _ = rand.Read(key[:])          // it never fails
	block, _ := aes.NewCipher(key[:]) // a key of AES may have 16 bytes
	return &keys{block: block}
}

// hashValue returns the keyed hash of a value. A block cipher is a pseudorandom function of short inputs, and much faster than HMAC.
func (k *keys) hashValue(domain kind, value uint64) uint64 {
	var b [aes.BlockSize]byte
	binary.LittleEndian.PutUint64(b[:8], value)
	binary.LittleEndian.PutUint64(b[8:], uint64(domain))
	k.block.Encrypt(b[:], b[:])
	return binary.LittleEndian.Uint64(b[:]) & maxHash
}
