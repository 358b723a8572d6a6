package cri

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// logFile is a container's log in the CRI's format (time stream tag line), which the kubelet serves to kubectl logs.
type logFile struct {
	path string
	mu   sync.Mutex
	f    *os.File
}

// Tags of a log line: full, or a part of a line that was too long.
const (
	tagFull    = "F"
	tagPartial = "P"
)

// maxLogLine is the longest part of a line in one entry, in bytes.
const maxLogLine = 16 << 10

func openLog(path string) (*logFile, error) {
	l := &logFile{path: path}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return l, l.reopen()
}

func (l *logFile) reopen() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		l.f.Close()
	}
	l.f = f
	return nil
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.f.Close()
}

func (l *logFile) write(stream, tag string, line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.f, "%s %s %s %s\n", time.Now().Format(time.RFC3339Nano), stream, tag, line)
}

// copy logs a stream to its end. A full disk never blocks the program: lines are lost instead.
func (l *logFile) copy(stream string, rd io.Reader) {
	br := bufio.NewReaderSize(rd, maxLogLine)
	for {
		line, err := br.ReadSlice('\n')
		switch {
		case err == nil:
			l.write(stream, tagFull, line[:len(line)-1])
		case errors.Is(err, bufio.ErrBufferFull):
			l.write(stream, tagPartial, line)
			continue
		case len(line) > 0:
			l.write(stream, tagFull, line)
		}
		if err != nil {
			return
		}
	}
}
