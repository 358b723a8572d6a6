package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"fairlead.dev/deploy/local/internal/supervise"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

const (
	tick = 5 * time.Millisecond
)

func TestMain(m *testing.M) {
	// The steering server ends with the process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("fairlead.dev/deploy/local/internal/control.(*cluster).serveSteering.func2"))
}

// story collects what is said.
type story struct {
	sync.Mutex
	lines []string
}

func (s *story) say(format string, args ...any) {
	s.Lock()
	defer s.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *story) text() string {
	s.Lock()
	defer s.Unlock()
	return strings.Join(s.lines, "\n")
}

// newCluster returns one of these nodes and of components by these names, none of them started.
func newCluster(t *testing.T, nodes []clusterapi.Node, names ...string) (*cluster, *story) {
	t.Helper()
	var s story
	c := &cluster{exe: "testdata/localkube.sh", say: s.say, ready: make(chan struct{})}
	c.Config = clusterapi.Config{Dir: t.TempDir(), Nodes: nodes}
	require.NoError(t, os.Mkdir(clusterapi.LogDir(c.Config.Dir), 0o755))
	for _, name := range names {
		p := supervise.New(c.exe, supervise.Spec{Name: name, Args: []string{name}, Env: childEnv(), LogFile: c.log(name)})
		c.processes = append(c.processes, p)
		t.Cleanup(func() { assert.NoError(t, p.Stop(context.Background())) })
	}
	for i, n := range nodes {
		c.nodes = append(c.nodes, newNode(c, i+1, n))
		t.Cleanup(c.nodes[i].kill)
	}
	return c, &s
}

// startComponents starts all and makes the cluster ready.
func startComponents(t *testing.T, c *cluster) {
	t.Helper()
	for _, p := range c.processes {
		require.NoError(t, p.Start())
		p.Settle()
		awaitLog(t, c.log(p.Name()), "up "+p.Name()+"\n", 1)
	}
	close(c.ready)
}

func (c *cluster) log(name string) string {
	return filepath.Join(clusterapi.LogDir(c.Config.Dir), name+".log")
}

// awaitLog waits until a log has a line so many times.
func awaitLog(t *testing.T, file, line string, times int) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Count(read(file), line) >= times }, kubetest.Patience, tick, "%s in %s", line, file)
}

func read(file string) string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func TestWhileNothingFails_EndsWithTheFirstDeath(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		then func(ctx context.Context) error // what the start makes of its end
	}{
		{name: "start that gives up", then: func(ctx context.Context) error { return fmt.Errorf("wait: %w", ctx.Err()) }},
		{name: "start that had just succeeded", then: func(context.Context) error { return nil }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, _ := newCluster(t, nil, clusterapi.Etcd, "fails")
			err := c.whileNothingFails(t.Context(), func(ctx context.Context) error {
				for _, p := range c.processes {
					if err := p.Start(); err != nil {
						return err
					}
				}
				<-ctx.Done()
				return tt.then(ctx)
			})
			require.ErrorContains(t, err, "fails ended while it started: exit status 3: error: bad flag")
		})
	}
}

func TestWhileNothingFails_ANodesDeathCounts(t *testing.T) {
	t.Parallel()
	c, _ := newCluster(t, []clusterapi.Node{{Name: "node-1"}, {Name: "node-2"}})
	died := errors.New("node-2 died")
	c.nodes[1].failed <- died
	ctx, cancel := context.WithTimeout(t.Context(), kubetest.Patience)
	defer cancel()
	err := c.whileNothingFails(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	require.ErrorIs(t, err, died)
}

func TestWhileNothingFails_ReturnsWhatTheStartReturns(t *testing.T) {
	t.Parallel()
	c, _ := newCluster(t, nil, clusterapi.Etcd)
	require.NoError(t, c.whileNothingFails(t.Context(), func(context.Context) error { return nil }))
	require.ErrorIs(t, c.whileNothingFails(t.Context(), func(context.Context) error { return io.ErrClosedPipe }), io.ErrClosedPipe)

	told, tell := context.WithCancel(t.Context())
	tell()
	err := c.whileNothingFails(told, func(ctx context.Context) error { return fmt.Errorf("wait: %w", ctx.Err()) })
	require.EqualError(t, err, "wait: context canceled")
}

func TestLoad_TakesTheHandoverOutOfTheEnvironment(t *testing.T) {
	t.Setenv(Env, `{"Config": {"dir": "/state"}, "APIAddress": "127.0.0.1:1", "Published": ["127.0.0.1:2"], "Shim": "/shim", "UserRange": true}`)
	var progress strings.Builder
	c, err := load(&progress)
	require.NoError(t, err)
	assert.Equal(t, Handover{Config: clusterapi.Config{Dir: "/state"}, APIAddress: "127.0.0.1:1", Published: []string{"127.0.0.1:2"},
		Shim: "/shim", UserRange: true}, c.Handover)
	assert.NotContains(t, strings.Join(os.Environ(), "\n"), Env+"=", "children would see it")
	c.Started = time.Now().Add(-time.Second)
	c.say("%d of %d", 1, 2)
	assert.Regexp(t, `^  1\.\d\ds  1 of 2\n$`, progress.String())
}

func TestLoad_SaysThatTheHandoverIsMissing(t *testing.T) {
	t.Setenv(Env, "")
	_, err := load(io.Discard)
	require.ErrorContains(t, err, "read handover of the launcher: ")
}

func TestChildEnv_IsWhatProgramsNeedAndNoMore(t *testing.T) {
	for name, value := range map[string]string{"PATH": "/bin", "HOME": "/home", "GOGC": "50", "TMPDIR": "", "KUBECONFIG": "/secret", Env: "{}"} {
		t.Setenv(name, value)
	}
	t.Setenv("GOMEMLIMIT", "1GiB")
	require.NoError(t, os.Unsetenv("GOMEMLIMIT"))
	assert.ElementsMatch(t, []string{"PATH=/bin", "HOME=/home", "GOGC=50", "TMPDIR="}, childEnv())
}

func TestUserNamespaceHint(t *testing.T) {
	t.Parallel()
	for _, err := range []error{unix.EPERM, unix.EACCES, fmt.Errorf("mount: %w", unix.EPERM)} {
		assert.Contains(t, userNamespaceHint(err), "run as root, or sysctl kernel.apparmor_restrict_unprivileged_userns=0", err)
	}
	assert.Empty(t, userNamespaceHint(unix.EBUSY))
}
