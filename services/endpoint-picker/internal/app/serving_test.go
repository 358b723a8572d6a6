//go:build system

package app

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/servingcert"
	"fairlead.dev/services/endpoint-picker/internal/config"
)

// review answers as an API server does: a token is the name of its user, and prometheus may get /metrics.
func review(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	asked, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil) // clients prefer protobuf
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	switch asked := asked.(type) {
	case *authenticationv1.TokenReview:
		asked.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: asked.Spec.Token}}
	case *authorizationv1.SubjectAccessReview:
		wanted := authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}
		asked.Status.Allowed = asked.Spec.User == "prometheus" && *asked.Spec.NonResourceAttributes == wanted
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(asked)
}

// as asks for a page of the metrics address with a bearer token, if any.
func (r *rig) as(t *testing.T, token, path string) int {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+r.HTTP.MetricsAddress()+path, nil)
	require.NoError(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

func TestMetricsAreForThoseTheAPIServerLets(t *testing.T) {
	t.Parallel()
	r := newRig(t, config.Drain{}, func(cfg *config.Config) {
		cfg.Metrics.Auth, cfg.HTTP.EnablePprof = true, true
	})
	assert.Equal(t, http.StatusUnauthorized, r.as(t, "", "/metrics"))
	assert.Equal(t, http.StatusForbidden, r.as(t, "curious", "/metrics"))
	assert.Equal(t, http.StatusOK, r.as(t, "prometheus", "/metrics"))
	assert.Equal(t, http.StatusForbidden, r.as(t, "prometheus", "/debug/pprof/"), "debug pages are no metrics")
	assert.Equal(t, "ok\n", r.get(t, r.HTTP.HealthAddress(), "/healthz"), "probes have no token")
}

// certificateFolder returns a folder with the certificate of a test server, and a client that trusts it.
func certificateFolder(t *testing.T) (string, *http.Client) {
	t.Helper()
	lender := httptest.NewUnstartedServer(nil)
	lender.StartTLS()
	t.Cleanup(lender.Close)
	certificate := lender.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	require.NoError(t, err)
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		servingcert.CertificateFile: {Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}, servingcert.KeyFile: {Type: "PRIVATE KEY", Bytes: key},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	client := lender.Client()
	t.Cleanup(client.CloseIdleConnections)
	return dir, client
}

func TestServersShowTheCertificatesOfTheirFolders(t *testing.T) {
	t.Parallel()
	dir, client := certificateFolder(t)
	r := newRig(t, config.Drain{}, func(cfg *config.Config) {
		cfg.GRPC.Secure, cfg.GRPC.CertPath, cfg.Metrics.CertDir = true, dir, dir
		cfg.TLS.MinVersion = "VersionTLS13"
	})
	response, err := client.Get("https://" + r.HTTP.MetricsAddress() + "/metrics")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusOK, response.StatusCode)

	_, port, err := net.SplitHostPort(r.ExtProcListener.ListenAddress())
	require.NoError(t, err)
	trust := client.Transport.(*http.Transport).TLSClientConfig.RootCAs
	conn, err := tls.Dial("tcp", "127.0.0.1:"+port, &tls.Config{RootCAs: trust, NextProtos: []string{"h2"}})
	require.NoError(t, err)
	ends := conn.ConnectionState().PeerCertificates[0].NotAfter.Unix()
	require.NoError(t, conn.Close())
	_, err = tls.Dial("tcp", "127.0.0.1:"+port, &tls.Config{RootCAs: trust, MaxVersion: tls.VersionTLS12})
	require.ErrorContains(t, err, "protocol version not supported")

	page := scrape(t, client, r)
	for _, server := range []string{"ext_proc", "metrics"} {
		assert.Contains(t, page, fmt.Sprintf("fairlead_picker_certificate_expiry_timestamp_seconds{server=%q} %v\n", server, float64(ends)))
	}
}

// A renewed certificate is for those who connect from then on; streams that are open do not notice.
func TestRenewedCertificateEndsNoStream(t *testing.T) {
	t.Parallel()
	dir, _ := certificateFolder(t)
	type picker struct {
		*rig

		port   string
		stream extprocv3.ExternalProcessor_ProcessClient
	}
	start := func(reload bool) picker {
		r := newRig(t, config.Drain{Timeout: kubetest.Patience}, func(cfg *config.Config) {
			cfg.GRPC.Secure, cfg.GRPC.CertPath, cfg.TLS.Reload, cfg.TLS.ReloadEvery = true, dir, reload, time.Millisecond
		})
		_, port, err := net.SplitHostPort(r.ExtProcListener.ListenAddress())
		require.NoError(t, err)
		conn, err := grpc.NewClient("passthrough:127.0.0.1:"+port, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close()) })
		p := picker{rig: r, port: port, stream: r.open(t, extprocv3.NewExternalProcessorClient(conn))}
		respond(t, p.stream, false)
		return p
	}
	organization := func(p picker) string {
		fresh, err := tls.Dial("tcp", "127.0.0.1:"+p.port, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		require.NoError(t, err)
		defer func() { require.NoError(t, fresh.Close()) }()
		return fresh.ConnectionState().PeerCertificates[0].Subject.Organization[0]
	}
	reloading, other := start(true), start(false)

	renew(t, dir, "renewed")
	require.Eventually(t, func() bool { return organization(reloading) == "renewed" }, kubetest.Patience, tick)
	assert.Equal(t, "Acme Co", organization(other), "the certificates of test servers are of that organization")
	for _, p := range []picker{reloading, other} {
		respond(t, p.stream, true)
		require.NoError(t, p.stream.CloseSend())
	}
}

