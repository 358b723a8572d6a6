package app

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/emulators/modelserver/internal/config"
)

// vllmConfig returns a configuration with the behavior of vLLM that makes requests fail, and the times of testConfig.
func vllmConfig() config.Config {
	cfg := testConfig()
	cfg.KeepAlive, cfg.HTTP2 = 5*time.Second, false
	cfg.DrainDelay, cfg.ShutdownTimeout = 0, 0
	cfg.Habits.ReadyPath = false
	return cfg
}

// pod describes the deletion of a model server's pod.
type pod struct {
	preStop         time.Duration
	shutdownTimeout time.Duration
	gracePeriod     time.Duration
	news            time.Duration // until the picker notices the deletion
}

// roll deletes a pod under load, and returns a report about the requests that clients sent until the picker noticed the deletion.
// Each request takes 11 s.
func roll(t *testing.T, p pod) *chatload.Report {
	t.Helper()
	cfg := vllmConfig()
	cfg.ShutdownTimeout = p.shutdownTimeout
	cfg.Engine.MaxNumSeqs = 32
	cfg.Engine.Law.PerSeq = 0
	s := serve(t, cfg)
	const deleted = 3 * time.Second
	stop := make(chan struct{})
	time.AfterFunc(deleted+p.news, func() { close(stop) })
	time.AfterFunc(deleted+p.preStop, s.stop)
	time.AfterFunc(deleted+p.gracePeriod, s.kill)
	report, err := chatload.Run(t.Context(), chatload.Options{
		BaseURL: "http://server", Model: "m", Client: s.client, Rate: 2, Stop: stop, MaxTokens: 1100, IgnoreEOS: true,
	})
	require.NoError(t, err)
	return report
}

// TestRollNeedsEachSetting tests the settings of docs/services/endpoint-picker-vllm.md, and the failures without each of them.
func TestRollNeedsEachSetting(t *testing.T) {
	t.Parallel()
	documented := pod{preStop: 5 * time.Second, shutdownTimeout: 60 * time.Second, gracePeriod: 75 * time.Second, news: time.Second}
	without := func(change func(p *pod)) pod {
		p := documented
		change(&p)
		return p
	}
	tests := []struct {
		name  string
		give  pod
		fails []chatload.Class
	}{
		{name: "as documented", give: documented},
		{"no preStop sleep: the port is closed while the picker still sends", without(func(p *pod) { p.preStop = 0 }),
			[]chatload.Class{chatload.ClassReset, chatload.ClassConnect}},
		{"no --shutdown-timeout: answers are aborted", without(func(p *pod) { p.shutdownTimeout = 0 }), []chatload.Class{chatload.ClassReset}},
		{"a --shutdown-timeout below the longest answer", without(func(p *pod) { p.shutdownTimeout = 3 * time.Second }),
			[]chatload.Class{chatload.ClassReset}},
		{"a grace period below the longest answer", without(func(p *pod) { p.gracePeriod = 10 * time.Second }),
			[]chatload.Class{chatload.ClassReset}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				report := roll(t, tt.give)
				require.Greater(t, report.Total.Requests, 3)
				var classes []chatload.Class
				for class := range report.Failures {
					classes = append(classes, class)
				}
				assert.Subset(t, tt.fails, classes, "%v", report.Examples)
				assert.Equal(t, len(tt.fails) > 0, report.Failed() > 0, "%v", report.Examples)
			})
		})
	}
}

// If a proxy keeps an idle connection longer than the server does, the next request of the proxy on this connection fails.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		idle  time.Duration // the proxy's idle timeout: it sends a request at its end
		fails bool
	}{
		{"an idle timeout of 3 s", 3 * time.Second, false},
		{"an idle timeout above the server's", 5001 * time.Millisecond, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, vllmConfig())
				connection, err := s.listener.Dial(t.Context(), "", "")
				require.NoError(t, err)
				defer func() { require.NoError(t, connection.Close()) }()
				answers := bufio.NewReader(connection)
				send := func() error {
					if _, err := fmt.Fprint(connection, "GET /health HTTP/1.1\r\nHost: server\r\n\r\n"); err != nil {
						return err
					}
					response, err := http.ReadResponse(answers, nil)
					if err != nil {
						return err
					}
					return response.Body.Close()
				}
				require.NoError(t, send())
				time.Sleep(tt.idle)
				err = send()
				assert.Equal(t, tt.fails, err != nil, "%v", err)
			})
		})
	}
}

