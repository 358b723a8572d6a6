package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"fairlead.dev/pkg/addressfile"
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
	return p.await(ctx, func() error {
		_, err := get(ctx, url)
		return err
	})
}

// awaitPorts waits until the process has written its addresses to a file, and returns their ports by the names of the listeners.
func (p *process) awaitPorts(ctx context.Context, file string) (map[string]int, error) {
	var bound map[string]string
	if err := p.await(ctx, func() (err error) {
		bound, err = addressfile.Read(file)
		return err
	}); err != nil {
		return nil, err
	}
	found := make(map[string]int, len(bound))
	for name, text := range bound {
		parsed, err := netip.ParseAddrPort(text)
		if err != nil {
			return nil, fmt.Errorf("address %s of %s: %w", name, p.name, err)
		}
		found[name] = int(parsed.Port())
	}
	return found, nil
}

// awaitListeners waits until Envoy has written the address of its admin server to a file and opened its listeners, and returns their ports.
func (p *process) awaitListeners(ctx context.Context, file string) (found map[string]int, err error) {
	err = p.await(ctx, func() error {
		admin, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if _, err := netip.ParseAddrPort(string(admin)); err != nil {
			return err // not written yet
		}
		answer, err := get(ctx, "http://"+string(admin)+"/listeners?format=json")
		if err != nil {
			return err
		}
		found, err = listenerPorts(answer)
		return err
	})
	return found, err
}

// await calls try again and again until it succeeds.
func (p *process) await(ctx context.Context, try func() error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		last := try()
		if last == nil {
			return nil
		}
		select {
		case <-p.done:
			return p.failure()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (%w)\n%s", p.name, ctx.Err(), last, p.tail())
		case <-ticker.C:
		}
	}
}

// get returns the body of a URL that answers 200.
func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", url, response.Status)
	}
	return io.ReadAll(response.Body)
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
