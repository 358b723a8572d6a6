package readinessgate

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zapobserver "go.uber.org/zap/zaptest/observer"
	admissionv1 "k8s.io/api/admission/v1"

	"fairlead.dev/pkg/memnet"
)

func TestWebhook(t *testing.T) {
	t.Parallel()
	gate := `{"conditionType":"fairlead.dev/oci-lb-ready"}`
	tests := []struct {
		name, body, want string
		status           int
	}{
		{
			name: "a pod", body: `{"spec":{"containers":[]}}`, want: `[{"op":"add","path":"/spec/readinessGates","value":[` + gate + `]}]`,
			status: 200,
		},
		{
			name: "a pod with another gate", body: `{"kind":"Pod","spec":{"readinessGates":[{"conditionType":"a"}]}}`,
			want: `[{"op":"add","path":"/spec/readinessGates/-","value":` + gate + `}]`, status: 200,
		},
		{name: "a pod with the gate", body: `{"spec":{"readinessGates":[{"conditionType":"a"},` + gate + `]}}`, status: 200},
		{name: "another kind", body: `{"kind":"Service"}`, status: 200},
		{name: "no object", body: `null`, status: 200},
		{name: "no review", body: "", status: 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"7","object":` + tt.body + `}}`
			if tt.body == "" {
				text = "x"
			}
			recorder := httptest.NewRecorder()
			newWebhook(t, "").ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, webhookPath, strings.NewReader(text)))
			require.Equal(t, tt.status, recorder.Code)
			if tt.status != http.StatusOK {
				return
			}
			var review admissionv1.AdmissionReview
			require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), &review))
			assert.True(t, review.Response.Allowed)
			assert.EqualValues(t, "7", review.Response.UID)
			assert.Nil(t, review.Request)
			assert.Equal(t, tt.want, string(review.Response.Patch))
		})
	}
}

func TestWebhookRefusesHugeRequests(t *testing.T) {
	t.Parallel()
	w := newWebhook(t, "")
	huge := func() io.Reader { return bytes.NewReader(make([]byte, maxReview+1)) }
	for name, body := range map[string]io.Reader{"known length": huge(), "unknown length": io.MultiReader(huge())} {
		recorder := httptest.NewRecorder()
		w.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, webhookPath, body))
		assert.Equal(t, http.StatusRequestEntityTooLarge, recorder.Code, name)
	}
}

// TestDecodedReviewsStaySmall decodes a review that has many times its size as a Kubernetes object. It is not parallel: it measures what the
// process allocates.
func TestDecodedReviewsStaySmall(t *testing.T) {
	body := []byte(`{"request":{"uid":"7","object":{"spec":{"containers":[{}` + strings.Repeat(",{}", 1<<20) + `]}}}}`)
	w := newWebhook(t, "")
	recorder, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, webhookPath, bytes.NewReader(body))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w.ServeHTTP(recorder, request)
	runtime.ReadMemStats(&after)
	assert.Equal(t, http.StatusOK, recorder.Code)
	allocated := after.TotalAlloc - before.TotalAlloc
	t.Logf("%.1f times the body", float64(allocated)/float64(len(body)))
	assert.Less(t, allocated, uint64(10*len(body)))
}

// TestAttacksOnTheWebhook lets other pods hold up the webhook, from one address and from many. The reviews of the API server are answered
// meanwhile.
func TestAttacksOnTheWebhook(t *testing.T) {
	t.Parallel()
	const large = "POST " + webhookPath + " HTTP/1.1\r\nHost: x\r\nContent-Length: 4194304\r\n\r\n"
	tests := []struct {
		name         string
		number, open int  // connections: made, and kept at most
		plain        bool // no TLS
		send         string
		slow         bool          // at a byte a second
		begins       int           // of these, the bytes that are sent at once
		lasts        time.Duration // with an answer that the client does not read: there are no buffers
	}{
		{name: "bodies that do not come", number: 24, open: 24, send: large + "x", lasts: reviewTimeout},
		{
			name: "bodies that do not end", number: 8, open: maxBytes / (3 << 20), send: large + strings.Repeat(" ", 3<<20),
			lasts: reviewTimeout,
		},
		{name: "silent connections", number: 2 * maxWaiting, open: maxWaiting, plain: true, lasts: headerTimeout},
		{name: "half handshakes", number: 2 * maxWaiting, open: maxWaiting, plain: true, send: "\x16\x03\x01", lasts: headerTimeout},
		{name: "more requests than are served", number: maxReviews + 32, open: maxReviews, send: large + "x", lasts: reviewTimeout},
		{
			name: "handshakes at a byte a second", number: 24, open: 24, plain: true,
			send: "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("x", 100), slow: true, lasts: headerTimeout,
		},
		{
			name: "headers at a byte a second", number: 24, open: 24, send: "POST " + webhookPath + " HTTP/1.1\r\nHost: x\r\n\r\n",
			slow: true, begins: 1, lasts: headerTimeout + reviewTimeout,
		},
		{
			name: "bodies at a byte a second", number: 24, open: 24, send: large + strings.Repeat("x", 1000), slow: true,
			begins: len(large), lasts: reviewTimeout,
		},
		{
			name: "a preface of HTTP/2, and frames at a byte a second", number: 24, open: 24,
			send: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\x00", 1000), slow: true, begins: 24, lasts: reviewTimeout,
		},
		{
			name: "half headers", number: 24, open: 24, send: "POST " + webhookPath + " HTTP/1.1\r\nX: " + strings.Repeat("x", maxHeader),
			lasts: headerTimeout,
		},
	}
	for _, tt := range tests {
		for _, hosts := range []int{1, tt.number} {
			t.Run(fmt.Sprintf("%s from %d addresses", tt.name, hosts), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					s := serveWebhook(t, dir)
					var attack []net.Conn
					for n := range tt.number {
						raw := s.dial(netip.AddrFrom4([4]byte{10, 9, byte(n % hosts >> 8), byte(n % hosts)}))
						attack = append(attack, raw)
						go func() {
							var c io.Writer = raw
							if !tt.plain {
								c = tls.Client(raw, s.settings)
							}
							if !tt.slow {
								_, _ = io.WriteString(c, tt.send)
								return
							}
							_, err := io.WriteString(c, tt.send[:tt.begins])
							for i := tt.begins; i < len(tt.send) && err == nil; i++ {
								time.Sleep(time.Second)
								_, err = io.WriteString(c, tt.send[i:i+1])
							}
						}()
						synctest.Wait()
					}
					open := func() (n int) {
						for _, c := range attack {
							if c.SetReadDeadline(time.Time{}) == nil { // of a pipe with an open other end
								n++
							}
						}
						return n
					}
					begun := time.Now()
					for range 3 {
						assert.Contains(t, s.review(), `"allowed":true`)
					}
					assert.Less(t, time.Since(begun), headerTimeout)
					assert.LessOrEqual(t, open(), tt.open)
					time.Sleep(tt.lasts + 6*time.Second) // TLS waits for 5 s for clients that do not read its end
					assert.Zero(t, open())
				})
			})
		}
	}
}

// TestLongHeaders are read up to a limit.
func TestLongHeaders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := serveWebhook(t, dir)
		c := tls.Client(s.dial(netip.AddrFrom4([4]byte{10, 0, 0, 1})), s.settings)
		require.NoError(t, c.HandshakeContext(t.Context()))
		go func() {
			// net/http adds 4 KiB
			_, _ = io.WriteString(c, "POST "+webhookPath+" HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", maxHeader+8<<10)+"\r\n\r\n")
		}()
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, response.StatusCode)
	})
}

// served is a webhook that serves in memory.
type served struct {
	t        *testing.T
	listener *memnet.Listener
	settings *tls.Config
}

// serveWebhook serves until the end of the test, with a certificate in a directory.
func serveWebhook(t *testing.T, dir string) *served {
	t.Helper()
	s := &served{
		t: t, listener: memnet.Listen(),
		settings: &tls.Config{RootCAs: writeCertificate(t, dir), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12},
	}
	w := newWebhook(t, dir)
	w.listen = func(context.Context, string, string) (net.Listener, error) { return s.listener, nil }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	synctest.Wait()
	return s
}

// dial connects from an address.
func (s *served) dial(from netip.Addr) net.Conn {
	s.t.Helper()
	c, err := s.listener.From(netip.AddrPortFrom(from, 1000))(s.t.Context(), "", "")
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// review sends the review of an API server, and returns the answer.
func (s *served) review() string {
	s.t.Helper()
	raw := s.dial(netip.AddrFrom4([4]byte{10, 0, 0, 1}))
	defer raw.Close()
	client := &http.Client{Transport: &http.Transport{
		DialTLSContext:    func(context.Context, string, string) (net.Conn, error) { return tls.Client(raw, s.settings), nil },
		DisableKeepAlives: true,
	}}
	response, err := client.Post("https://127.0.0.1"+webhookPath, "application/json",
		strings.NewReader(`{"request":{"uid":"7","object":{"spec":{}}}}`))
	require.NoError(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return string(text)
}

// newWebhook returns a webhook with an address of its own, whose reviews are not counted.
func newWebhook(t *testing.T, certificates string) *Webhook {
	t.Helper()
	m := newMockMeter(t)
	m.EXPECT().CountReview(mock.Anything).Maybe()
	return NewWebhook("127.0.0.1:0", certificates, m, zap.NewNop())
}

// TestWebhookServes starts without a certificate, and serves once there is one.
func TestWebhookServes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		core, logs := zapobserver.New(zap.InfoLevel)
		listener := memnet.Listen()
		w := newWebhook(t, dir)
		w.log = zap.New(core)
		w.listen = func(context.Context, string, string) (net.Listener, error) { return listener, nil }
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.Run(ctx)
		}()
		time.Sleep(10*retryInterval + time.Second)
		assert.Equal(t, 11, logs.FilterMessageSnippet("Webhook does not work").Len(), "it tries again at each interval")
		assert.Zero(t, w.CertificateExpiry())
		pool := writeCertificate(t, dir)
		time.Sleep(retryInterval)
		assert.Equal(t, 1, logs.FilterMessage("Serving webhook").Len())
		assert.NotZero(t, w.CertificateExpiry())
		client := &http.Client{Transport: &http.Transport{
			DialContext: listener.Dial, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		}}
		defer client.CloseIdleConnections()
		response, err := client.Post("https://127.0.0.1"+webhookPath, "application/json",
			strings.NewReader(`{"request":{"uid":"7","object":{"spec":{}}}}`))
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Contains(t, string(body), `"allowed":true`)
		cancel()
		<-ended
		_, err = listener.Dial(t.Context(), "", "")
		require.Error(t, err, "the port is closed")
	})
}

// writeCertificate writes a certificate for 127.0.0.1, and returns its authority.
func writeCertificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t,
		os.WriteFile(filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600))
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(certificate))
	return pool
}

func FuzzPatchPod(f *testing.F) {
	f.Add([]byte(`{"spec":{"readinessGates":[{"conditionType":"a"}]}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if patch := patchPod(raw); patch != nil {
			assert.True(t, json.Valid(patch))
		}
	})
}
