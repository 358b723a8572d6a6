// Package ocilbtest connects OCI's SDK to an emulator of OCI Load Balancers, in memory: a synctest bubble can wait for both.
package ocilbtest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/oracle/oci-go-sdk/v65/loadbalancer"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/pkg/memnet"
)

// Identity of the caller.
const (
	Tenancy     = "ocid1.tenancy.oc1..test"
	User        = "ocid1.user.oc1..test"
	Fingerprint = "20:3b:97:13:55:1c:5b:0d:d3:37:d8:50:4e:c5:3a:34"
	Region      = "us-ashburn-1"
	KeyID       = Tenancy + "/" + User + "/" + Fingerprint

	Compartment = "ocid1.compartment.oc1..test"
)

// sdkTimeout is the SDK's default limit for a request.
const sdkTimeout = time.Minute

// keyBits is the least that crypto/rsa accepts: signatures are half of the time of tests with keys of 2048 bits.
const keyBits = 1024

// Key is the key of the caller.
var Key = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		panic(err)
	}
	return key
})

// Provider returns the caller's configuration.
func Provider() common.ConfigurationProvider {
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(Key())})
	return common.NewRawConfigurationProvider(Tenancy, User, Region, Fingerprint, string(text), nil)
}

// Service is an emulator with a client.
type Service struct {
	*ocilb.Emulator

	Network *memnet.Listener // of the API
	Client  loadbalancer.LoadBalancerClient
}

// Options returns options for a synctest bubble: no backend accepts connections, and listeners get none.
func Options() ocilb.Options {
	o := ocilb.DefaultOptions()
	o.Plane.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	o.Plane.Listen = func(string, int) (net.Listener, error) { return memnet.Listen(), nil }
	return o
}

// Start starts an emulator that knows the caller's key. It ends with the test.
func Start(t testing.TB, o ocilb.Options) *Service {
	t.Helper()
	o.Keys = map[string]*rsa.PublicKey{KeyID: &Key().PublicKey}
	s := &Service{Emulator: ocilb.New(o), Network: memnet.Listen()}
	server := &http.Server{Handler: s.Emulator} //nolint:gosec // clients are trusted
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(s.Network)
	}()
	s.Client = s.NewClient(t)
	t.Cleanup(func() {
		s.Close()
		_ = server.Close()
		s.Network.Break()
		<-served
	})
	return s
}

// NewClient returns another client, with connections of its own.
func (s *Service) NewClient(t testing.TB) loadbalancer.LoadBalancerClient {
	t.Helper()
	client, err := loadbalancer.NewLoadBalancerClientWithConfigurationProvider(Provider())
	require.NoError(t, err)
	transport := &http.Transport{DialContext: s.Network.Dial}
	t.Cleanup(transport.CloseIdleConnections)
	client.Host, client.HTTPClient, client.Configuration.CircuitBreaker = "http://oci.test", &http.Client{Transport: transport, Timeout: sdkTimeout}, nil
	return client
}
