package app

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/chatload"
)

// TestLoadSurvivesADrain tests that a draining server fails no accepted request, on which the whole-system tests rely.
func TestLoadSurvivesADrain(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := testConfig()
			cfg.DrainDelay = time.Second
			cfg.Engine.Law.Base = 2 * ms
			cfg.Engine.MaxNumSeqs = 16
			s := serve(t, cfg)

			stop := make(chan struct{})
			time.AfterFunc(200*ms, s.stop)
			time.AfterFunc(300*ms, func() { close(stop) }) // the picker has noticed the drain
			report, err := chatload.Run(t.Context(), chatload.Options{
				BaseURL: "http://server", Model: "m", Dial: s.listener.Dial, Concurrency: 24, Stop: stop, MaxTokens: 30, IgnoreEOS: true, KeepAlive: true, HTTP2: http2,
				Prompts: chatload.Prompts{Groups: 4, SharedTokens: 64, OwnTokens: 16},
			})
			require.NoError(t, err)
			require.NoError(t, s.wait())
			assert.Empty(t, report.Failures, "%v", report.Examples)
			assert.GreaterOrEqual(t, report.Total.Requests, 24)
			assert.Equal(t, report.Total.Requests*30, report.Total.Tokens)
			assert.Equal(t, report.Total.Requests, report.Server("pod-a").Requests)
		})
	}
}

func TestLoadFailsWithoutADrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.ShutdownTimeout = 0
		s := serve(t, cfg)
		time.AfterFunc(time.Second, s.stop)
		report, err := chatload.Run(t.Context(), chatload.Options{
			BaseURL: "http://server", Model: "m", Client: s.client, Concurrency: 4, Requests: 4, MaxTokens: 1000, IgnoreEOS: true,
		})
		require.NoError(t, err)
		require.NoError(t, s.wait())
		assert.Equal(t, map[chatload.Class]int{chatload.ClassReset: 4}, report.Failures)
	})
}

func TestSharedPrefixesComeFromTheCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, testConfig())
		load := func(groups int) *chatload.Report {
			report, err := chatload.Run(t.Context(), chatload.Options{
				BaseURL: "http://server", Model: "m", Client: s.client, Concurrency: 1, Requests: 20, MaxTokens: 10, IgnoreEOS: true,
				Prompts: chatload.Prompts{Groups: groups, SharedTokens: 800, OwnTokens: 16, Seed: uint64(groups)},
			})
			require.NoError(t, err)
			require.Zero(t, report.Failed())
			return report
		}
		few, many := load(2), load(1000)
		// The base time of a step is 10 ms. Prefill of the 800 shared tokens takes 80 ms more, unless they are cached.
		assert.Less(t, few.Total.TTFT.P50, 16*ms)
		assert.Greater(t, many.Total.TTFT.P50, 90*ms)
		assert.Greater(t, few.Total.CachedTokens, few.Total.PromptTokens*85/100)
		assert.Less(t, many.Total.CachedTokens, many.Total.PromptTokens*5/100)
	})
}
