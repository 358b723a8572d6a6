package reload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	zaptest "go.uber.org/zap/zaptest/observer"

	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var options = pluginconfig.Options{StaleAfter: 2 * time.Second}

func config(scorer string) string {
	return fmt.Sprintf("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: %s}]\n", scorer)
}

// rig is a Reloader with a source that it reads every second.
type rig struct {
	*Reloader

	source     *MockSource
	observer   *mockObserver
	reporter   *mockReporter
	logs       *zaptest.ObservedLogs
	turn       sync.Mutex // the steps of a test hold it, except during wait
	text       string
	readError  error
	unprepared error    // why the parts cannot use a configuration
	published  []string // scorers of the configurations that the parts use
}

func newRig(t *testing.T) *rig {
	t.Helper()
	core, logs := zaptest.New(zapcore.DebugLevel)
	r := &rig{source: NewMockSource(t), observer: newMockObserver(t), reporter: newMockReporter(t), logs: logs}
	r.source.EXPECT().String().Return("--config-file /c").Maybe()
	r.source.EXPECT().Interval().Return(time.Second).Maybe()
	r.source.EXPECT().Read(mock.Anything).RunAndReturn(func(context.Context) ([]byte, error) {
		r.turn.Lock()
		defer r.turn.Unlock()
		return []byte(r.text), r.readError
	}).Maybe()
	r.Reloader = New(Params{Source: r.source, Options: options, Log: zap.New(core), Observer: r.observer, Reporter: r.reporter})
	r.SetPreparer(func(c *pluginconfig.Config) (func(), error) {
		return func() { r.published = append(r.published, c.Profile.Scorers[0].Name) }, r.unprepared
	})
	return r
}

// play runs a Reloader with a first text until the bubble of the test ends.
func play(t *testing.T, first string) *rig {
	t.Helper()
	r := newRig(t)
	r.text = first
	r.expectLoaded()
	require.NoError(t, r.LoadFirst(t.Context(), nil))
	ctx, cancel := context.WithCancel(context.Background())
	r.turn.Lock()
	go r.Run(ctx)
	t.Cleanup(func() {
		cancel()
		synctest.Wait()
		r.turn.Unlock()
	})
	time.Sleep(time.Millisecond) // after each read
	return r
}

func (r *rig) expectLoaded() { r.observer.EXPECT().ConfigLoaded(mock.Anything).Once() }

func (r *rig) expectReloaded() {
	r.expectLoaded()
	r.reporter.EXPECT().Event("Normal", ReasonReloaded, mock.Anything).Once()
}

// expectRejected expects the reports of one invalid text, and returns the message of its Event.
func (r *rig) expectRejected() *string {
	message := new(string)
	r.observer.EXPECT().ConfigFailed().Once()
	r.reporter.EXPECT().Event("Warning", ReasonInvalid, mock.Anything).Run(func(_, _, m string) { *message = m }).Once()
	return message
}

// wait lets the Reloader read some times. Only then does it work.
func (r *rig) wait(reads int) {
	r.turn.Unlock()
	time.Sleep(time.Duration(reads) * time.Second)
	synctest.Wait()
	r.turn.Lock()
}

func (r *rig) scorer() string { return r.Current().Profile.Scorers[0].Name }

func TestNewTextTakesEffectWhenItHasSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := play(t, config("queue-scorer"))
		assert.Equal(t, "queue-scorer", r.scorer())
		r.wait(3)
		r.text = config("load-aware-scorer")
		r.wait(1)
		assert.Equal(t, "queue-scorer", r.scorer(), "it may be half written")
		r.text = config("token-load-scorer")
		r.wait(1)
		assert.Equal(t, "queue-scorer", r.scorer())
		r.expectReloaded()
		r.wait(1)
		assert.Equal(t, "token-load-scorer", r.scorer())
		assert.Equal(t, []string{"queue-scorer", "token-load-scorer"}, r.published)
	})
}

func TestInvalidTextKeepsTheLastGoodOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := play(t, config("queue-scorer"))
		good := r.Current()
		message := r.expectRejected()
		r.text = config("queu-scorer")
		r.wait(5)
		assert.Equal(t, `--config-file /c is invalid, the last valid one stays in force: line 3, column 18: plugins[0].type: "queu-scorer" is not a type of plugin: did you mean "queue-scorer"?`, *message)
		message = r.expectRejected()
		r.readError = fmt.Errorf("%w: no such file", ErrUnusable)
		r.wait(5)
		assert.Equal(t, `--config-file /c is invalid, the last valid one stays in force: configuration of plugins: no such file`, *message)
		r.expectRejected()
		r.text, r.readError = strings.Repeat("ä: [}\n", 1000), nil
		r.wait(5)
		assert.Same(t, good, r.Current())
		assert.Equal(t, []string{"queue-scorer"}, r.published)
		assert.Len(t, r.logs.FilterMessage("Rejected configuration, kept the last valid one").All(), 3)

		r.text = config("queue-scorer") // undone
		r.expectReloaded()
		r.wait(2)
		assert.Equal(t, good.Hash, r.Current().Hash)
	})
}

