package gate

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
		{name: "a pod", body: `{"spec":{"containers":[]}}`, want: `[{"op":"add","path":"/spec/readinessGates","value":[` + gate + `]}]`, status: 200},
		{name: "a pod with another gate", body: `{"kind":"Pod","spec":{"readinessGates":[{"conditionType":"a"}]}}`, want: `[{"op":"add","path":"/spec/readinessGates/-","value":` + gate + `}]`, status: 200},
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
	for name, body := range map[string]io.Reader{"known length": bytes.NewReader(make([]byte, maxReview+1)), "unknown length": io.MultiReader(strings.NewReader("{}"))} {
		recorder := httptest.NewRecorder()
		w.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, webhookPath, body))
		assert.Equal(t, http.StatusRequestEntityTooLarge, recorder.Code, name)
	}
}

// TestSlowRequestsOfTheWebhookAreBounded fills the budget with requests whose bodies do not come.
func TestSlowRequestsOfTheWebhookAreBounded(t *testing.T) {
	t.Parallel()
	w := newWebhook(t, "")
	var all sync.WaitGroup
	var bodies []*io.PipeWriter
	for range reviewBudget / maxReview {
		reader, writer := io.Pipe()
		r := httptest.NewRequest(http.MethodPost, webhookPath, reader)
		r.ContentLength = maxReview
		bodies = append(bodies, writer)
		all.Go(func() { w.ServeHTTP(httptest.NewRecorder(), r) })
	}
	for _, body := range bodies { // each request reads its body
		_, err := body.Write([]byte(" "))
		require.NoError(t, err)
	}
	review := func(ctx context.Context) int {
		recorder := httptest.NewRecorder()
		w.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, webhookPath, strings.NewReader(`{"request":{}}`)).WithContext(ctx))
		return recorder.Code
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Equal(t, http.StatusServiceUnavailable, review(impatient))
	for _, body := range bodies {
		require.NoError(t, body.Close())
	}
	all.Wait()
	assert.Equal(t, http.StatusOK, review(t.Context()))
}

// newWebhook returns a webhook with an address of its own, whose reviews are not counted.
func newWebhook(t *testing.T, certificates string) *Webhook {
	t.Helper()
	m := newMockMeter(t)
	m.EXPECT().Review(mock.Anything).Maybe()
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
		assert.Zero(t, w.Expiry())
		pool := writeCertificate(t, dir)
		time.Sleep(retryInterval)
		assert.Equal(t, 1, logs.FilterMessage("Serving webhook").Len())
		assert.NotZero(t, w.Expiry())
		client := &http.Client{Transport: &http.Transport{DialContext: listener.Dial, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
		defer client.CloseIdleConnections()
		response, err := client.Post("https://127.0.0.1"+webhookPath, "application/json", strings.NewReader(`{"request":{"uid":"7","object":{"spec":{}}}}`))
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
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
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
