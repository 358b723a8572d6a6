package ingress_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
)

// assertNginxRewrites is what paths and rewrite targets do that are not as in rewrite.yaml.
func assertNginxRewrites(t *testing.T, w *world) {
	rewrite := nginx(map[string]string{"use-regex": "true", "rewrite-target": "/$2"})
	w.create(t, ingress{name: "plain", class: nginxClass, path: "/p/q"})
	w.create(t, ingress{name: "regex-as-prefix", class: nginxClass, path: "/p/q(/|$)(.*)", annotations: rewrite}) // refused whole
	w.create(t, ingress{name: "target-alone", class: nginxClass, path: "/p/q", annotations: nginx(map[string]string{"rewrite-target": "/"})})
	w.create(t, ingress{name: "broken", class: nginxClass, path: "/p(", pathType: networkingv1.PathTypeImplementationSpecific, annotations: rewrite})
	w.settled(t, nginxClass)
	tests := []struct{ host, give, want string }{
		{host: "plain.test", give: "/p/q/x", want: "/p/q/x"},
		{host: "plain.test", give: "/p/qx", want: "404"},
		{host: "plain.test", give: "/P/q", want: "404"},
		{host: "regex-as-prefix.test", give: "/p/q/x", want: "404"},
		{host: "broken.test", give: "/p", want: "404"},
		// A target makes a regular expression of the path too, and takes the place of what matched alone.
		{host: "target-alone.test", give: "/p/q", want: "/"},
		{host: "target-alone.test", give: "/p/qx", want: "/x"},
		{host: "target-alone.test", give: "/p/q/x", want: "400"},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, w.get(t, tt.host, tt.give).String(), "%s%s", tt.host, tt.give)
	}
	got, err := w.loadBalancer(t.Context(), "regex-as-prefix")
	require.NoError(t, err)
	assert.Empty(t, got, "an Ingress that is refused has no address")
	got, err = w.loadBalancer(t.Context(), "broken")
	require.NoError(t, err)
	assert.Equal(t, []string{address}, got, "one that fails later has")
}

// assertNginxHost shows what an Ingress with a regular expression does to others of its host: their prefixes become regular
// expressions too, without an end and without case.
func assertNginxHost(t *testing.T, w *world) {
	const host = "common.test"
	w.create(t, ingress{name: "common-prefix", class: nginxClass, host: host, path: "/p/q", service: other})
	w.create(t, ingress{name: "common-dot", class: nginxClass, host: host, path: "/v1.0", service: other})
	w.create(t, ingress{name: "common-exact", class: nginxClass, host: host, path: "/exact", pathType: networkingv1.PathTypeExact, service: other})
	w.settled(t, nginxClass)
	tests := []struct{ give, wantBefore, wantAfter string }{
		{give: "/p/q", wantBefore: "/p/q", wantAfter: "/p/q"},
		{give: "/p/q/x", wantBefore: "/p/q/x", wantAfter: "/p/q/x"},
		{give: "/p/qx", wantBefore: "404", wantAfter: "/p/qx"},
		{give: "/P/Q", wantBefore: "404", wantAfter: "/P/Q"},
		{give: "/v1.0", wantBefore: "/v1.0", wantAfter: "/v1.0"},
		{give: "/v1x0", wantBefore: "404", wantAfter: "/v1x0"},
		{give: "/exact", wantBefore: "/exact", wantAfter: "/exact"},
		{give: "/exact/x", wantBefore: "404", wantAfter: "404"},
		{give: "/EXACT", wantBefore: "404", wantAfter: "404"},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.wantBefore, w.get(t, host, tt.give).String(), tt.give)
	}
	w.create(t, ingress{name: "common-regex", class: nginxClass, host: host, path: "/r/s(/|$)(.*)", pathType: networkingv1.PathTypeImplementationSpecific,
		annotations: nginx(map[string]string{"use-regex": "true", "rewrite-target": "/$2"})})
	w.await(t, host, "/r/s/x", "/x")
	for _, tt := range tests {
		assert.Equal(t, tt.wantAfter, w.get(t, host, tt.give).String(), tt.give)
	}
	assert.Equal(t, server, w.get(t, host, "/r/s/x").echo.Name)
	assert.Equal(t, other, w.get(t, host, "/p/q/x").echo.Name)
}

