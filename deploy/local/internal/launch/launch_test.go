package launch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"fairlead.dev/deploy/local/internal/control"
	"fairlead.dev/deploy/local/internal/nstest"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// claimCommand makes the test binary claim a folder and keep it until it is killed.
const claimCommand = "claim-and-wait"

// upCommand makes the test binary launch a cluster in a folder, whose control process does as it is told.
const upCommand = "up"

// What a control process of these tests does, by the configuration's image store.
const (
	serves = "serve"
	exits0 = "exit with 0"
	exits1 = "exit with 1"
)

const tick = 5 * time.Millisecond

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case ControlCommand:
			controlProcess()
		case upCommand:
			up(os.Args[2], os.Args[3])
		case claimCommand:
			_, err := claim(os.Args[2])
			fmt.Println("claimed:", err)
			wait()
		}
	}
	// Else each child of a test for races takes a second to end.
	if err := os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func up(dir, what string) {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	cfg := clusterapi.Config{Dir: dir, Images: what, ControlPlaneOnly: true, APIAddress: "127.0.0.1:0"}
	if err := Run(ctx, Params{Config: cfg, Out: os.Stdout, Progress: os.Stderr}); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

func wait() {
	time.Sleep(time.Hour) // it is killed before
	os.Exit(9)
}

// report is what a control process finds.
type report struct {
	Handover control.Handover
	PID      int
	UIDs     string
}

// controlProcess stands in for the real one.
func controlProcess() {
	var r report
	if err := json.Unmarshal([]byte(os.Getenv(control.Env)), &r.Handover); err != nil {
		panic(err)
	}
	switch r.Handover.Config.Images {
	case exits0:
		os.Exit(0)
	case exits1:
		fmt.Fprintln(os.Stderr, "no room")
		os.Exit(1)
	}
	for i := range 1 + len(r.Handover.Published) {
		ln, err := net.FileListener(os.NewFile(uintptr(control.FirstListener+i), "listener"))
		if err != nil {
			panic(err)
		}
		go greet(ln, i)
	}
	child := exec.Command("sleep", "60")
	child.Stdout = os.Stdout
	uids, err := os.ReadFile("/proc/self/uid_map")
	if err := errors.Join(err, child.Start()); err != nil {
		panic(err)
	}
	r.PID, r.UIDs = os.Getpid(), string(uids)
	_ = json.NewEncoder(os.Stdout).Encode(r)
	wait()
}

// greet tells each caller which listener it has reached, and keeps the connection.
func greet(ln net.Listener, i int) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			_, _ = fmt.Fprintln(conn, "listener", i)
			_, _ = conn.Read(make([]byte, 1)) // until the caller goes
		}()
	}
}

// config is one whose control process does what.
func config(t *testing.T, what string) clusterapi.Config {
	t.Helper()
	return clusterapi.Config{Dir: filepath.Join(t.TempDir(), "state"), Images: what, APIAddress: "127.0.0.1:0"}
}

// call connects to a listener of the host and reads its greeting.
func call(t *testing.T, address string) (net.Conn, string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, kubetest.Patience)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(kubetest.Patience)))
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	return conn, strings.TrimSpace(line)
}

func TestRun_HandsOverAndLeavesNothingWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	cfg := config(t, serves)
	cfg.APIAddress = "127.0.0.7:0" // where no other test listens
	cfg.Publish = []clusterapi.Publish{{Host: "127.0.0.1:0", Target: "a.b:80"}, {Host: "127.0.0.1:0", Target: "c.d:80"}}
	out, outEnd, err := os.Pipe()
	require.NoError(t, err)
	defer out.Close()
	require.NoError(t, out.SetReadDeadline(time.Now().Add(kubetest.Patience)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	before := time.Now()
	go func() {
		ended <- Run(ctx, Params{Config: cfg, Shim: "/bin/shim", Out: outEnd, Progress: os.Stderr})
		outEnd.Close()
	}()

	var r report
	rest := bufio.NewReader(out)
	line, err := rest.ReadBytes('\n')
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(line, &r))
	assert.Equal(t, cfg, r.Handover.Config)
	assert.Equal(t, "/bin/shim", r.Handover.Shim)
	assert.WithinRange(t, r.Handover.Started, before, time.Now())
	assert.Equal(t, mappableIDs() > 1, r.Handover.UserRange)
	assert.Equal(t, []string{"0", strconv.Itoa(os.Getuid()), strconv.Itoa(mappableIDs())}, strings.Fields(r.UIDs))
	assert.Equal(t, 1, r.PID)
	var conns []net.Conn
	require.Len(t, r.Handover.Published, 2)
	for i, address := range append([]string{r.Handover.APIAddress}, r.Handover.Published...) {
		conn, greeting := call(t, address)
		assert.Equal(t, fmt.Sprint("listener ", i), greeting)
		conns = append(conns, conn)
	}
	_, err = claim(cfg.Dir)
	require.ErrorContains(t, err, "is running in")

	cancel()
	require.NoError(t, <-ended)
	_, err = rest.ReadByte()
	require.ErrorIs(t, err, io.EOF, "a process of the cluster still has it open")
	for _, conn := range conns {
		_, err := conn.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	require.EventuallyWithT(t, func(collect *assert.CollectT) { // as with claimed
		_, err := net.DialTimeout("tcp", r.Handover.APIAddress, kubetest.Patience)
		require.ErrorIs(collect, err, unix.ECONNREFUSED)
	}, kubetest.Patience, tick)
	claimed(t, cfg.Dir)
}

func TestRun_TellsThatTheControlProcessEnded(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want, wantProgress string }{
		{name: "for no reason", give: exits0, want: "the cluster ended unexpectedly"},
		{name: "with a reason that it gave", give: exits1, want: ErrFailed.Error(), wantProgress: "no room\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, tt.give)
			var progress bytes.Buffer
			err := Run(t.Context(), Params{Config: cfg, Out: io.Discard, Progress: &progress})
			require.EqualError(t, err, tt.want)
			assert.Equal(t, tt.give == exits1, errors.Is(err, ErrFailed))
			assert.Equal(t, tt.wantProgress, progress.String())
			claimed(t, cfg.Dir)
		})
	}
}

