package servingcert

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Options configures the TLS settings of a server.
type Options struct {
	MinVersion   uint16   // of crypto/tls; zero is TLS 1.2
	CipherSuites []uint16 // up to TLS 1.2; empty: the defaults of crypto/tls. Those of TLS 1.3 are fixed
}

// ParseVersion returns the TLS version with a name of Kubernetes components, such as VersionTLS12.
func ParseVersion(name string) (uint16, error) {
	versions := map[string]uint16{
		"VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11, "VersionTLS12": tls.VersionTLS12,
		"VersionTLS13": tls.VersionTLS13,
	}
	v, known := versions[name]
	if !known {
		return 0, fmt.Errorf("%q is not one of %s", name, listNames(versions))
	}
	return v, nil
}

// ParseCipherSuites returns the cipher suites with names of Kubernetes components, such as
// TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256.
func ParseCipherSuites(names []string) ([]uint16, error) {
	suites := map[string]uint16{
		// Names from before RFC 7905.
		"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	}
	for _, suite := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		suites[suite.Name] = suite.ID
	}
	var ids []uint16
	for _, name := range names {
		id, known := suites[strings.TrimSpace(name)]
		if !known {
			return nil, fmt.Errorf("%q is not one of %s", name, listNames(suites))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func listNames(known map[string]uint16) string {
	return strings.Join(slices.Sorted(maps.Keys(known)), ", ")
}
