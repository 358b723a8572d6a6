package reload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	zaptest "go.uber.org/zap/zaptest/observer"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/services/endpoint-picker/internal/pickerconfig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

var options = pickerconfig.Options{StaleAfter: 2 * time.Second}

func config(scorer string) string {
	return fmt.Sprintf("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: %s}]\n", scorer)
}

// rig is a Reloader without a goroutine, and what it says.
type rig struct {
	*Reloader

	source   *MockSource
	observer *mockObserver
	reporter *mockReporter
	logs     *zaptest.ObservedLogs
	changes  []string // scorers of the configurations that came into force
}

func newRig(t *testing.T) *rig {
	t.Helper()
	core, logs := zaptest.New(zapcore.DebugLevel)
	r := &rig{source: NewMockSource(t), observer: newMockObserver(t), reporter: newMockReporter(t), logs: logs}
	r.source.EXPECT().String().Return("--config-file /c").Maybe()
	r.Reloader = New(Params{
		Source: r.source, Options: options, Log: zap.New(core), Observer: r.observer, Reporter: r.reporter, Clock: clocktesting.NewFakeClock(time.Now()),
	})
	r.OnChange(func(c *pickerconfig.Config) { r.changes = append(r.changes, c.Profile.Scorers[0].Name) })
	return r
}

// read has the source hold a text, or an error, for some reads.
func (r *rig) read(ctx context.Context, times int, text string, err error) {
	r.source.EXPECT().Read(mock.Anything).Return([]byte(text), err).Times(times)
	for range times {
		r.follow(ctx)
	}
}

func (r *rig) load(t *testing.T, text string) {
	t.Helper()
	r.source.EXPECT().Read(mock.Anything).Return([]byte(text), nil).Once()
	r.observer.EXPECT().ConfigLoaded(mock.Anything).Once()
	require.NoError(t, r.Load(t.Context()))
}

func (r *rig) scorer() string { return r.Current().Profile.Scorers[0].Name }

func TestTextThatChangesComesIntoForceWhenItHasSettled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	assert.Equal(t, "predicted-wait-scorer", r.scorer(), "the default, until something was loaded")
	r.load(t, config("queue-scorer"))
	assert.Equal(t, "queue-scorer", r.scorer())

	r.read(t.Context(), 3, config("queue-scorer"), nil) // nothing new
	r.read(t.Context(), 1, config("load-aware-scorer"), nil)
	assert.Equal(t, "queue-scorer", r.scorer(), "it may still be being written")
	r.read(t.Context(), 1, config("token-load-scorer"), nil)
	assert.Equal(t, "queue-scorer", r.scorer())

	var hash string
	r.observer.EXPECT().ConfigLoaded(mock.Anything).Run(func(h string) { hash = h }).Once()
	r.reporter.EXPECT().Event("Normal", "ConfigurationReloaded", mock.Anything).Once()
	r.read(t.Context(), 2, config("token-load-scorer"), nil)
	assert.Equal(t, "token-load-scorer", r.scorer())
	assert.Equal(t, []string{"token-load-scorer"}, r.changes)
	assert.Equal(t, r.Current().Hash, hash)
}

func TestBadTextKeepsTheLastGoodOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.load(t, config("queue-scorer"))
	good := r.Current()

	var messages []string
	note := func(_, _, message string) { messages = append(messages, message) }
	r.observer.EXPECT().ConfigFailed().Times(3)
	r.reporter.EXPECT().Event("Warning", "InvalidConfiguration", mock.Anything).Run(note).Times(3)
	r.read(t.Context(), 5, config("queu-scorer"), nil) // said once
	r.read(t.Context(), 5, "", fmt.Errorf("%w: no such file", ErrUnusable))
	r.read(t.Context(), 5, strings.Repeat("ä: [}\n", 1000), nil)
	assert.Same(t, good, r.Current())
	assert.Empty(t, r.changes)
	assert.Equal(t, []string{
		`--config-file /c is invalid, the last valid one stays in force: line 3, column 18: plugins[0].type: "queu-scorer" is not a type of plugin: did you mean "queue-scorer"?`,
		`--config-file /c is invalid, the last valid one stays in force: configuration of plugins: no such file`,
	}, messages[:2])
	assert.Len(t, r.logs.FilterMessage("Rejected configuration, kept the last valid one").All(), 3)

	r.observer.EXPECT().ConfigLoaded(good.Hash).Once()
	r.reporter.EXPECT().Event("Normal", "ConfigurationReloaded", mock.Anything).Once()
	r.read(t.Context(), 2, config("queue-scorer"), nil) // taken back
}

func TestSourceThatIsAwayChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.load(t, config("queue-scorer"))
	r.read(t.Context(), 5, "", context.DeadlineExceeded)
	r.read(t.Context(), 2, config("queue-scorer"), nil)
	assert.Empty(t, r.logs.FilterLevelExact(zap.WarnLevel).All())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r.read(ended, 3, "", fmt.Errorf("%w: cancelled", ErrUnusable))
	assert.Empty(t, r.changes)
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.source.EXPECT().Read(mock.Anything).Return([]byte("a: b\n"), nil).Once()
	err := r.Load(t.Context())
	require.ErrorIs(t, err, ErrUnusable)
	require.ErrorContains(t, err, "configuration of plugins: --config-file /c: line 1, column 1: a: unknown field")
	r.source.EXPECT().Read(mock.Anything).Return(nil, errors.New("no route")).Once()
	err = r.Load(t.Context())
	require.EqualError(t, err, "read --config-file /c: no route")
	require.NotErrorIs(t, err, ErrUnusable)
}

func TestWarningsAreLogged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.load(t, config("by-label-selector, parameters: {matchLabels: {a: b}}")+"featureGates: [dataLayer]\n")
	assert.Len(t, r.logs.FilterMessage("Configuration has a warning").All(), 2)
}

func TestRunFollowsUntilItEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	clock := clocktesting.NewFakeClock(time.Now())
	r.Reloader.clock = clock
	r.load(t, config("queue-scorer"))
	r.source.EXPECT().Interval().Return(time.Second)
	r.source.EXPECT().Read(mock.Anything).Return([]byte(config("load-aware-scorer")), nil)
	r.observer.EXPECT().ConfigLoaded(mock.Anything).Once()
	r.reporter.EXPECT().Event("Normal", "ConfigurationReloaded", mock.Anything).Once()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	require.Eventually(t, func() bool {
		clock.Step(time.Second)
		return r.scorer() == "load-aware-scorer"
	}, patience, time.Millisecond)
	cancel()
	<-ended
}

func TestDefaultNeedsNoSource(t *testing.T) {
	t.Parallel()
	observed := newMockObserver(t)
	observed.EXPECT().ConfigLoaded("default").Once()
	r := New(Params{Options: options, Log: zap.NewNop(), Observer: observed})
	require.NoError(t, r.Load(t.Context()))
	r.Run(t.Context()) // ends at once
	assert.Equal(t, "predicted-wait-scorer", r.Current().Profile.Scorers[0].Name)
}