// assertNginxTimeouts shows that timeouts are between two reads and two writes, and whole seconds without a unit.
func assertNginxTimeouts(t *testing.T, w *world) {
	w.create(t, ingress{name: "read", class: nginxClass, annotations: nginx(map[string]string{"proxy-read-timeout": "1"})})
	w.create(t, ingress{name: "read-unit", class: nginxClass, annotations: nginx(map[string]string{"proxy-read-timeout": "1s"})})
	w.create(t, ingress{name: "send", class: nginxClass, annotations: nginx(map[string]string{"proxy-send-timeout": "1"})})
	w.create(t, ingress{name: "patient", class: nginxClass})
	w.settled(t, nginxClass)
	tests := []struct {
		name string
		give question
		want int
	}{
		{name: "a late answer", give: question{host: "read.test", target: "/?delay=2500ms", body: strings.NewReader("{}")}, want: http.StatusGatewayTimeout},
		{name: "a unit makes it no number", give: question{host: "read-unit.test", target: "/?delay=1500ms"}, want: http.StatusOK},
		{name: "a long stream with short pauses", give: question{host: "read.test", target: "/?events=5&interval=400ms"}, want: http.StatusOK},
		{name: "a body that is not taken", give: question{host: "send.test", target: "/?hold=2500ms", body: bytes.NewReader(large)}, want: http.StatusGatewayTimeout},
		{name: "a late answer is no matter of sending", give: question{host: "send.test", target: "/?delay=1500ms"}, want: http.StatusOK},
		{name: "a body that is not taken, without annotations", give: question{host: "patient.test", target: "/?hold=2500ms", body: bytes.NewReader(large)}, want: http.StatusOK},
	}
	questions := make([]question, len(tests))
	for i, tt := range tests {
		questions[i] = tt.give
	}
	for i, got := range w.askAll(t.Context(), questions) {
		require.NoError(t, got.err, tests[i].name)
		assert.Equal(t, tests[i].want, got.status, tests[i].name)
	}
	got, err := w.ask(t.Context(), question{host: "read.test", target: "/?events=2&pause=2500ms"})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, eventText(1), got.body, "the stream is broken off")
}

// assertNginxBodies shows that the limit of bodies has an effect only where requests are buffered, which they are not without
// being asked for.
func assertNginxBodies(t *testing.T, w *world) {
	w.create(t, ingress{name: "limit", class: nginxClass, annotations: nginx(map[string]string{"proxy-body-size": "8m"})})
	w.create(t, ingress{name: "limit-off", class: nginxClass, annotations: nginx(map[string]string{"proxy-body-size": "8m", "proxy-request-buffering": "off"})})
	w.create(t, ingress{name: "limit-on", class: nginxClass, annotations: nginx(map[string]string{"proxy-body-size": "8m", "proxy-request-buffering": "on"})})
	w.create(t, ingress{name: "no-limit-on", class: nginxClass, annotations: nginx(map[string]string{"proxy-body-size": "0", "proxy-request-buffering": "on"})})
	w.create(t, ingress{name: "default-on", class: nginxClass, annotations: nginx(map[string]string{"proxy-request-buffering": "on"})})
	w.settled(t, nginxClass)
	tests := []struct {
		host       string
		give       []byte
		want       int
		wantChunks int // of the same body without its size
	}{
		{host: "limit.test", give: large, want: http.StatusOK, wantChunks: http.StatusOK},
		{host: "limit-off.test", give: large, want: http.StatusOK, wantChunks: http.StatusOK},
		{host: "limit-on.test", give: large, want: http.StatusRequestEntityTooLarge, wantChunks: http.StatusRequestEntityTooLarge},
		{host: "limit-on.test", give: large[:7<<20], want: http.StatusOK, wantChunks: http.StatusOK},
		{host: "no-limit-on.test", give: large, want: http.StatusOK, wantChunks: http.StatusOK},
		{host: "default-on.test", give: large[:2<<20], want: http.StatusRequestEntityTooLarge, wantChunks: http.StatusRequestEntityTooLarge},
	}
	for _, tt := range tests {
		got, err := w.ask(t.Context(), question{host: tt.host, target: "/", body: bytes.NewReader(tt.give)})
		require.NoError(t, err, tt.host)
		assert.Equal(t, tt.want, got.status, tt.host)
		got, err = w.ask(t.Context(), question{host: tt.host, target: "/", body: unsized(tt.give)})
		require.NoError(t, err, tt.host)
		assert.Equal(t, tt.wantChunks, got.status, "%s, in chunks", tt.host)
	}
}