// vLLM has no readiness probe, and its liveness probe succeeds until it stops listening.
func TestNoReadyPath(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := vllmConfig()
		cfg.ShutdownTimeout = time.Minute
		s := serve(t, cfg)
		assert.Equal(t, []int{404, 200}, []int{s.status(t, "GET", "/ready", ""), s.status(t, "GET", "/health", "")})
		long := s.stream(t, "1000")
		time.Sleep(time.Second)
		s.stop()
		synctest.Wait()
		assert.Equal(t, 0, s.status(t, "GET", "/health", ""), "the server stops listening immediately")
		got := <-long
		require.NoError(t, got.err)
		assert.True(t, got.done)
	})
}

// The page occupies the thread that sends tokens. The engine computes the first token in 10.9 ms, and the others in 11 ms each.
func TestMetricsPageDelaysTokens(t *testing.T) {
	t.Parallel()
	const page = 30 * ms
	tests := []struct {
		name     string
		coalesce bool
		want     []time.Duration
	}{
		{"one event for each token", false, []time.Duration{10*ms + 900*time.Microsecond, 45 * ms, 45 * ms, 45 * ms, 54*ms + 900*time.Microsecond}},
		{"one event for accumulated tokens", true, []time.Duration{10*ms + 900*time.Microsecond, 45 * ms, 54*ms + 900*time.Microsecond}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig()
				cfg.Habits.PageTime, cfg.Habits.CoalesceEvents = page, tt.coalesce
				s := serve(t, cfg)
				got := s.stream(t, "5")
				time.Sleep(15 * ms) // after the first token
				require.Equal(t, 200, s.status(t, "GET", "/metrics", ""))
				assert.Equal(t, 15*ms+page, s.now())
				assert.Equal(t, tt.want, (<-got).tokens)
			})
		})
	}
}

func TestStreamInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Habits.CoalesceEvents, cfg.Habits.StreamInterval = true, 4
		got := <-serve(t, cfg).stream(t, "7")
		require.NoError(t, got.err)
		var tokens []int
		for _, event := range got.texts {
			tokens = append(tokens, strings.Count(event, " "))
		}
		assert.Equal(t, []int{1 + 1, 4 + 1, 2 + 1}, tokens, "the number of tokens, and one space after data:")
	})
}

// TestRealisticProfile tests that the profile as a whole loses no token and counts no token twice.
func TestRealisticProfile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := config.Default()
		fs := newFlags(&cfg)
		require.NoError(t, fs.Parse([]string{"--profile=realistic", "--model=m", "--pod-name=pod-a", "--shutdown-timeout=60"}))
		require.NoError(t, cfg.Complete(fs))
		require.NoError(t, cfg.Validate())
		s := serve(t, cfg)
		scrape, stop := context.WithCancel(t.Context())
		var scraper sync.WaitGroup
		scraper.Go(func() {
			for scrape.Err() == nil {
				s.status(t, "GET", "/metrics", "")
				time.Sleep(90 * ms)
			}
		})
		report, err := chatload.Run(t.Context(), chatload.Options{
			BaseURL: "http://server", Model: "m", Client: s.client, Concurrency: 8, Requests: 40, MaxTokens: 100, IgnoreEOS: true,
			Prompts: chatload.Prompts{Groups: 4, SharedTokens: 512, Seed: 1},
		})
		stop()
		scraper.Wait()
		require.NoError(t, err)
		require.Zero(t, report.Failed(), "%v", report.Examples)
		assert.Equal(t, 4000, report.Total.Tokens)
		assert.Zero(t, report.Total.CachedTokens, "usage does not report cached tokens")
		perPrompt := float64(report.Total.PromptTokens) / 40
		assert.InDelta(t, (512+32)*4/4.3, perPrompt, 60, "tokens of English words, not four bytes each")
	})
}