func TestRun_SaysInOneLineWhatToDoWhereUserNamespacesAreForbidden(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0o644))
		cfg := config(t, serves)
		err := Run(t.Context(), Params{Config: cfg, Out: io.Discard, Progress: io.Discard})
		require.ErrorIs(t, err, unix.ENOSPC)
		require.ErrorContains(t, err, "this system forbids user namespaces; run as root, or allow them with sysctl user.max_user_namespaces=")
		assert.NotContains(t, err.Error(), "\n")
		claimed(t, cfg.Dir)
	})
}

func TestRun_RefusesAFolderInUseAheadOfAnyListener(t *testing.T) {
	t.Parallel()
	cfg := config(t, serves)
	claimed(t, cfg.Dir)
	cfg.APIAddress = "no address"
	require.ErrorContains(t, Run(t.Context(), Params{Config: cfg, Out: io.Discard, Progress: io.Discard}), "a cluster is running in")
}

func TestRun_FreesTheFolderWhenAHostAddressIsTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	cfg := config(t, serves)
	cfg.Publish = []clusterapi.Publish{{Host: "127.0.0.1:0", Target: "a.b:80"}, {Host: taken.Addr().String(), Target: "a.b:80"}}

	err = Run(t.Context(), Params{Config: cfg, Out: io.Discard, Progress: io.Discard})
	require.EqualError(t, err, "host address "+taken.Addr().String()+" is in use; name another (port 0 takes a free one)")
	claimed(t, cfg.Dir)

	files, err := listen(&control.Handover{Config: cfg})
	require.Error(t, err)
	require.Len(t, files, 2, "for the caller to close")
	for _, f := range files {
		require.NoError(t, f.Close())
	}
}

func TestListen_NotesRealAddressesInOrder(t *testing.T) {
	t.Parallel()
	h := control.Handover{Config: clusterapi.Config{APIAddress: "127.0.0.1:0",
		Publish: []clusterapi.Publish{{Host: "127.0.0.2:0"}, {Host: "0.0.0.0:0"}, {Host: "localhost:0"}}}}
	files, err := listen(&h)
	require.NoError(t, err)
	require.Len(t, files, 4)
	for i, want := range []string{"127.0.0.1", "127.0.0.2", "0.0.0.0", "127.0.0.1"} {
		address := append([]string{h.APIAddress}, h.Published...)[i]
		host, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		assert.Equal(t, want, host)
		assert.NotEqual(t, "0", port)
		ln, err := net.FileListener(files[i])
		require.NoError(t, err)
		assert.Equal(t, address, ln.Addr().String())
		require.NoError(t, ln.Close())
		require.NoError(t, files[i].Close())
	}
}

func TestListen_NamesTheAddressThatItCannotHave(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "of another machine", give: "192.0.2.1:0", want: "listen on host address 192.0.2.1:0: "},
		{name: "no port", give: "127.0.0.1:none", want: "listen on host address 127.0.0.1:none: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := control.Handover{Config: clusterapi.Config{APIAddress: tt.give}}
			files, err := listen(&h)
			require.ErrorContains(t, err, tt.want)
			assert.Empty(t, files)
		})
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		give       error
		wantAdvice bool
	}{
		{name: "forbidden", give: unix.EPERM, wantAdvice: true},
		{name: "none allowed", give: unix.ENOSPC, wantAdvice: true},
		{name: "refused by a security module", give: unix.EACCES, wantAdvice: true},
		{name: "nested too deep", give: unix.EUSERS, wantAdvice: true},
		{name: "out of processes", give: unix.EAGAIN},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := explain(&os.PathError{Op: "fork/exec", Path: "/proc/self/exe", Err: tt.give})
			require.ErrorIs(t, err, tt.give)
			assert.Equal(t, tt.wantAdvice, strings.Contains(err.Error(), "run as root, or allow them with sysctl"))
			assert.True(t, strings.HasPrefix(err.Error(), "make namespaces: "))
			assert.NotContains(t, err.Error(), "\n")
		})
	}
}