// TestPartThatCannotUseATextKeepsAllAsItWas checks that a text takes effect everywhere or nowhere.
func TestPartThatCannotUseATextKeepsAllAsItWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := play(t, config("queue-scorer"))
		good := r.Current()
		r.unprepared = errors.New("read caCertPath: no such file")
		message := r.expectRejected()
		r.text = config("load-aware-scorer")
		r.wait(10)
		assert.Same(t, good, r.Current())
		assert.Equal(t, []string{"queue-scorer"}, r.published)
		assert.Equal(t, "--config-file /c is invalid, the last valid one stays in force: read caCertPath: no such file", *message)
		assert.Len(t, r.logs.FilterMessage("Rejected configuration, kept the last valid one").All(), 1)

		r.unprepared = nil // the file has come
		r.expectReloaded()
		r.wait(1)
		assert.Equal(t, "load-aware-scorer", r.scorer())
		assert.Equal(t, []string{"queue-scorer", "load-aware-scorer"}, r.published)
	})
}

func TestReloadKeepsSessionsAndDiscovery(t *testing.T) {
	t.Parallel()
	const sessions = "session-affinity-scorer, parameters: {strategy: session_id}"
	synctest.Test(t, func(t *testing.T) {
		r := play(t, config(sessions))
		before := r.Current()
		r.expectReloaded()
		r.text = config(sessions) + "# a comment\n"
		r.wait(2)
		require.NotSame(t, before, r.Current())
		assert.Same(t, before.Sessions, r.Current().Sessions)

		message := r.expectRejected()
		r.text = config("file-discovery, parameters: {path: /a}") + "dataLayer: {discovery: {pluginRef: file-discovery}}"
		r.wait(2)
		assert.Contains(t, *message, "line 4, column 24: dataLayer.discovery: the source of endpoints cannot change while the picker runs")
	})
}

func TestOutageOfTheSourceChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := play(t, config("queue-scorer"))
		r.text, r.readError = "", context.DeadlineExceeded
		r.wait(5)
		r.text, r.readError = config("queue-scorer"), nil
		r.wait(2)
		assert.Empty(t, r.logs.FilterLevelExact(zap.WarnLevel).All())
		assert.Equal(t, []string{"queue-scorer"}, r.published)
	})
}

func TestLoadRefusesAnInvalidText(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.text = "a: b\n"
	err := r.LoadFirst(t.Context(), nil)
	require.ErrorIs(t, err, ErrUnusable)
	require.ErrorContains(t, err, "configuration of plugins: --config-file /c: line 1, column 1: a: unknown field")
	r.readError = errors.New("no route")
	err = r.LoadFirst(t.Context(), nil)
	require.EqualError(t, err, "read --config-file /c: no route")
	require.NotErrorIs(t, err, ErrUnusable)
	r.text, r.readError, r.unprepared = config("queue-scorer"), nil, errors.New("no CA")
	err = r.LoadFirst(t.Context(), nil)
	require.EqualError(t, err, "configuration of plugins: no CA")
	require.ErrorIs(t, err, ErrUnusable)
	assert.Equal(t, "default", r.Current().Hash)
	assert.Empty(t, r.published)
}

func TestLoadUsesWhatWasReadAlready(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.text = config("queue-scorer")
	first, err := Read(t.Context(), r.source, options)
	require.NoError(t, err)
	r.text = config("load-aware-scorer")
	r.expectLoaded()
	require.NoError(t, r.LoadFirst(t.Context(), first))
	assert.Same(t, first.Config, r.Current())
	r.source.AssertNumberOfCalls(t, "Read", 1)
}

func TestWarningsAreLogged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.text = config("by-label-selector, parameters: {matchLabels: {a: b}}") + "featureGates: [dataLayer]\n"
	r.SetPreparer(func(*pluginconfig.Config) (func(), error) { return func() {}, nil })
	r.expectLoaded()
	require.NoError(t, r.LoadFirst(t.Context(), nil))
	assert.Len(t, r.logs.FilterMessage("Configuration has a warning").All(), 2)
}

func TestDefaultNeedsNoSource(t *testing.T) {
	t.Parallel()
	observed := newMockObserver(t)
	observed.EXPECT().ConfigLoaded("default").Once()
	r := New(Params{Options: options, Log: zap.NewNop(), Observer: observed})
	published := false
	r.SetPreparer(func(*pluginconfig.Config) (func(), error) { return func() { published = true }, nil })
	require.NoError(t, r.LoadFirst(t.Context(), nil))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r.Run(ended)
	assert.Equal(t, "predicted-wait-scorer", r.Current().Profile.Scorers[0].Name)
	assert.True(t, published, "the parts need the default configuration, too")
}
