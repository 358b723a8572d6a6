package journal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"os"
)

// keySize is that of AES-256.
const keySize = 32

// Bounds of a key file: a rotation needs two keys.
const (
	maxKeys    = 16
	maxKeyFile = 4 << 10
)

// keyID tells keys apart without disclosing them.
type keyID [8]byte

// Keys are the encryption keys of a journal. The first one encrypts; all of them decrypt, so that keys can be rotated.
type Keys [][]byte

// ReadKeys reads a key file: one key a line, 32 bytes in base64. `head -c 32 /dev/urandom | base64` makes one.
func ReadKeys(path string) (Keys, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read encryption keys: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("read encryption keys: %w", err)
	}
	if len(content) > maxKeyFile {
		return nil, fmt.Errorf("read encryption keys: %s has more than %d bytes", path, maxKeyFile)
	}
	keys, err := parseKeys(content)
	if err != nil {
		return nil, fmt.Errorf("read encryption keys from %s: %w", path, err)
	}
	return keys, nil
}

// parseKeys never puts content into an error: it is secret.
func parseKeys(content []byte) (Keys, error) {
	var keys Keys
	for number, line := range bytes.Split(content, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		secret := make([]byte, base64.StdEncoding.DecodedLen(len(line)))
		n, err := base64.StdEncoding.Decode(secret, line)
		if err != nil || n != keySize {
			return nil, fmt.Errorf("line %d is not %d bytes in base64", number+1, keySize)
		}
		if len(keys) == maxKeys {
			return nil, fmt.Errorf("more than %d keys", maxKeys)
		}
		keys = append(keys, secret[:n])
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("no key: expected a line of %d bytes in base64", keySize)
	}
	return keys, nil
}

// currentID returns the ID of the key that encrypts.
func (k Keys) currentID() keyID { return deriveKeyID(k[0]) }

func deriveKeyID(secret []byte) keyID {
	var id keyID
	copy(id[:], deriveKey(secret, nil, "edge-cache journal key id", len(id)))
	return id
}

func deriveKey(secret, salt []byte, info string, size int) []byte {
	b, err := hkdf.Key(sha256.New, secret, salt, info, size)
	if err != nil {
		panic(err) // only for a size that no caller asks for
	}
	return b
}

// fileCipher returns the cipher of a file.
func (k Keys) fileCipher(h *header) (cipher.AEAD, error) {
	for _, secret := range k {
		if deriveKeyID(secret) != h.KeyID {
			continue
		}
		block, err := aes.NewCipher(deriveKey(secret, h.Salt[:], "edge-cache journal file", keySize))
		if err != nil {
			return nil, err
		}
		return cipher.NewGCM(block)
	}
	return nil, fmt.Errorf("%w: key %x", ErrKey, h.KeyID)
}
