// Package supervise runs child processes: it starts them, restarts them when they die, and stops, pauses and resumes them on
// request. The output of a process is appended to its log file across restarts.
package supervise

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"fairlead.dev/deploy/local/internal/proc"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 5 * time.Second
	// steadyAfter is the run time of a process after which its next death counts as the first.
	steadyAfter = 10 * time.Second
	// stopGrace is the time between SIGTERM and SIGKILL.
	stopGrace = 10 * time.Second
)

// Spec describes a process.
type Spec struct {
	Name    string
	Args    []string
	Env     []string
	LogFile string
	// Died, if not nil, receives the reason for an unexpected end after Settle: for the first of consecutive quick deaths.
	// It must not call methods of the process.
	Died func(why error)
}

// Process is one supervised child.
type Process struct {
	spec Spec
	exe  string

	mu       sync.Mutex
	cmd      *exec.Cmd
	exited   chan struct{} // of cmd
	wanted   bool          // should be running
	killed   bool          // cmd, by Kill
	paused   bool
	settled  bool // it has started: a death causes a restart
	restarts int
	backoff  backoff
	failed   chan error
}

// backoff is the delay before a restart: it grows with each short run.
type backoff struct{ next time.Duration }

// after returns the delay after a run.
func (b *backoff) after(ran time.Duration) time.Duration {
	if ran > steadyAfter || b.next == 0 {
		b.next = firstBackoff
	}
	delay := b.next
	b.next = min(2*b.next, maxBackoff)
	return delay
}

// New returns a process that is not started. A death before Settle is reported on Failed and causes no restart: such a
// process has a wrong flag or no resources, which a restart does not fix.
func New(exe string, s Spec) *Process {
	return &Process{spec: s, exe: exe, failed: make(chan error, 1)}
}

// Name returns the name of the spec.
func (p *Process) Name() string { return p.spec.Name }

// Failed receives a death before Settle.
func (p *Process) Failed() <-chan error { return p.failed }

// Settle declares that the process has started: from now on it is restarted.
func (p *Process) Settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settled = true
}

// Start starts the process and keeps it running. If it is being stopped, Start waits for its end, so that it never runs
// twice.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.wanted && p.cmd != nil && !isClosed(p.exited) {
		exited := p.exited
		p.mu.Unlock()
		<-exited
		p.mu.Lock()
	}
	if p.wanted {
		return nil
	}
	if err := p.launch(); err != nil {
		return err
	}
	p.wanted = true
	return nil
}

// launch starts the child; p.mu is held.
func (p *Process) launch() error {
	out, err := os.OpenFile(p.spec.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", p.spec.Name, err)
	}
	defer out.Close()
	cmd := exec.Command(p.exe, p.spec.Args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.spec.Env, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.spec.Name, err)
	}
	p.cmd, p.exited, p.killed, p.paused = cmd, make(chan struct{}), false, false
	go p.watch(cmd, p.exited, time.Now())
	return nil
}

// watch waits for the child's end and restarts it, unless the end was requested.
func (p *Process) watch(cmd *exec.Cmd, exited chan struct{}, started time.Time) {
	err := cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	close(exited) // under the lock: a waiting Start must not start the next one before this death is handled
	p.paused = false
	if !p.wanted {
		return
	}
	if !p.settled {
		p.wanted = false
		select {
		case p.failed <- fmt.Errorf("%s ended while it started: %w", p.spec.Name, Why(err, p.spec.LogFile)):
		default: // the first one is still unread
		}
		return
	}
	p.restarts++
	delay := p.backoff.after(time.Since(started))
	if p.spec.Died != nil && !p.killed && delay == firstBackoff {
		p.spec.Died(fmt.Errorf("%s ended unexpectedly: %w", p.spec.Name, Why(err, p.spec.LogFile)))
	}
	time.AfterFunc(delay, func() { p.again(cmd) })
}

// again restarts the child after the backoff, unless it was started in the meantime or should not run any more.
func (p *Process) again(old *exec.Cmd) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted || p.cmd != old {
		return
	}
	if err := p.launch(); err != nil { // retry when out of processes or disk
		time.AfterFunc(p.backoff.after(0), func() { p.again(old) })
	}
}

// Stop stops the process, with SIGTERM first; it stays down.
func (p *Process) Stop(ctx context.Context) error {
	p.mu.Lock()
	p.wanted = false
	cmd, exited, paused := p.cmd, p.exited, p.paused
	p.paused = false
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	if paused {
		_ = cmd.Process.Signal(syscall.SIGCONT)
	}
	select {
	case <-exited:
		return nil
	case <-ctx.Done():
	case <-time.After(stopGrace):
	}
	_ = cmd.Process.Kill()
	<-exited
	return nil
}

// Kill kills the process at once, paused or not; it is restarted.
func (p *Process) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted {
		return fmt.Errorf("%s is stopped", p.spec.Name)
	}
	p.killed = true
	return p.cmd.Process.Kill()
}

// Pause stops the process without ending it, and returns when all its threads have stopped.
func (p *Process) Pause() error {
	if err := p.signal(syscall.SIGSTOP, true); err != nil {
		return err
	}
	p.mu.Lock()
	pid := p.cmd.Process.Pid
	p.mu.Unlock()
	return proc.AwaitStill(pid)
}

// Resume resumes a paused process.
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT, false) }

func (p *Process) signal(sig syscall.Signal, paused bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted {
		return fmt.Errorf("%s is stopped", p.spec.Name)
	}
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal %s: %w", p.spec.Name, err)
	}
	p.paused = paused
	return nil
}

// Status returns the current state of the process.
func (p *Process) Status() clusterapi.ComponentStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := clusterapi.ComponentStatus{Name: p.spec.Name, State: clusterapi.StateRunning, Restarts: p.restarts}
	switch {
	case !p.wanted:
		s.State = clusterapi.StateStopped
	case p.paused:
		s.State = clusterapi.StatePaused
	case isClosed(p.exited):
		s.State = clusterapi.StateStarting
	}
	return s
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
