package reload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"

	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
)

// certificate is a file that a configuration names.
type certificate string

func newCertificate(t *testing.T) certificate {
	t.Helper()
	c := certificate(filepath.Join(t.TempDir(), "ca.crt"))
	c.write(t, "first")
	return c
}

func (c certificate) write(t *testing.T, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(string(c), []byte(content), 0o600))
}

func (c certificate) config(scorer string) string {
	const text = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: %s}, {type: metrics-data-source, parameters: {scheme: https, caCertPath: %s}}]
dataLayer: {sources: [{pluginRef: metrics-data-source}]}
`
	return fmt.Sprintf(text, scorer, c)
}

func TestChangedFileTakesEffectWithoutAChangeOfTheText(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ca := newCertificate(t)
		r := play(t, ca.config("queue-scorer"))
		before := r.Current()
		r.wait(3)
		ca.write(t, "sec")
		r.wait(1)
		ca.write(t, "second")
		r.wait(1)
		assert.Len(t, r.published, 1, "it may be half written")
		r.expectReloaded()
		r.wait(5)
		assert.Len(t, r.published, 2)
		assert.Same(t, before, r.Current())
	})
}

func TestFileThatCannotBeUsedKeepsTheLastGoodOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ca := newCertificate(t)
		r := play(t, ca.config("queue-scorer"))
		r.unprepared = errors.New("read caCertPath: ca.crt has no certificate")
		message := r.expectRejected()
		ca.write(t, "broken")
		r.wait(5)
		assert.Len(t, r.published, 1)
		assert.Equal(t, "--config-file /c is invalid, the last valid one stays in force: read caCertPath: ca.crt has no certificate", *message)

		r.unprepared = nil
		r.expectReloaded()
		ca.write(t, "first") // undone
		r.wait(5)
		assert.Len(t, r.published, 2)
		r.unprepared = errors.New("read caCertPath: no such file")
		message = r.expectRejected()
		require.NoError(t, os.Remove(string(ca)))
		r.wait(5)
		assert.Contains(t, *message, "no such file")
	})
}

func TestFilesOfANewTextAreFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old, ca := newCertificate(t), newCertificate(t)
		r := play(t, old.config("queue-scorer"))
		r.expectReloaded()
		r.text = ca.config("load-aware-scorer")
		r.wait(5)
		assert.Equal(t, []string{"queue-scorer", "load-aware-scorer"}, r.published, "once, although the files are others")
		old.write(t, "second")
		r.wait(5)
		assert.Len(t, r.published, 2)
		r.expectReloaded()
		ca.write(t, "second")
		r.wait(2)
		assert.Len(t, r.published, 3)
	})
}

// TestFilesInForceAreFollowedBesideAnUnusableText has certificates that change while somebody's mistake is in the text.
func TestFilesInForceAreFollowedBesideAnUnusableText(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		text    string
		problem error
	}{
		{name: "invalid", text: config("queu-scorer")},
		{name: "missing", problem: fmt.Errorf("%w: no such file", ErrUnusable)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ca := newCertificate(t)
				r := play(t, ca.config("queue-scorer"))
				before := r.Current()
				r.expectRejected()
				r.text, r.readError = tt.text, tt.problem
				r.wait(5)
				assert.Len(t, r.published, 1)

				r.expectRejected()
				ca.write(t, "second")
				r.wait(5)
				assert.Len(t, r.published, 2)
				assert.Same(t, before, r.Current())
				assert.Equal(t, 1, r.logs.FilterMessage("Read files of the configuration again").Len())

				r.unprepared = errors.New("read caCertPath: ca.crt has no certificate")
				message := r.expectRejected()
				ca.write(t, "broken")
				r.wait(5)
				assert.Contains(t, *message, "ca.crt has no certificate")
				assert.Len(t, r.published, 2)
			})
		})
	}
}

func TestFilesOfFlagsNeedNoText(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := zaptest.New(zap.InfoLevel)
		ca, r := newCertificate(t), &rig{observer: newMockObserver(t), reporter: newMockReporter(t)}
		r.Reloader = New(Params{Files: []string{string(ca)}, Options: options, Log: zap.New(core), Observer: r.observer, Reporter: r.reporter})
		published := 0
		r.SetPreparer(func(*pluginconfig.Config) (func(), error) { return func() { published++ }, nil })
		r.expectLoaded()
		require.NoError(t, r.LoadFirst(t.Context(), nil))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, published)

		r.expectReloaded()
		ca.write(t, "second")
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 2, published)
		assert.Equal(t, "the default configuration", logs.All()[1].ContextMap()["source"])
	})
}
