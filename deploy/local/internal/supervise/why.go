package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Why explains a program's end by the result of Wait and, unless it was killed silently, by its log.
func Why(waited error, logFile string) error {
	if waited == nil {
		waited = errors.New("exit status 0")
	}
	var exit *exec.ExitError
	if errors.As(waited, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
			return fmt.Errorf("%w (its log is %s)", waited, logFile)
		}
	}
	return fmt.Errorf("%w: %s (all of it in %s)", waited, lastError(logFile), logFile)
}

// logTail is the length of the log's end that lastError reads, in bytes.
const logTail = 16 << 10

// lastError returns the line of a component's log that best explains its end: the last panic, else the last line with an
// error, else the last line.
func lastError(logFile string) string {
	raw, err := os.ReadFile(logFile)
	if err != nil {
		return err.Error()
	}
	if len(raw) > logTail {
		raw = raw[len(raw)-logTail:]
	}
	last, best := "its log is empty", plain
	for line := range bytes.Lines(raw) {
		s := strings.TrimSpace(string(line))
		if s == "" {
			continue
		}
		if w := weigh(s); w >= best {
			last, best = s, w
		}
	}
	const most = 300
	if len(last) > most {
		last = last[:most] + "..."
	}
	return last
}

// Weights of log lines: how well they explain a process's end.
const (
	plain = iota
	speaksOfError
	isPanic // a stack follows, whose function names may contain errors
)

func weigh(line string) int {
	low := strings.ToLower(line)
	switch {
	case strings.Contains(low, "panic:") || strings.Contains(low, "fatal error:"):
		return isPanic
	case strings.Contains(low, "error") || strings.Contains(low, "fatal"):
		return speaksOfError
	}
	return plain
}
