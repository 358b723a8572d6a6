package supervise

import (
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest/clusterapi"
)

func TestFailed_TellsOnceOfADeathBeforeSettle(t *testing.T) {
	t.Parallel()
	p := newProcess(t, exits3)
	for range 2 { // the second is not heard of, and holds nobody up
		require.NoError(t, p.Start())
		awaitState(t, p, clusterapi.StateStopped)
	}
	want := "child ended while it started: exit status 3: error: no room (all of it in " + p.spec.LogFile + ")"
	require.EqualError(t, <-p.Failed(), want)
	assert.Empty(t, p.Failed())
	assert.Equal(t, status(clusterapi.StateStopped, 0), p.Status(), "it is not mended")
}

func TestFailed_TellsOfASuccessfulEnd(t *testing.T) {
	t.Parallel()
	p := newProcess(t, exits0)
	require.NoError(t, p.Start())
	require.ErrorContains(t, <-p.Failed(), "child ended while it started: exit status 0: up ")
}

func TestFailed_SaysNothingOfAStop(t *testing.T) {
	t.Parallel()
	p := newProcess(t, waits)
	require.NoError(t, p.Start())
	awaitStarts(t, p, 1)
	require.NoError(t, p.Stop(t.Context()))
	p.mu.Lock() // after watch
	defer p.mu.Unlock()
	assert.Empty(t, p.Failed())
}

// deaths collects what is told of them.
type deaths struct {
	sync.Mutex
	told []string
}

func (d *deaths) hear(why error) {
	d.Lock()
	defer d.Unlock()
	d.told = append(d.told, why.Error())
}

func (d *deaths) all() []string {
	d.Lock()
	defer d.Unlock()
	return slices.Clone(d.told)
}

func TestDied_TellsOnceOfACrashLoop(t *testing.T) {
	t.Parallel()
	var d deaths
	p := newProcess(t, exits3)
	p.spec.Died = d.hear
	p.Settle()
	require.NoError(t, p.Start())
	awaitStarts(t, p, 3)
	assert.Equal(t, []string{"child ended unexpectedly: exit status 3: error: no room (all of it in " + p.spec.LogFile + ")"}, d.all())
}

func TestDied_SaysNothingOfWhatWasMeant(t *testing.T) {
	t.Parallel()
	var d deaths
	p := newProcess(t, waits)
	p.spec.Died = d.hear
	p.Settle()
	require.NoError(t, p.Start())
	awaitStarts(t, p, 1)
	require.NoError(t, p.Kill())
	awaitStarts(t, p, 2)
	require.NoError(t, p.Stop(t.Context()))
	assert.Empty(t, d.all())

	p.backoff.next = 0
	require.NoError(t, p.Start())
	pid := awaitStarts(t, p, 3)[2].pid
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	awaitStarts(t, p, 4)
	assert.Equal(t, []string{"child ended unexpectedly: signal: killed (its log is " + p.spec.LogFile + ")"}, d.all(), "that one was not")
}
