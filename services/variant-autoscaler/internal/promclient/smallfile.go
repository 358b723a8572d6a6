package promclient

import (
	"crypto/x509"
	"fmt"
	"os"
)

// maxFileSize is the size of a file in bytes: bundles of authorities have a few hundred KiB.
const maxFileSize = 1 << 20

// ReadSmallFile returns the content of a regular file of at most maxFileSize: credentials that administrators name in flags and ConfigMaps,
// who may name a device, or a file without an end. Its errors name the file.
func ReadSmallFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFileSize || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", name, maxFileSize)
	}
	return os.ReadFile(name)
}

// ReadAuthorities returns the certificates of a file that an option names: the authorities of some servers.
func ReadAuthorities(name, servers, option string) (*x509.CertPool, error) {
	text, err := ReadSmallFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the authorities of %s: %w: check %s", servers, err, option)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: %s contains no certificate in PEM", option, name)
	}
	return pool, nil
}
