// Package servingcert provides a server's certificate, and reloads it when its files change.
//
// A Store reads files (Load) or creates a certificate (SelfSigned). TLS returns the settings for a server. While Run runs,
// the files are followed (package follow). A set of files is used as a whole or not at all: after an invalid set the last
// valid one stays in use, and one warning is logged.
package servingcert

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/pkg/follow"
)

// The names of a Secret of type kubernetes.io/tls.
const (
	CertificateFile = "tls.crt"
	KeyFile         = "tls.key"
)

// readAttempts is the number of attempts to read files that change during the read.
const readAttempts = 3

// Params contains the paths of a Store's files.
type Params struct {
	Log *zap.Logger
	// Dir is the folder of tls.crt and tls.key. SelfSigned ignores it.
	Dir string
	// ClientCAFile contains the authorities, in PEM, for required client certificates. Empty: clients need none.
	ClientCAFile string
	// ClientNames are the names of which a client certificate needs one: a DNS name or a URI (SPIFFE ID) of the certificate,
	// or its common name if it has no other names. Empty: all certificates of the authorities are accepted.
	ClientNames []string
	// Interval is the time between two reads of the files. Zero: read once.
	Interval time.Duration
}

// Store holds a server's certificate and the authorities of its clients.
type Store struct {
	params   Params
	own      *tls.Certificate // self-signed; nil if the certificate comes from files
	current  atomic.Pointer[material]
	follower *follow.Follower[*files]
}

// material is one set of files, parsed.
type material struct {
	certificate tls.Certificate
	clientCAs   *x509.CertPool // nil if clients need no certificate
	digest      [sha256.Size]byte
}

// Load returns a Store of files, which must be valid.
func Load(p Params) (*Store, error) { return newStore(p, nil) }

func newStore(p Params, own *tls.Certificate) (*Store, error) {
	if len(p.ClientNames) > 0 && p.ClientCAFile == "" {
		return nil, errNoAuthorities
	}
	s := &Store{params: p, own: own}
	content, err := s.readFiles()
	if err != nil {
		return nil, err
	}
	m, err := s.parseFiles(content)
	if err != nil {
		return nil, fmt.Errorf("use %s: %w", s.describeFiles(), err)
	}
	s.current.Store(m)
	s.follower = follow.New(&followed{s}, p.Interval, content)
	return s, nil
}

// TLS returns the settings for a server. New connections use the current certificate.
func (s *Store) TLS(o Options) *tls.Config {
	config := &tls.Config{
		MinVersion:   cmp.Or(o.MinVersion, tls.VersionTLS12),
		CipherSuites: o.CipherSuites,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &s.current.Load().certificate, nil
		},
	}
	if s.params.ClientCAFile != "" {
		// crypto/tls would use the authorities from the start, and none when a session is resumed. So verify here.
		config.ClientAuth = tls.RequireAnyClientCert
		config.VerifyConnection = s.verifyClient
	}
	return config
}

// ErrNotSibling means that the other side of a connection does not have the certificate of the Store.
var ErrNotSibling = errors.New("the other side has another certificate: give all replicas the same one")

// Siblings returns the settings of both sides of connections between replicas of one program. Replicas with files have the same
// certificate and key, and each side proves it. Names and authorities do not matter. A self-signed certificate is of one process
// only: it encrypts, and proves nothing.
func (s *Store) Siblings(o Options) *tls.Config {
	config := s.TLS(o)
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &s.current.Load().certificate, nil
	}
	config.ClientAuth = tls.RequireAnyClientCert
	config.InsecureSkipVerify = true // VerifyConnection is stricter
	config.VerifyConnection = s.verifySibling
	return config
}

func (s *Store) verifySibling(c tls.ConnectionState) error {
	if s.own == nil && !bytes.Equal(c.PeerCertificates[0].Raw, s.current.Load().certificate.Leaf.Raw) {
		return ErrNotSibling
	}
	return nil
}

// Expiry returns the end of the certificate's validity.
func (s *Store) Expiry() time.Time { return s.current.Load().certificate.Leaf.NotAfter }

// Run reloads the files when they change, until ctx ends.
func (s *Store) Run(ctx context.Context) { s.follower.Run(ctx) }

// followed are the files of a Store, as a source to follow.
type followed struct{ *Store }

// Read reads the files.
func (f *followed) Read(context.Context) (*files, error) { return f.readFiles() }

// Equal compares two sets of files.
func (f *followed) Equal(a, b *files) bool { return a.contentDigest() == b.contentDigest() }

// Apply uses a set of files for new connections.
func (f *followed) Apply(content *files) error {
	if content.contentDigest() == f.current.Load().digest {
		return nil // it is in use again, after an invalid one
	}
	m, err := f.parseFiles(content)
	if err != nil {
		return err
	}
	f.current.Store(m)
	f.params.Log.Info("Reloaded certificate", zap.String("files", f.describeFiles()), zap.Time("notAfter", f.Expiry()))
	return nil
}

// Reject reports that the last valid certificate stays in use.
func (f *followed) Reject(err error) {
	f.params.Log.Warn("Could not use certificate files, kept the last valid certificate", zap.String("files", f.describeFiles()),
		zap.Time("notAfter", f.Expiry()), zap.Error(err))
}

func (s *Store) describeFiles() string {
	paths := []string{s.params.ClientCAFile}
	if s.own == nil {
		paths = []string{s.params.Dir, s.params.ClientCAFile}
	}
	return strings.Join(slices.DeleteFunc(paths, func(path string) bool { return path == "" }), ", ")
}

// files contains the unparsed files. Those that the store does not use are empty.
type files struct {
	certificate, key, clientCAs []byte
}

// readFiles reads a consistent set of files, even while they are replaced: the certificate is equal before and after reading the
// others.
func (s *Store) readFiles() (*files, error) {
	f := &files{}
	if s.own != nil {
		return f, f.readClientCAs(s.params.ClientCAFile)
	}
	certificate := filepath.Join(s.params.Dir, CertificateFile)
	var err error
	for range readAttempts {
		if f.certificate, err = os.ReadFile(certificate); err != nil {
			return nil, err
		}
		if f.key, err = os.ReadFile(filepath.Join(s.params.Dir, KeyFile)); err != nil {
			return nil, err
		}
		if err = f.readClientCAs(s.params.ClientCAFile); err != nil {
			return nil, err
		}
		if again, err := os.ReadFile(certificate); err != nil || bytes.Equal(again, f.certificate) {
			return f, err
		}
	}
	return f, nil
}

func (f *files) readClientCAs(path string) (err error) {
	if path != "" {
		f.clientCAs, err = os.ReadFile(path)
	}
	return err
}

func (f *files) contentDigest() [sha256.Size]byte {
	return sha256.Sum256(bytes.Join([][]byte{f.certificate, f.key, f.clientCAs}, []byte{0}))
}

func (s *Store) parseFiles(f *files) (*material, error) {
	m := &material{digest: f.contentDigest()}
	if s.own != nil {
		m.certificate = *s.own
	} else {
		var err error
		if m.certificate, err = tls.X509KeyPair(f.certificate, f.key); err != nil {
			return nil, err
		}
	}
	if s.params.ClientCAFile != "" {
		m.clientCAs = x509.NewCertPool()
		if !m.clientCAs.AppendCertsFromPEM(f.clientCAs) {
			return nil, errors.New("no certificate in the file of client authorities")
		}
	}
	return m, nil
}
