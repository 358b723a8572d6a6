// Package supervise keeps child processes running: it starts them, starts them again when they die, and ends, pauses and
// resumes them on purpose. What a process writes is appended to its log file across restarts.
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
	// steadyAfter is how long a process must have run for its next death to count as the first.
	steadyAfter = 10 * time.Second
	// stopGrace is what a process has between SIGTERM and SIGKILL.
	stopGrace = 10 * time.Second
)

// Spec is what to run.
type Spec struct {
	Name    string
	Args    []string
	Env     []string
	LogFile string
	// Died, if not nil, hears why the process ended by itself after Settle: of the first death in a row of quick ones. It
	// must not call the process.
	Died func(why error)
}

// Process is one supervised child.
type Process struct {
	spec Spec
	exe  string

	mu       sync.Mutex
	cmd      *exec.Cmd
	exited   chan struct{} // of cmd
	wanted   bool          // it is to run
	killed   bool          // cmd, by Kill
	paused   bool
	settled  bool // past its start: a death is mended
	restarts int
	backoff  backoff
	failed   chan error
}

// backoff is what a process waits before it is started again: longer each time that it did not run for long.
type backoff struct{ next time.Duration }

// after returns the wait that follows a run.
func (b *backoff) after(ran time.Duration) time.Duration {
	if ran > steadyAfter || b.next == 0 {
		b.next = firstBackoff
	}
	delay := b.next
	b.next = min(2*b.next, maxBackoff)
	return delay
}

// New returns a process that is not started. A death before Settle is reported on Failed and not mended: a process that
// never ran has a wrong flag or no room, and starting it again helps nobody.
func New(exe string, s Spec) *Process {
	return &Process{spec: s, exe: exe, failed: make(chan error, 1)}
}

// Name is the spec's.
func (p *Process) Name() string { return p.spec.Name }

// Failed tells that the process died before it was settled.
func (p *Process) Failed() <-chan error { return p.failed }

// Settle says that the process came up: from now on its deaths are mended.
func (p *Process) Settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settled = true
}

// Start runs the process and keeps it running. One that is being stopped ends first: there are never two of it.
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

// watch waits for the child's end and mends it, unless it was meant.
func (p *Process) watch(cmd *exec.Cmd, exited chan struct{}, started time.Time) {
	err := cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	close(exited) // under the lock: whoever waits for it must not start the next before this death is judged
	p.paused = false
	if !p.wanted {
		return
	}
	if !p.settled {
		p.wanted = false
		select {
		case p.failed <- fmt.Errorf("%s ended while it started: %w", p.spec.Name, Why(err, p.spec.LogFile)):
		default: // the first one has not been heard of yet
		}
		return
	}
	p.restarts++
	delay := p.backoff.after(time.Since(started))
	if p.spec.Died != nil && !p.killed && delay == firstBackoff {
		p.spec.Died(fmt.Errorf("%s ended by itself: %w", p.spec.Name, Why(err, p.spec.LogFile)))
	}
	time.AfterFunc(delay, func() { p.again(cmd) })
}

// again starts the child anew after the back-off, unless somebody did it meanwhile or it is no longer wanted.
func (p *Process) again(old *exec.Cmd) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted || p.cmd != old {
		return
	}
	if err := p.launch(); err != nil { // out of processes or disk: try on
		time.AfterFunc(p.backoff.after(0), func() { p.again(old) })
	}
}

// Stop ends the process, with SIGTERM first; it stays down.
func (p *Process) Stop(ctx context.Context) error {
	p.mu.Lock()
	p.wanted = false
	cmd, exited, paused := p.cmd, p.exited, p.paused
	p.paused = false
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // fails when it has ended, which is what is wanted
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

// Kill ends the process at once, paused or not; it comes back by itself.
func (p *Process) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted {
		return fmt.Errorf("%s is stopped", p.spec.Name)
	}
	p.killed = true
	return p.cmd.Process.Kill()
}

// Pause stops the process without ending it, and returns when it stands still.
func (p *Process) Pause() error {
	if err := p.signal(syscall.SIGSTOP, true); err != nil {
		return err
	}
	p.mu.Lock()
	pid := p.cmd.Process.Pid
	p.mu.Unlock()
	return proc.AwaitStill(pid)
}

// Resume lets a paused process go on.
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

// Status is how the process is now.
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
