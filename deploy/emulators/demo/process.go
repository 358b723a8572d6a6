package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Times of processes.
const (
	pollInterval = 20 * time.Millisecond
	stopTimeout  = 5 * time.Second
	lastBytes    = 2000 // of a log in an error
)

// process is a running program. Its output goes to a file.
type process struct {
	name, log string
	cmd       *exec.Cmd
	done      chan struct{} // closed when it has ended
}

// startProcess starts a program. When the program ends, it sends the process to ended.
func startProcess(dir, name string, ended chan<- *process, binary string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), cmd: exec.Command(binary, args...), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close() // the process has its own descriptor
	p.cmd.Stdout, p.cmd.Stderr = out, out
	// In its own process group, so that Ctrl-C reaches only the demo, which stops the processes in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
		ended <- p
	}()
	return p, nil
}

// failure returns the error for a process that ended too early, with the end of its log.
func (p *process) failure() error {
	return fmt.Errorf("%s ended: %s\n%s", p.name, p.cmd.ProcessState, p.tail())
}

// tail returns the end of the log.
func (p *process) tail() []byte {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(text[max(0, len(text)-lastBytes):])
}

// awaitReady waits until a URL answers 200.
func (p *process) awaitReady(ctx context.Context, url string) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for !answers(ctx, url) {
		select {
		case <-p.done:
			return p.failure()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", p.name, ctx.Err(), p.tail())
		case <-ticker.C:
		}
	}
	return nil
}

// answers reports whether a URL answers 200.
func answers(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// stop terminates the process, and kills it after stopTimeout.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}
