// Package credentials creates the certificate and the token with which the controller finds the cache, and writes them to the folder of its
// service account.
//
// Both are new at each start. The private key never leaves the process. A program that started with the old files keeps working: if the
// folder already holds a certificate that is valid and whose key this process does not have, its clients must read the new one. So the key
// is kept in the data directory of the same pod, if there is one.
package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	tokenBytes = 32
	// clockSkew is long because a controller reads the authority once, and uses the certificate on the loopback interface only. A node may
	// start with a clock in the past: boards without a battery begin in 1970.
	clockSkew = 100 * 365 * 24 * time.Hour

	keyFile = "serving.pem" // certificate and key
)

// Credentials are what server and client need.
type Credentials struct {
	Certificate tls.Certificate
	CA          []byte // PEM
	Token       string
}

// Load returns the credentials in a private folder, and makes them if there are none. The folder is not for the controller.
func Load(dir string) (*Credentials, error) {
	if dir == "" {
		c, _, err := generateCredentials()
		return c, err
	}
	path := filepath.Join(dir, keyFile)
	raw, err := os.ReadFile(path)
	if err == nil {
		if c, err := parseCredentials(raw); err == nil {
			return c, nil
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	c, raw, err := generateCredentials()
	if err != nil {
		return nil, err
	}
	// A read-only or a full disk is no reason not to serve: the controller then reads new files after each restart.
	if os.MkdirAll(dir, 0o700) == nil {
		_ = replaceFile(path, raw, 0o600)
	}
	return c, nil
}

func generateCredentials() (*Credentials, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "edge-cache"}, NotBefore: time.Now().Add(-clockSkew),
		NotAfter: time.Now().Add(clockSkew), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true, IsCA: true,
		DNSNames: []string{"localhost", "kubernetes.default.svc"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("create certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	token := make([]byte, tokenBytes)
	_, _ = rand.Read(token) // it never fails: crypto/rand ends the program instead
	var raw []byte
	for _, block := range []*pem.Block{
		{Type: "CERTIFICATE", Bytes: der}, {Type: "PRIVATE KEY", Bytes: keyDER}, {Type: "TOKEN", Bytes: token},
	} {
		raw = append(raw, pem.EncodeToMemory(block)...)
	}
	c, err := parseCredentials(raw)
	return c, raw, err
}

func parseCredentials(raw []byte) (*Credentials, error) {
	var blocks [3]*pem.Block
	for i := range blocks {
		if blocks[i], raw = pem.Decode(raw); blocks[i] == nil {
			return nil, errors.New("credentials have no certificate, key or token")
		}
	}
	certificate, key, token := blocks[0], blocks[1], blocks[2]
	if len(token.Bytes) != tokenBytes {
		return nil, errors.New("the token of the credentials is malformed")
	}
	c := &Credentials{CA: pem.EncodeToMemory(certificate), Token: base64.RawURLEncoding.EncodeToString(token.Bytes)}
	var err error
	if c.Certificate, err = tls.X509KeyPair(c.CA, pem.EncodeToMemory(key)); err != nil {
		return nil, fmt.Errorf("parse credentials: %w", err)
	}
	return c, nil
}

// WriteFiles writes ca.crt, namespace and token to the folder that the controller mounts as its service account.
func (c *Credentials) WriteFiles(dir, namespace string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder of credentials: %w", err)
	}
	// The folder is in memory and in this pod only. The controller may run as any user.
	for _, f := range []struct{ name, content string }{{"ca.crt", string(c.CA)}, {"namespace", namespace}, {"token", c.Token}} {
		if err := replaceFile(filepath.Join(dir, f.name), []byte(f.content), 0o644); err != nil {
			return fmt.Errorf("write credentials: %w", err)
		}
	}
	return nil
}

// replaceFile replaces a file at once: a reader gets the old or the new content.
func replaceFile(path string, content []byte, mode os.FileMode) error {
	next := path + ".next"
	if err := os.WriteFile(next, content, mode); err != nil {
		return err
	}
	if err := os.Chmod(next, mode); err != nil { // the mode of WriteFile depends on the umask
		return err
	}
	return os.Rename(next, path)
}

// ReadNamespace returns the content of a file with the namespace of the pod.
func ReadNamespace(path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the namespace of the pod: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}
