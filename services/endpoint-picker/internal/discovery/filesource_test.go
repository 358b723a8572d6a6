package discovery

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"
	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// outcomes is what an observer was told, in turn.
type outcomes struct {
	mu   sync.Mutex
	list []string
}

func (o *outcomes) observe(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.list = append(o.list, err.Error())
		return
	}
	o.list = append(o.list, "ok")
}

func (o *outcomes) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string{}, o.list...)
}

// write replaces a file at once, as an editor that knows its trade does.
func write(t *testing.T, path string, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// file is one with endpoints "name ip labelValue", all on port 8000.
func file(lines ...string) string {
	var b strings.Builder
	b.WriteString("endpoints:\n")
	for _, line := range lines {
		var name, ip, label string
		_, _ = fmt.Sscan(line, &name, &ip, &label)
		fmt.Fprintf(&b, "- {name: %s, address: %s, port: 8000, labels: {role: %q}}\n", name, ip, label)
	}
	return b.String()
}

// bench is a source and what follows from it.
type bench struct {
	path     string
	source   *FileSource
	outcomes outcomes
	logs     *zaptest.ObservedLogs
}

func newBench(t *testing.T, content string) *bench {
	t.Helper()
	b := &bench{path: filepath.Join(t.TempDir(), "endpoints.yaml")}
	write(t, b.path, content)
	core, logs := zaptest.New(zap.InfoLevel)
	b.logs = logs
	var err error
	b.source, err = NewFileSource(FileParams{Log: zap.New(core), Path: b.path, Interval: time.Millisecond, Observe: b.outcomes.observe})
	require.NoError(t, err)
	return b
}

func (b *bench) names() []string {
	var names []string
	endpoints, _ := b.source.ReadPool()
	for _, d := range endpoints {
		names = append(names, d.Pod)
	}
	return names
}

// follow runs the source, in a bubble, while the steps change its file. Each step lets it read twice.
func (b *bench) follow(t *testing.T, steps ...func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go b.source.Run(ctx)
	time.Sleep(time.Millisecond / 2) // between two readings
	for _, step := range steps {
		step()
		time.Sleep(2 * time.Millisecond)
	}
	cancel()
	synctest.Wait()
}

func TestChangesTakeEffectWhenTheyWereReadTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, file("a 10.0.0.1"))
		changes := 0
		b.source.OnChange(func() { changes++ })
		require.True(t, b.source.WaitForSync(t.Context()))
		assert.Equal(t, []string{"a"}, b.names())
		whole := file("a 10.0.0.1", "b 10.0.0.2", "c 10.0.0.3")
		b.follow(t,
			func() {}, // nothing new
			func() {
				for i := len(file("a 10.0.0.1")); i < len(whole); i += 20 { // written slowly; some of these are valid files
					write(t, b.path, whole[:i])
					time.Sleep(time.Millisecond)
				}
				assert.Equal(t, []string{"a"}, b.names())
				assert.Zero(t, changes)
				write(t, b.path, whole)
			},
			func() { assert.Equal(t, []string{"a", "b", "c"}, b.names()) },
		)
		assert.Equal(t, 1, changes)
		assert.Equal(t, []string{"ok", "ok"}, b.outcomes.all())
		assert.Equal(t, 1, b.logs.FilterMessage("Reloaded endpoints file").Len())
	})
}

func TestBadEditsKeepTheLastEndpoints(t *testing.T) {
	t.Parallel()
	good := file("a 10.0.0.1", "b 10.0.0.2")
	tests := []struct {
		name string
		do   func(t *testing.T, path string)
		want string
	}{
		{
			name: "malformed",
			do:   func(t *testing.T, path string) { t.Helper(); write(t, path, "endpoints:\n- {name: a}\n") },
			want: "line 2, column 3: endpoints[0].address: it is missing\nline 2, column 3: endpoints[0].port: it is missing",
		},
		{
			name: "emptied",
			do:   func(t *testing.T, path string) { t.Helper(); write(t, path, "") },
			want: "it is empty: without endpoints, give endpoints: []",
		},
		{
			name: "removed",
			do:   func(t *testing.T, path string) { t.Helper(); require.NoError(t, os.Remove(path)) },
			want: "no such file or directory",
		},
		{
			name: "too large",
			do:   func(t *testing.T, path string) { t.Helper(); write(t, path, good+strings.Repeat("#", maxFileBytes)) },
			want: "it has 1048577 bytes: the maximum is 1048576",
		},
		{
			name: "a folder",
			do: func(t *testing.T, path string) {
				t.Helper()
				require.NoError(t, os.Remove(path))
				require.NoError(t, os.Mkdir(path, 0o700))
			},
			want: "is not a file",
		},
		{
			name: "a pipe without a writer",
			do: func(t *testing.T, path string) {
				t.Helper()
				require.NoError(t, os.Remove(path))
				require.NoError(t, syscall.Mkfifo(path, 0o600))
			},
			want: "is not a file",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, good)
				b.follow(t,
					func() { tt.do(t, b.path) },
					func() {}, // nothing new
					func() {
						assert.Equal(t, []string{"a", "b"}, b.names())
						outcomes := b.outcomes.all()
						require.Len(t, outcomes, 2, "reported once")
						assert.Contains(t, outcomes[1], tt.want)
						warnings := b.logs.FilterMessage("Could not reload endpoints file, kept the last endpoints").All()
						require.Len(t, warnings, 1, "logged once")
						assert.Equal(t, b.path, warnings[0].ContextMap()["path"])
						require.NoError(t, os.RemoveAll(b.path))
						write(t, b.path, good)
					},
					func() { assert.Equal(t, "ok", b.outcomes.all()[2], "valid again") },
				)
			})
		})
	}
}

func TestStartRefusesABadFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "endpoints.yaml")
	params := FileParams{Log: zap.NewNop(), Path: path, Observe: (&outcomes{}).observe}
	_, err := NewFileSource(params)
	require.ErrorContains(t, err, "read endpoints: stat "+path)
	write(t, path, "endpoints: {}\n")
	_, err = NewFileSource(params)
	require.EqualError(t, err, "read endpoints of "+path+": line 1, column 12: endpoints: a mapping is not a list")
}

// run follows the source by a Store until the test ends.
func (b *bench) run(t *testing.T) *pool.Store {
	t.Helper()
	store := pool.NewStore(zap.NewNop(), b.path, b.source, estimate.New(prefixindex.NewMemoryBudget(1<<20)), clock.RealClock{})
	b.source.OnChange(store.MarkChanged)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context){b.source.Run, store.Run} {
		running.Go(func() { run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return store
}

// roles waits for some readings of the file, compares the endpoints, and returns them by their names.
func roles(t *testing.T, s *pool.Store, want map[string]string) map[string]*endpoint.Endpoint {
	t.Helper()
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, s.CheckReady())
	found, got := map[string]*endpoint.Endpoint{}, map[string]string{}
	for _, e := range s.Snapshot().Endpoints {
		found[e.Identity().Pod] = e
		got[e.Identity().Pod] = e.Description().Labels["role"]
	}
	require.Equal(t, want, got)
	return found
}

func TestEndpointsKeepTheirIdentityOverEdits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, file("a 10.0.0.1 decode", "b 10.0.0.2 decode", "c 10.0.0.3 decode"))
		store := b.run(t)
		before := roles(t, store, map[string]string{"a": "decode", "b": "decode", "c": "decode"})
		before["a"].Acquire()

		write(t, b.path, file("d 10.0.0.4 new", "b 10.0.0.22 decode", "a 10.0.0.1 prefill"))
		after := roles(t, store, map[string]string{"a": "prefill", "b": "decode", "d": "new"})
		assert.Same(t, before["a"], after["a"], "same name, same address: the same endpoint with other labels")
		assert.InDelta(t, 1, after["a"].Load().Requests, 0, "and its load")
		assert.NotSame(t, before["b"], after["b"], "another address is another endpoint")

		write(t, b.path, strings.Replace(file("a 10.0.0.1 prefill"), "port: 8000", "port: 8001", 1))
		moved := roles(t, store, map[string]string{"a": "prefill"})
		assert.NotSame(t, before["a"], moved["a"], "and so is another port")
		assert.Equal(t, "10.0.0.1:8001", moved["a"].Address())

		write(t, b.path, "endpoints: []")
		roles(t, store, map[string]string{})
	})
}

func TestSymbolicLinkThatIsTurned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// As Kubernetes mounts a ConfigMap: the file is a link into a folder that is itself a link.
		folder := t.TempDir()
		mount := func(version, content string) {
			require.NoError(t, os.Mkdir(filepath.Join(folder, version), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(folder, version, "endpoints.yaml"), []byte(content), 0o600))
			require.NoError(t, os.Symlink(version, filepath.Join(folder, "..tmp")))
			require.NoError(t, os.Rename(filepath.Join(folder, "..tmp"), filepath.Join(folder, "..data")))
		}
		mount("..1", file("a 10.0.0.1 one"))
		path := filepath.Join(folder, "endpoints.yaml")
		require.NoError(t, os.Symlink(filepath.Join("..data", "endpoints.yaml"), path))
		b := &bench{path: path}
		var err error
		b.source, err = NewFileSource(FileParams{Log: zap.NewNop(), Path: path, Interval: time.Millisecond, Observe: b.outcomes.observe})
		require.NoError(t, err)
		store := b.run(t)
		roles(t, store, map[string]string{"a": "one"})
		mount("..2", file("a 10.0.0.1 two"))
		roles(t, store, map[string]string{"a": "two"})
		require.NoError(t, os.RemoveAll(filepath.Join(folder, "..1")))
		mount("..3", file("b 10.0.0.2 three"))
		roles(t, store, map[string]string{"b": "three"})
	})
}

func TestFileThatIsReadOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "endpoints.yaml")
		write(t, path, file("a 10.0.0.1"))
		b := &bench{path: path}
		var err error
		b.source, err = NewFileSource(FileParams{Log: zap.NewNop(), Path: path, Once: true, Interval: time.Millisecond, Observe: b.outcomes.observe})
		require.NoError(t, err)
		store := b.run(t)
		roles(t, store, map[string]string{"a": ""})
		other := &bench{path: path}
		other.source, err = NewFileSource(FileParams{Log: zap.NewNop(), Path: path, Interval: time.Millisecond, Observe: other.outcomes.observe})
		require.NoError(t, err)
		follower := other.run(t)
		roles(t, follower, map[string]string{"a": ""})
		write(t, path, file("b 10.0.0.2"))
		roles(t, follower, map[string]string{"b": ""}) // it has seen the change
		roles(t, store, map[string]string{"a": ""})
	})
}
