package promclient

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

const emptyVector = `{"status":"success","data":{"resultType":"vector","result":[]}}`

// serve starts a stub of Prometheus with TLS, and returns a configuration for it.
func serve(t *testing.T, handler http.HandlerFunc) Config {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	return Config{URL: server.URL, CAFile: writeCertificate(t, server.Certificate().Raw), Timeout: time.Minute}
}

func writeCertificate(t *testing.T, der []byte) string {
	t.Helper()
	return write(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func newClient(t *testing.T, config Config) *Client {
	t.Helper()
	c, err := New(config, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// answers returns a handler with one answer.
func answers(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}
}

func TestQuery(t *testing.T) {
	t.Parallel()
	config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "POST /prefix/api/v1/query", r.Method+" "+r.URL.String())
		assert.Equal(t, `up{job="a"} or on (pod) b`, r.FormValue("query"))
		assert.Equal(t, "60000ms", r.FormValue("timeout"))
		assert.Equal(t, "false", r.FormValue("partial_response"))
		assert.Empty(t, r.Header.Get("Authorization"))
		answers(http.StatusOK, `{"status":"success","warnings":["PromQL warning: x"],"infos":["y"],"data":{"resultType":"vector","result":[`+
			`{"metric":{"pod":"a"},"value":[1435781451.781,"0.25"]},{"metric":{},"value":[1435781451,"NaN"]},`+
			`{"metric":{"pod":"b"},"value":[1435781451.781,"+Inf"]},{"metric":{"pod":"c"},"value":[1435781451.781,"1e999"]}]}}`)(w, r)
	})
	config.URL += "/prefix/"
	series, err := newClient(t, config).Query(t.Context(), `up{job="a"} or on (pod) b`)
	require.NoError(t, err)
	require.Len(t, series, 4)
	assert.Equal(t, Series{Labels: map[string]string{"pod": "a"}, Value: 0.25}, series[0])
	assert.True(t, math.IsNaN(series[1].Value))
	assert.True(t, math.IsInf(series[2].Value, 1))
	assert.True(t, math.IsInf(series[3].Value, 1))
}

func TestAnswersThatAreErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		code int
		body string
		want string
	}{
		{"bad expression", http.StatusBadRequest, `{"status":"error","errorType":"bad_data","error":"unexpected\nend"}`,
			`Prometheus answered 400 Bad Request (bad_data): "unexpected\nend"`},
		{"timeout", http.StatusServiceUnavailable, `{"status":"error","errorType":"timeout","error":"too slow"}`, "503 Service Unavailable (timeout)"},
		{"unauthorized", http.StatusUnauthorized, "no", "401 Unauthorized: set PROMETHEUS_BEARER_TOKEN or PROMETHEUS_TOKEN_PATH"},
		{"forbidden", http.StatusForbidden, "", "403 Forbidden: give the user of the token the right to query"},
		{"another program", http.StatusNotFound, "<html>", "404 Not Found: check PROMETHEUS_BASE_URL"},
		{"a page", http.StatusOK, "<html>", "check that PROMETHEUS_BASE_URL leads to a Prometheus"},
		{"nothing", http.StatusOK, "", "read the answer of Prometheus: unexpected end of JSON input"},
		{"half of it", http.StatusOK, emptyVector[:40], "unexpected end of JSON input"},
		{"null", http.StatusOK, "null", "status , result"},
		{"error with 200", http.StatusOK, `{"status":"error","errorType":"execution","error":"x"}`, "(execution)"},
		{"a matrix", http.StatusOK, `{"status":"success","data":{"resultType":"matrix","result":[]}}`, "result matrix"},
		{"a histogram", http.StatusOK, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{}]}]}}`, "read a value"},
		{"not a number", http.StatusOK, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}}`, "read a value"},
		{"stores missing", http.StatusOK, `{"status":"success","warnings":["store a: unavailable"],"data":{"resultType":"vector","result":[]}}`,
			`incomplete: "store a: unavailable"`},
		{"a long error", http.StatusInternalServerError, `{"status":"error","error":"` + strings.Repeat("x", 5000) + `"}`, "xxx…"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			series, err := newClient(t, serve(t, answers(tt.code, tt.body))).Query(t.Context(), "up")
			require.ErrorContains(t, err, tt.want)
			assert.Empty(t, series)
			assert.Less(t, len(err.Error()), 600)
		})
	}
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	const element = `{"metric":{},"value":[1,"1"]}`
	var sent atomic.Int64
	config := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		piece := []byte(strings.Repeat(element+",", 1000))
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"vector","result":[`))
		for range 10_000 { // 300 MB
			n, err := w.Write(piece)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	_, err := newClient(t, config).Query(t.Context(), "up")
	require.ErrorContains(t, err, "more than 8388608 bytes: too many series match")
	assert.Less(t, sent.Load(), int64(100<<20), "the client stopped to read")

	few := serve(t, answers(http.StatusOK, `{"status":"success","data":{"resultType":"vector","result":[`+element+","+element+","+element+`]}}`))
	few.MaxSeries = 3
	_, err = newClient(t, few).Query(t.Context(), "up")
	require.NoError(t, err)
	few.MaxSeries = 2
	_, err = newClient(t, few).Query(t.Context(), "up")
	require.ErrorContains(t, err, "3 series, more than 2")

	few.MaxBytes = 10
	_, err = newClient(t, few).Query(t.Context(), "up")
	require.ErrorContains(t, err, "more than 10 bytes")
}

func TestHangingServer(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]string{"before the answer": "", "in the answer": `{"status":`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			done := make(chan struct{})
			config := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if begin != "" {
					_, _ = w.Write([]byte(begin))
					w.(http.Flusher).Flush()
				}
				select {
				case <-r.Context().Done():
				case <-done:
				}
			})
			t.Cleanup(func() { close(done) })
			config.Timeout = 100 * time.Millisecond
			_, err := newClient(t, config).Query(t.Context(), "up")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, "no answer in time, which is at most 100ms")
		})
	}
}

func TestTokenFileIsFollowed(t *testing.T) {
	t.Parallel()
	var want atomic.Value
	want.Store("Bearer one")
	var queries atomic.Int64
	config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		queries.Add(1)
		if r.Header.Get("Authorization") != want.Load() {
			answers(http.StatusUnauthorized, "")(w, r)
			return
		}
		answers(http.StatusOK, emptyVector)(w, r)
	})
	config.TokenFile = write(t, "token", "one\n")
	c := newClient(t, config)
	_, err := c.Query(t.Context(), "up")
	require.NoError(t, err)

	// A change that its time shows is read before the query.
	require.NoError(t, os.WriteFile(config.TokenFile, []byte("second\n"), 0o600))
	want.Store("Bearer second")
	queries.Store(0)
	_, err = c.Query(t.Context(), "up")
	require.NoError(t, err)
	assert.Equal(t, int64(1), queries.Load())

	// A change that nothing shows is read when the server refuses the token.
	info, err := os.Stat(config.TokenFile)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(config.TokenFile, []byte("tokens\n"), 0o600))
	require.NoError(t, os.Chtimes(config.TokenFile, info.ModTime(), info.ModTime()))
	want.Store("Bearer tokens")
	queries.Store(0)
	_, err = c.Query(t.Context(), "up")
	require.NoError(t, err)
	assert.Equal(t, int64(2), queries.Load())

	// A token that stays refused is sent once.
	want.Store("Bearer another")
	queries.Store(0)
	_, err = c.Query(t.Context(), "up")
	require.ErrorContains(t, err, "401 Unauthorized")
	assert.Equal(t, int64(1), queries.Load())
}

func TestUnreadableTokens(t *testing.T) {
	t.Parallel()
	config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "Bearer good", r.Header.Get("Authorization"))
		answers(http.StatusOK, emptyVector)(w, r)
	})
	config.TokenFile = write(t, "token", "two\nlines")
	core, logs := observer.New(zap.WarnLevel)
	c, err := New(config, zap.New(core))
	require.NoError(t, err, "the file may come later")
	_, err = c.Query(t.Context(), "up")
	require.ErrorContains(t, err, "no HTTP header can have: check PROMETHEUS_TOKEN_PATH")
	assert.NotContains(t, err.Error(), "lines")

	require.NoError(t, os.WriteFile(config.TokenFile, []byte("good"), 0o600))
	_, err = c.Query(t.Context(), "up")
	require.NoError(t, err)
	require.NoError(t, os.Remove(config.TokenFile))
	for range 3 {
		_, err = c.Query(t.Context(), "up")
		require.NoError(t, err, "the last good token stays")
	}
	assert.Equal(t, 1, logs.Len(), "it is reported once")

	require.NoError(t, os.WriteFile(config.TokenFile, []byte(strings.Repeat("x", 2<<20)), 0o600))
	_, err = c.Query(t.Context(), "up")
	require.NoError(t, err, "a huge file is not read")

	config.Token = " good "
	_, err = newClient(t, config).Query(t.Context(), "up")
	require.NoError(t, err, "the literal token wins")
}

// TestRefusedAndUnreadable: the file of a refused token is gone. That is reported once, not for each query.
func TestRefusedAndUnreadable(t *testing.T) {
	t.Parallel()
	config := serve(t, answers(http.StatusUnauthorized, ""))
	config.TokenFile = write(t, "token", "old")
	core, logs := observer.New(zap.WarnLevel)
	c, err := New(config, zap.New(core))
	require.NoError(t, err)
	_, err = c.Query(t.Context(), "up")
	require.ErrorContains(t, err, "401")
	require.NoError(t, os.Remove(config.TokenFile))
	for range 5 {
		_, err = c.Query(t.Context(), "up")
		require.ErrorContains(t, err, "401")
	}
	assert.Equal(t, 1, logs.Len())
}

func TestRedirectsAreErrors(t *testing.T) {
	t.Parallel()
	var stolen atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	t.Cleanup(other.Close)
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		config := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, code) })
		config.Token = "secret"
		_, err := newClient(t, config).Query(t.Context(), "up")
		require.ErrorContains(t, err, "redirects to \""+other.URL)
		assert.NotContains(t, err.Error(), "secret")
	}
	assert.Zero(t, stolen.Load())
}

func TestTLS(t *testing.T) {
	t.Parallel()
	authority, pair := newAuthority(t)
	server := httptest.NewUnstartedServer(answers(http.StatusOK, emptyVector))
	clients := x509.NewCertPool()
	clients.AddCert(authority)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair(t, "prometheus.example")}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	certificate, key := writePair(t, pair(t, "client"))
	good := Config{URL: server.URL, CAFile: writeCertificate(t, authority.Raw), ServerName: "prometheus.example", CertFile: certificate, KeyFile: key}
	query := func(change func(c *Config)) error {
		config := good
		change(&config)
		c, err := New(config, zap.NewNop())
		if err != nil {
			return err
		}
		_, err = c.Query(t.Context(), "up")
		return err
	}
	require.NoError(t, query(func(*Config) {}))
	require.NoError(t, query(func(c *Config) { c.CAFile, c.ServerName, c.InsecureSkipVerify = "", "", true }))
	require.ErrorContains(t, query(func(c *Config) { c.CAFile = "" }), "set PROMETHEUS_CA_CERT_PATH, and PROMETHEUS_SERVER_NAME")
	require.ErrorContains(t, query(func(c *Config) { c.ServerName = "" }), "set PROMETHEUS_CA_CERT_PATH, and PROMETHEUS_SERVER_NAME")
	require.ErrorContains(t, query(func(c *Config) { c.CertFile, c.KeyFile = "", "" }), "tls: ")
	require.ErrorContains(t, query(func(c *Config) { c.CAFile = key }), "contains no certificate in PEM")
	require.ErrorContains(t, query(func(c *Config) { c.CAFile = "/missing" }), "check PROMETHEUS_CA_CERT_PATH")
	require.ErrorContains(t, query(func(c *Config) { c.KeyFile = c.CAFile }), "the client certificate")

	old := httptest.NewUnstartedServer(answers(http.StatusOK, emptyVector))
	old.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	old.StartTLS()
	t.Cleanup(old.Close)
	require.ErrorContains(t, query(func(c *Config) { c.URL, c.InsecureSkipVerify = old.URL, true }), "protocol version")

	plain := httptest.NewServer(answers(http.StatusOK, emptyVector))
	t.Cleanup(plain.Close)
	require.ErrorContains(t, query(func(c *Config) { c.URL = strings.Replace(plain.URL, "http:", "https:", 1) }), "gave HTTP response to HTTPS client")
}

func TestCertificatesAreFollowed(t *testing.T) {
	t.Parallel()
	first, firstPair := newAuthority(t)
	second, secondPair := newAuthority(t)
	var current atomic.Pointer[tls.Certificate]
	use := func(pair tls.Certificate) { current.Store(&pair) }
	use(firstPair(t, "prometheus"))
	server := httptest.NewUnstartedServer(answers(http.StatusOK, emptyVector))
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*current.Load()}, SessionTicketsDisabled: true}, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)
	core, logs := observer.New(zap.WarnLevel)
	config := Config{URL: server.URL, CAFile: writeCertificate(t, first.Raw), ServerName: "prometheus"}
	c, err := New(config, zap.New(core))
	require.NoError(t, err)
	_, err = c.Query(t.Context(), "up")
	require.NoError(t, err)

	use(secondPair(t, "prometheus"))
	require.NoError(t, os.WriteFile(config.CAFile, []byte("half a fi"), 0o600))
	server.CloseClientConnections()
	for range 3 {
		_, err = c.Query(t.Context(), "up")
		require.ErrorContains(t, err, "PROMETHEUS_CA_CERT_PATH", "the last good authorities stay")
	}
	assert.Equal(t, 1, logs.Len(), "it is reported once")
	text, err := os.ReadFile(writeCertificate(t, second.Raw))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(config.CAFile, text, 0o600))
	_, err = c.Query(t.Context(), "up")
	require.NoError(t, err)
}

func TestValidate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		config Config
		want   string
	}{
		{"nothing", Config{}, "PROMETHEUS_BASE_URL is not set"},
		{"plain HTTP", Config{URL: "http://p:9090"}, "is not encrypted: use https, or allow plain HTTP explicitly"},
		{"no scheme", Config{URL: "prometheus:9090"}, "must begin with https://"},
		{"no host", Config{URL: "https://:9090"}, "has no host"},
		{"another scheme", Config{URL: "file:///etc/passwd"}, "must begin with https://"},
		{"a password", Config{URL: "https://u:hidden@p"}, "contains a user"},
		{"a query", Config{URL: "https://p/?x=y"}, "contains a query"},
		{"not a URL", Config{URL: "https://hidden:pass:word@[::1"}, "is not a URL"},
		{"half a pair", Config{URL: "https://p", CertFile: "c"}, "need each other"},
		{"a broken token", Config{URL: "https://p", Token: "hidden\r\nX: y"}, "PROMETHEUS_BEARER_TOKEN: the token contains characters"},
		{"a negative limit", Config{URL: "https://p", MaxSeries: -1}, "must not be negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := New(tt.config, zap.NewNop())
			require.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "hidden")
		})
	}
	err := (&Config{CertFile: "c", Token: "\n"}).Validate()
	assert.Len(t, strings.Split(err.Error(), "\n"), 3, "all mistakes at once")
}

func TestPlainHTTPIsLogged(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(answers(http.StatusOK, emptyVector))
	t.Cleanup(server.Close)
	core, logs := observer.New(zap.WarnLevel)
	c, err := New(Config{URL: server.URL, AllowHTTP: true, Token: "t"}, zap.New(core))
	require.NoError(t, err)
	_, err = c.Query(t.Context(), "up")
	require.NoError(t, err)
	require.Equal(t, 1, logs.Len())
	assert.Contains(t, logs.All()[0].Message, "not encrypted")
	assert.Equal(t, true, logs.All()[0].ContextMap()["sendsToken"])
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.1:1" // the system never chooses this port for another test
	_, err := newClient(t, Config{URL: "https://" + nobody, Token: "secret"}).Query(t.Context(), "up")
	require.ErrorContains(t, err, "query Prometheus: ")
	require.ErrorContains(t, err, "connection refused")
	assert.NotContains(t, err.Error(), "secret")
}

// newAuthority returns an authority, and a function for certificates of it.
func newAuthority(t *testing.T) (*x509.Certificate, func(t *testing.T, name string) tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: fmt.Sprintf("authority %p", key)}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	authority, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority, func(t *testing.T, name string) tls.Certificate {
		t.Helper()
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}, authority, own.Public(), key)
		require.NoError(t, err)
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: own}
	}
}

func writePair(t *testing.T, pair tls.Certificate) (certificate, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	return writeCertificate(t, pair.Certificate[0]), write(t, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
}
