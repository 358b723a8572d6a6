// Package pki creates the keys of a temporary cluster: a CA, certificates and kubeconfigs, all in one folder. Keys are ECDSA
// P-256. Certificates last a year and are valid for clients and servers.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const lifetime = 365 * 24 * time.Hour

// CA signs certificates into one folder.
type CA struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// Leaf is a certificate to issue, as Name.crt and Name.key.
type Leaf struct {
	Name       string
	CommonName string
	Groups     []string // organizations, which Kubernetes uses as groups
	Hosts      []string // addresses and DNS names
}

// User is a client of an API server, with a self-contained kubeconfig Name.kubeconfig.
type User struct {
	Leaf
	Server string // URL
}

// New creates a CA and writes ca.crt and ca.key to dir.
func New(dir string) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := template("localkube-ca")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make CA: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back CA: %w", err)
	}
	ca := &CA{dir: dir, cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	if err := os.WriteFile(ca.path("ca.crt"), ca.pem, 0o644); err != nil {
		return nil, err
	}
	return ca, ca.writeKey("ca.key", key)
}

func template(commonName string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: commonName},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lifetime)}
}

func (ca *CA) path(name string) string { return filepath.Join(ca.dir, name) }

// Issue creates a certificate and its key.
func (ca *CA) Issue(l Leaf) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	t := template(l.CommonName)
	t.Subject.Organization = l.Groups
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	for _, h := range l.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(ca.path(l.Name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return err
	}
	return ca.writeKey(l.Name+".key", key)
}

// Key creates a key without a certificate.
func (ca *CA) Key(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return ca.writeKey(name, key)
}

func (ca *CA) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(ca.path(name), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// Kubeconfig creates a client certificate and a kubeconfig with it.
func (ca *CA) Kubeconfig(u User) error {
	if err := ca.Issue(u.Leaf); err != nil {
		return err
	}
	crt, err := os.ReadFile(ca.path(u.Name + ".crt"))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(ca.path(u.Name + ".key"))
	if err != nil {
		return err
	}
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["local"] = &clientcmdapi.Cluster{Server: u.Server, CertificateAuthorityData: ca.pem}
	cfg.AuthInfos[u.CommonName] = &clientcmdapi.AuthInfo{ClientCertificateData: crt, ClientKeyData: key}
	cfg.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: u.CommonName}
	cfg.CurrentContext = "local"
	return clientcmd.WriteToFile(*cfg, ca.path(u.Name+".kubeconfig"))
}