// assertNginxBuffering shows when the server gets the first of a body, and the client the first of an answer.
func assertNginxBuffering(t *testing.T, w *world) {
	w.create(t, ingress{name: "unbuffered", class: nginxClass})
	w.create(t, ingress{name: "buffered", class: nginxClass, annotations: nginx(map[string]string{"proxy-buffering": "on", "proxy-request-buffering": "on"})})
	w.create(t, ingress{name: "off", class: nginxClass, annotations: nginx(map[string]string{"proxy-buffering": "off", "proxy-request-buffering": "off"})})
	w.settled(t, nginxClass)
	const wait = 3 * time.Second // a busy machine delays either end by less than half of it
	tests := []struct {
		host     string
		buffered bool
	}{
		{host: "unbuffered.test"},
		{host: "off.test"},
		{host: "buffered.test", buffered: true},
	}
	for _, tt := range tests {
		t.Run(tt.host, func(t *testing.T) {
			t.Parallel()
			got, err := w.ask(t.Context(), question{host: tt.host, target: "/", body: &trickle{wait: wait, ctx: t.Context()}})
			require.NoError(t, err)
			require.EqualValues(t, 2, got.echo.Body.Bytes)
			assert.Equal(t, tt.buffered, got.echo.Body.Took < wait.Seconds()/2, "the body took %f s", got.echo.Body.Took)
			if !tt.buffered {
				w.awaitEvents(t, question{host: tt.host, target: "/?events=2&interval=1h"}, 1)
				return
			}
			begun := time.Now()
			at := w.events(t, question{host: tt.host, target: "/?events=2&interval=" + wait.String()})
			require.Len(t, at, 2)
			assert.GreaterOrEqual(t, at[0].Sub(begun), wait, "the first event does not come before the last is sent")
		})
	}
}

// assertNginxRedirects shows that only an Ingress with TLS redirects, unless it is told to.
func assertNginxRedirects(t *testing.T, w *world) {
	w.create(t, ingress{name: "tls", class: nginxClass, tls: true})
	w.create(t, ingress{name: "tls-stays", class: nginxClass, tls: true, annotations: nginx(map[string]string{"ssl-redirect": "false"})})
	w.create(t, ingress{name: "no-tls", class: nginxClass, annotations: nginx(map[string]string{"ssl-redirect": "true"})})
	w.create(t, ingress{name: "no-tls-forced", class: nginxClass, annotations: nginx(map[string]string{"force-ssl-redirect": "true"})})
	w.create(t, ingress{name: "own-tls", class: traefikClass, tls: true})
	w.settled(t, nginxClass)
	w.settled(t, traefikClass)
	tests := []struct{ host, want, wantLocation string }{
		{host: "tls.test", want: "308", wantLocation: "https://tls.test/x?a=1"},
		{host: "tls-stays.test", want: "/x?a=1"},
		{host: "no-tls.test", want: "/x?a=1"},
		{host: "no-tls-forced.test", want: "308", wantLocation: "https://no-tls-forced.test/x?a=1"},
		{host: "own-tls.test", want: "/x?a=1"},
	}
	for _, tt := range tests {
		got := w.get(t, tt.host, "/x?a=1")
		assert.Equal(t, tt.want, got.String(), tt.host)
		assert.Equal(t, tt.wantLocation, got.header.Get("Location"), tt.host)
	}
}
