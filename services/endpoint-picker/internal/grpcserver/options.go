package grpcserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	// maxStreams is for gateways that put all their requests on one connection.
	maxStreams = 1 << 20
	// bodyRoom times the largest body, and messageRoom for headers and metadata, is what a message may have: a body
	// over the limit is to be answered 413, where gRPC itself would break the stream.
	bodyRoom    = 2
	messageRoom = 1 << 20

	// minPing is how often gateways may ping; Envoy's shortest interval that makes sense is a second.
	minPing = 500 * time.Millisecond
	// greetTimeout is what a new connection has for TLS and the first words of HTTP/2. One that says nothing holds up a drain.
	greetTimeout = 10 * time.Second
	// pingAfter and pingTimeout find gateways that went away without a word, so that their streams end.
	pingAfter   = 30 * time.Second
	pingTimeout = 20 * time.Second

	certificateLifetime = 10 * 365 * 24 * time.Hour
	certificateFile     = "tls.crt"
	keyFile             = "tls.key"
)

// Options says how gateways connect.
type Options struct {
	Secure         bool   // TLS
	CertPath       string // folder of tls.crt and tls.key; empty makes a certificate of our own
	MaxRequestBody int    // bytes of an HTTP body, which may come in one message
}

// ServerOptions returns what gRPC needs for gateways.
func (o Options) ServerOptions() ([]grpc.ServerOption, error) {
	creds, err := o.credentials()
	if err != nil {
		return nil, err
	}
	return []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.ConnectionTimeout(greetTimeout),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxRecvMsgSize(bodyRoom*o.MaxRequestBody + messageRoom),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
	}, nil
}

func (o Options) credentials() (credentials.TransportCredentials, error) {
	if !o.Secure {
		return insecure.NewCredentials(), nil
	}
	certificate, err := o.certificate()
	if err != nil {
		return nil, err
	}
	// Envoy AI Gateway offers nothing newer than TLS 1.2. ALPN (h2) is added by gRPC.
	return credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}), nil
}

func (o Options) certificate() (tls.Certificate, error) {
	if o.CertPath == "" {
		return selfSigned(time.Now())
	}
	c, err := tls.LoadX509KeyPair(filepath.Join(o.CertPath, certificateFile), filepath.Join(o.CertPath, keyFile))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("load certificate of --cert-path %s: %w", o.CertPath, err)
	}
	return c, nil
}

// selfSigned makes a certificate for gateways that encrypt and do not ask who they talk to.
func selfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("generate key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("generate serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"Fairlead"}, CommonName: "endpoint-picker"},
		NotBefore:             now.Add(-time.Hour), // for clocks that are behind
		NotAfter:              now.Add(certificateLifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("create certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
