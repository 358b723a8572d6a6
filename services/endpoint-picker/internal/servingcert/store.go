// Package servingcert has the certificate that a server shows, and keeps it true to its files.
//
// A Store comes from files (Load) or is made on the spot (SelfSigned); TLS gives a server its settings. While Run runs,
// the files are read again and again: Kubernetes replaces those of a Secret by turning a symlink, of which not every file
// system sends word, and two small files cost nothing to read. A set of files is used as a whole or not at all: one that
// does not fit keeps the last good one in use, and is complained of once.
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
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// The names of a Secret of type kubernetes.io/tls.
const (
	CertificateFile = "tls.crt"
	KeyFile         = "tls.key"
)

// readAttempts is how often files are read that change while they are read.
const readAttempts = 3

var errNoClientCertificate = errors.New("the client has no certificate")

// Params says where a Store's files are.
type Params struct {
	Log *zap.Logger
	// Dir is the folder of tls.crt and tls.key.
	Dir string
	// ClientCAFile has the authorities in PEM of which clients must have a certificate. Empty: clients need none.
	ClientCAFile string
	// Interval is the time between two looks at the files; zero never looks again.
	Interval time.Duration
}

// Store holds what a server shows to its clients, and asks of them.
type Store struct {
	params  Params
	current atomic.Pointer[material]

	// What Run has seen of files that do not fit.
	rejected   [sha256.Size]byte
	complained bool
}

// material is one set of files, parsed.
type material struct {
	certificate tls.Certificate
	clientCAs   *x509.CertPool // nil when clients need no certificate
	digest      [sha256.Size]byte
}

// Load returns a Store of files, which must fit.
func Load(p Params) (*Store, error) {
	s := &Store{params: p}
	content, err := s.read()
	if err != nil {
		return nil, err
	}
	m, err := content.parse()
	if err != nil {
		return nil, fmt.Errorf("use %s: %w", s.describe(), err)
	}
	s.current.Store(m)
	return s, nil
}

// TLS returns the settings for a server. Clients that come later are shown the certificate of that moment.
func (s *Store) TLS(o Options) *tls.Config {
	config := &tls.Config{
		MinVersion:   cmp.Or(o.MinVersion, tls.VersionTLS12),
		CipherSuites: o.CipherSuites,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &s.current.Load().certificate, nil
		},
	}
	if s.params.ClientCAFile != "" {
		// Verified here and not by crypto/tls, which would ask the authorities of the start, and none when a session is resumed.
		config.ClientAuth = tls.RequireAnyClientCert
		config.VerifyConnection = s.verifyClient
	}
	return config
}

// Expiry returns until when the certificate is valid.
func (s *Store) Expiry() time.Time { return s.current.Load().certificate.Leaf.NotAfter }

// Run keeps the Store true to its files until ctx ends.
func (s *Store) Run(ctx context.Context) {
	if s.params.Interval == 0 {
		<-ctx.Done()
		return
	}
	ticker := time.NewTicker(s.params.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.reload()
		}
	}
}

// reload looks at the files once.
func (s *Store) reload() {
	content, err := s.read()
	if err != nil {
		s.reject(sha256.Sum256([]byte(err.Error())), err)
		return
	}
	if content.digest() == s.current.Load().digest {
		s.complained, s.rejected = false, [sha256.Size]byte{}
		return
	}
	m, err := content.parse()
	if err != nil {
		s.reject(content.digest(), err)
		return
	}
	s.current.Store(m)
	s.complained, s.rejected = false, [sha256.Size]byte{}
	s.params.Log.Info("Reloaded certificate", zap.String("files", s.describe()), zap.Time("notAfter", s.Expiry()))
}

// reject keeps what is in use. Files may be seen half written: only what is seen a second time is complained of, once.
func (s *Store) reject(digest [sha256.Size]byte, err error) {
	if digest != s.rejected {
		s.rejected, s.complained = digest, false
		return
	}
	if s.complained {
		return
	}
	s.complained = true
	s.params.Log.Warn("Could not use certificate files, kept the last valid certificate", zap.String("files", s.describe()),
		zap.Time("notAfter", s.Expiry()), zap.Error(err))
}

// verifyClient takes clients with a certificate of one of the authorities of the moment.
func (s *Store) verifyClient(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errNoClientCertificate
	}
	intermediates := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots:         s.current.Load().clientCAs,
		Intermediates: intermediates,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("verify client certificate: %w", err)
	}
	return nil
}

func (s *Store) describe() string {
	if s.params.ClientCAFile == "" {
		return s.params.Dir
	}
	return s.params.Dir + ", " + s.params.ClientCAFile
}

// files are what was read, unparsed.
type files struct {
	certificate, key, clientCAs []byte
	askClients                  bool
}

// read reads the files so that they belong together, also when they are replaced meanwhile: the certificate is the same
// before and after the others were read.
func (s *Store) read() (*files, error) {
	certificate := filepath.Join(s.params.Dir, CertificateFile)
	f := &files{askClients: s.params.ClientCAFile != ""}
	var err error
	for range readAttempts {
		if f.certificate, err = os.ReadFile(certificate); err != nil {
			return nil, err
		}
		if f.key, err = os.ReadFile(filepath.Join(s.params.Dir, KeyFile)); err != nil {
			return nil, err
		}
		if f.askClients {
			if f.clientCAs, err = os.ReadFile(s.params.ClientCAFile); err != nil {
				return nil, err
			}
		}
		if again, err := os.ReadFile(certificate); err != nil || bytes.Equal(again, f.certificate) {
			return f, err
		}
	}
	return f, nil
}

func (f *files) digest() [sha256.Size]byte {
	return sha256.Sum256(bytes.Join([][]byte{f.certificate, f.key, f.clientCAs}, []byte{0}))
}

func (f *files) parse() (*material, error) {
	certificate, err := tls.X509KeyPair(f.certificate, f.key)
	if err != nil {
		return nil, err
	}
	m := &material{certificate: certificate, digest: f.digest()}
	if f.askClients {
		m.clientCAs = x509.NewCertPool()
		if !m.clientCAs.AppendCertsFromPEM(f.clientCAs) {
			return nil, errors.New("no certificate in the file of client authorities")
		}
	}
	return m, nil
}