// selfSigned returns a certificate of clients and servers that is its own authority, and the file of the authority.
func selfSigned(t *testing.T, name string) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

func TestGatewaysNeedTheirCertificate(t *testing.T) {
	t.Parallel()
	gateway, authority := selfSigned(t, "gateway.test")
	stranger, _ := selfSigned(t, "gateway.test")
	// start returns a function that opens a stream with a certificate.
	start := func(name string) func(...tls.Certificate) error {
		r := newRig(t, config.Drain{}, func(cfg *config.Config) {
			cfg.GRPC.Secure, cfg.GRPC.ClientCAFile, cfg.GRPC.ClientNames = true, authority, []string{name}
		})
		_, port, err := net.SplitHostPort(r.ExtProcListener.ListenAddress())
		require.NoError(t, err)
		return func(with ...tls.Certificate) error {
			conn, err := grpc.NewClient("passthrough:127.0.0.1:"+port,
				grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, Certificates: with})))
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			stream, err := extprocv3.NewExternalProcessorClient(conn).Process(t.Context())
			if err == nil {
				require.NoError(t, stream.CloseSend())
				_, err = stream.Recv()
			}
			return err
		}
	}
	open := start("gateway.test")
	require.ErrorIs(t, open(gateway), io.EOF, "the end of an empty stream")
	assert.Equal(t, codes.Unavailable, status.Code(open()), "no certificate")
	assert.Equal(t, codes.Unavailable, status.Code(open(stranger)), "another authority")
	assert.Equal(t, codes.Unavailable, status.Code(start("other.test")(gateway)), "another name")
}

// The decision API has the certificate of ext_proc, and its clients need the same certificates as gateways.
func TestDecisionAPIOverTLS(t *testing.T) {
	t.Parallel()
	balancer, authority := selfSigned(t, "haproxy.test")
	stranger, _ := selfSigned(t, "haproxy.test")
	dir, client := certificateFolder(t)
	r := newRig(t, config.Drain{}, func(cfg *config.Config) {
		cfg.GRPC.Secure, cfg.GRPC.CertPath, cfg.GRPC.ClientCAFile = true, dir, authority
		cfg.Decision.Address, cfg.Decision.TLS = "127.0.0.1:0", true
	})
	trust := client.Transport.(*http.Transport).TLSClientConfig.RootCAs
	pick := func(with ...tls.Certificate) (int, error) {
		transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: trust, Certificates: with}}
		response, err := (&http.Client{Transport: transport}).Post("https://"+r.Decision.ListenAddress()+"/v1/pick", "application/json",
			strings.NewReader("{}"))
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	code, err := pick(balancer)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, code)
	_, err = pick()
	require.Error(t, err, "no certificate")
	_, err = pick(stranger)
	require.Error(t, err, "another authority")
	r.stop()
	require.NoError(t, <-r.stopped)
	left := r.logs.FilterMessage("Ended picks still without an outcome at the end of the drain").All()
	require.Len(t, left, 1)
	assert.EqualValues(t, 1, left[0].ContextMap()["picks"])
}

// renew writes another certificate, of an organization, for the key that is there.
func renew(t *testing.T, dir, organization string) {
	t.Helper()
	old, err := tls.LoadX509KeyPair(filepath.Join(dir, servingcert.CertificateFile), filepath.Join(dir, servingcert.KeyFile))
	require.NoError(t, err)
	key := old.PrivateKey.(crypto.Signer)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{Organization: []string{organization}}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, servingcert.CertificateFile), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
}

func scrape(t *testing.T, client *http.Client, r *rig) string {
	t.Helper()
	response, err := client.Get("https://" + r.HTTP.MetricsAddress() + "/metrics")
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	var page strings.Builder
	require.NoError(t, response.Write(&page))
	return page.String()
}

func TestFlagsWithoutEffectAreNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t, config.Drain{}, func(cfg *config.Config) {
		cfg.Unused = []config.UnusedFlag{{Name: "--ha-enable-leader-election", Why: "no leader"}}
	})
	r.stop()
	require.NoError(t, <-r.stopped)
	lines := r.logs.FilterMessage("Flag has no effect").All()
	require.Len(t, lines, 1)
	assert.Equal(t, map[string]any{"flag": "--ha-enable-leader-election", "reason": "no leader"}, lines[0].ContextMap())
}

func TestHealthOverAConnection(t *testing.T) {
	t.Parallel()
	r, endDelay := newSlowRig(t)
	client := healthv1.NewHealthClient(connect(t, r.HealthListener.ListenAddress()))
	watch := func(name string) func() healthv1.HealthCheckResponse_ServingStatus {
		stream, err := client.Watch(t.Context(), &healthv1.HealthCheckRequest{Service: name})
		require.NoError(t, err)
		return func() healthv1.HealthCheckResponse_ServingStatus {
			answer, err := stream.Recv()
			require.NoError(t, err)
			return answer.GetStatus()
		}
	}

	chart := watch("inference-extension") // the name that upstream's charts probe
	state := chart()
	if state == healthv1.HealthCheckResponse_NOT_SERVING { // the pool may not have been found yet
		state = chart()
	}
	assert.Equal(t, healthv1.HealthCheckResponse_SERVING, state)
	assert.Equal(t, healthv1.HealthCheckResponse_SERVING, watch("liveness")())
	assert.Equal(t, healthv1.HealthCheckResponse_SERVICE_UNKNOWN, watch("other")())
	_, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: "other"})
	assert.Equal(t, codes.NotFound, status.Code(err))

	r.stop()
	assert.Equal(t, healthv1.HealthCheckResponse_NOT_SERVING, chart())
	endDelay()
	require.NoError(t, <-r.stopped)
}
