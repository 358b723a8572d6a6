//go:build system || long

package flow

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"fairlead.dev/services/edge-cache/internal/app"
	"fairlead.dev/services/edge-cache/internal/config"
)

// Environment of this test binary as a process of the cache.
const (
	processConfig = "EDGE_CACHE_PROCESS_CONFIG"
	// processDisk is the size of a file system of its own for the data directory, for tests that fill it.
	processDisk = "EDGE_CACHE_PROCESS_DISK"
	// processHosts is a file that the process has as /etc/hosts.
	processHosts = "EDGE_CACHE_PROCESS_HOSTS"
)

// runProcess runs the cache until a signal.
func runProcess(file string) int {
	raw, err := os.ReadFile(file)
	cfg := config.Default()
	if err == nil {
		err = json.Unmarshal(raw, cfg)
	}
	if size := os.Getenv(processDisk); err == nil && size != "" {
		err = syscall.Mount("tmpfs", cfg.Data.Dir, "tmpfs", 0, "mode=0700,size="+size)
	}
	if hosts := os.Getenv(processHosts); err == nil && hosts != "" {
		err = syscall.Mount(hosts, "/etc/hosts", "", syscall.MS_BIND, "")
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		log := zap.NewNop()
		if os.Getenv("FAIRLEAD_TEST_LOG") != "" {
			log, _ = zap.NewDevelopment()
		}
		err = app.Run(ctx, cfg, log)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "edge-cache:", err)
		return 1
	}
	return 0
}

// process is a cache in a process of its own, which can be killed.
type process struct {
	*edge

	disk  string // see processDisk
	hosts string // see processHosts
	cmd   *exec.Cmd
}

// process prepares a cache. Each one has its own network.
func (w *world) process(pool string, configure ...func(*config.Config)) *process {
	w.t.Helper()
	own := *w
	own.network = newNetwork(w.t, w.network.target)
	e := own.prepare(pool, configure...)
	p := &process{edge: e}
	w.t.Cleanup(p.kill)
	return p
}

func (p *process) start() {
	p.t.Helper()
	raw, err := json.Marshal(p.cfg)
	require.NoError(p.t, err)
	file := filepath.Join(p.dir, "config.json")
	require.NoError(p.t, os.WriteFile(file, raw, 0o600))
	require.NoError(p.t, os.MkdirAll(p.cfg.Data.Dir, 0o700))
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), processConfig+"="+file, processDisk+"="+p.disk, processHosts+"="+p.hosts)
	p.cmd.Stderr = os.Stderr
	if p.disk != "" || p.hosts != "" {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
	}
	require.NoError(p.t, p.cmd.Start())
}

// kill ends the process as the kernel does when memory is short.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.cmd = nil
	p.forget()
}
