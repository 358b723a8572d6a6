package responder

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"fairlead.dev/pkg/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// meter counts answers by status.
type meter struct {
	mu       sync.Mutex
	answered map[int]int
}

func (m *meter) Answered(status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answered[status]++
}

func (m *meter) count(status int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.answered[status]
}

// start runs a Responder. stop ends it.
func start(t *testing.T, o Options) (m *meter, stop func()) {
	t.Helper()
	m = &meter{answered: map[int]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	r := New(o, m, zap.NewNop())
	r.retry = 10 * time.Millisecond
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	return m, func() {
		cancel()
		<-ended
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	o := Options{NotFound: kubetest.FreeAddress(t), NoBackends: kubetest.FreeAddress(t)}
	m, stop := start(t, o)
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}
	ask := func(method, url string) (*http.Response, string, error) {
		request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("body"))
		require.NoError(t, err)
		response, err := client.Do(request)
		if err != nil {
			return nil, "", err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return response, string(text), err
	}
	for address, status := range map[string]int{o.NotFound: http.StatusNotFound, o.NoBackends: http.StatusInternalServerError} {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			response, text, err := ask(http.MethodPost, "http://"+address+"/any/path?query")
			require.NoError(c, err)
			assert.Equal(c, status, response.StatusCode)
			assert.Contains(c, text, "route")
			assert.Equal(c, "nosniff", response.Header.Get("X-Content-Type-Options"))
		}, 10*time.Second, 10*time.Millisecond)
		assert.Positive(t, m.count(status))
	}
	client.CloseIdleConnections()
	stop()
	_, _, err := ask(http.MethodGet, "http://"+o.NotFound)
	require.Error(t, err, "the ports are closed")
}

func TestNoServerWithoutAddress(t *testing.T) {
	t.Parallel()
	_, stop := start(t, Options{})
	stop()
}

// A port that another program still has is tried again.
func TestAnAddressInUse(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	_, stop := start(t, Options{NotFound: address})
	defer stop()
	require.NoError(t, l.Close())
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, http.NoBody)
		require.NoError(c, err)
		response, err := client.Do(request)
		require.NoError(c, err)
		defer response.Body.Close()
		assert.Equal(c, http.StatusNotFound, response.StatusCode)
	}, 10*time.Second, 10*time.Millisecond)
}
