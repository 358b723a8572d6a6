package nodeagent

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"fairlead.dev/deploy/local/internal/network"
	"fairlead.dev/deploy/local/internal/nstest"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// childEnv makes the test binary boot as a machine.
const childEnv = "NODEAGENT_TEST_CHILD"

const tick = 20 * time.Millisecond

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
	}
	goleak.VerifyTestMain(m)
}

// report is what a machine finds around itself.
type report struct {
	Err       string
	Machine   *Machine
	Handover  string // what is left of it in the environment
	Hostname  string
	Processes []int
	Addresses []string
	Log       string // how writing to /var/log went
	Run       string // how making the folder of the runtime's socket went
	HostRun   []string
	Answer    string // of the control plane
}

func child() {
	var r report
	m, err := Boot()
	r.Machine, r.Err = m, fmt.Sprint(err)
	if err == nil {
		r.look()
	}
	_ = json.NewEncoder(os.Stdout).Encode(r)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
	os.Exit(0)
}

func (r *report) look() {
	r.Handover = os.Getenv(Env)
	r.Hostname, _ = os.Hostname()
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			r.Processes = append(r.Processes, pid)
		}
	}
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		r.Addresses = append(r.Addresses, a.String())
	}
	var fs unix.Statfs_t
	if r.Log = "it is somebody else's"; unix.Statfs("/var/log", &fs) == nil && fs.Type == unix.TMPFS_MAGIC {
		r.Log = fmt.Sprint(os.MkdirAll("/var/log/containers/of-a-machine", 0o755))
	}
	r.Run = fmt.Sprint(os.Mkdir(filepath.Dir(RuntimeSocket), 0o711))
	run, _ := os.ReadDir("/run")
	for _, e := range run {
		r.HostRun = append(r.HostRun, e.Name())
	}
	conn, err := net.DialTimeout("tcp4", net.JoinHostPort(network.ControlIP, "7"), kubetest.Patience)
	if err != nil {
		r.Answer = err.Error()
		return
	}
	answer, _ := io.ReadAll(conn)
	r.Answer = string(answer)
}

// boot starts a machine with this handover, plugs it in as it is told, and returns what it finds.
func boot(t *testing.T, handover string, plug func(pid int, plugged *os.File)) report {
	t.Helper()
	plugged, end, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"=1", Env+"="+handover, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{plugged}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		assert.NoError(t, cmd.Wait())
	})
	plugged.Close()
	plug(cmd.Process.Pid, end)
	end.Close()
	var r report
	require.NoError(t, json.NewDecoder(stdout).Decode(&r))
	return r
}

func newMachine(t *testing.T) Machine {
	t.Helper()
	return Machine{Config: clusterapi.Config{Dir: t.TempDir()}, Node: clusterapi.Node{Name: "gpu", CPUs: 4}, Index: 2, Shim: "/shim", UserRange: true}
}

func encode(t *testing.T, m Machine) string {
	t.Helper()
	raw, err := json.Marshal(m)
	require.NoError(t, err)
	return string(raw)
}

func write(t *testing.T, plugged *os.File) {
	t.Helper()
	_, err := plugged.Write([]byte{1})
	require.NoError(t, err)
}

func TestMachine_PlacesOfItsOwn(t *testing.T) {
	t.Parallel()
	m := Machine{Config: clusterapi.Config{Dir: "/state"}, Node: clusterapi.Node{Name: "gpu"}, Index: 2}
	assert.Equal(t, "/state/nodes/gpu", m.Dir())
	assert.Equal(t, "10.200.0.12", m.IP())
}

func TestBoot_MakesAMachineOfFreshNamespaces(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, network.SetupControl())
		ln, err := net.Listen("tcp4", net.JoinHostPort(network.ControlIP, "7"))
		require.NoError(t, err)
		go func() {
			if conn, err := ln.Accept(); err == nil {
				host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
				_, _ = io.WriteString(conn, "hello "+host)
				conn.Close()
			}
		}()
		defer ln.Close()
		give := newMachine(t)
		r := boot(t, encode(t, give), func(pid int, plugged *os.File) {
			_, err := network.Connect(give.Index, pid)
			require.NoError(t, err)
			write(t, plugged)
		})
		require.Equal(t, "<nil>", r.Err)
		assert.Equal(t, &give, r.Machine)
		assert.Empty(t, r.Handover, "the kubelet's children would see it")
		assert.Equal(t, "gpu", r.Hostname)
		assert.Equal(t, []int{1}, r.Processes, "its own and no other")
		assert.Contains(t, r.Addresses, "10.200.0.12/32")
		assert.Equal(t, "hello 10.200.0.12", r.Answer)
		assert.Equal(t, "<nil>", r.Log)
		assert.NoDirExists(t, "/var/log/containers/of-a-machine", "it is the machine's alone")
		assert.Equal(t, "<nil>", r.Run, "the host's runtime is out of sight")
		host := []string{"containerd"}
		run, err := os.ReadDir("/run")
		require.NoError(t, err)
		for _, e := range run {
			host = append(host, e.Name())
		}
		assert.Subset(t, host, r.HostRun)
		assert.GreaterOrEqual(t, len(r.HostRun), len(host)-1, "the rest of /run stays")
		assert.DirExists(t, filepath.Join(give.Config.Dir, "nodes", "gpu"))
		name, err := os.Hostname()
		require.NoError(t, err)
		assert.NotEqual(t, "gpu", name)
	})
}

func TestClient_OfAKubeletWithYurthub(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	_, err := m.Client()
	require.ErrorContains(t, err, "gpu.kubeconfig", "its own, which does not exist here")
	m.Node.Yurthub = "/bin/yurthub"
	cfg, err := m.Client()
	require.NoError(t, err)
	assert.Equal(t, "http://127.0.0.1:10261", cfg.Host)
}

func TestBoot_KeepsItsDisk(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, network.SetupControl())
		give := newMachine(t)
		file := filepath.Join(give.Dir(), "file")
		require.NoError(t, os.MkdirAll(give.Dir(), 0o755))
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		r := boot(t, encode(t, give), func(pid int, plugged *os.File) {
			_, err := network.Connect(give.Index, pid)
			require.NoError(t, err)
			write(t, plugged)
		})
		require.Equal(t, "<nil>", r.Err)
		assert.FileExists(t, file)
	})
}

func TestBoot_SaysWhatItLacks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		byte       bool // on the pipe
		want       string
	}{
		{name: "no machine", give: "", byte: true, want: "read machine: "},
		{name: "no network: the control process gave up", give: `{"Index": 1}`, want: "wait for network link: EOF"},
		{name: "no link, though it was told of one", give: fmt.Sprintf(`{"Index": 1, "Config": {"dir": %q}}`, t.TempDir()), byte: true, want: "set up network: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			nstest.Inside(t, func(t *testing.T) {
				r := boot(t, tt.give, func(_ int, plugged *os.File) {
					if tt.byte {
						write(t, plugged)
					}
				})
				assert.Contains(t, r.Err, tt.want)
				assert.Nil(t, r.Machine)
			})
		})
	}
}
