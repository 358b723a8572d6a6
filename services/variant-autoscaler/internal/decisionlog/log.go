// Package decisionlog writes, reads and explains decisions.
//
//	log.go        the decision log: a line of JSON for each pass, with all that the pass decided on. Read returns the last snapshot, so
//	              that a decision can be repeated, or made with other settings, without a cluster
//	table.go      decisions as tables
//	whatif.go     changes of a snapshot for questions of the kind "what if"
//	limits.go     what a raise of each binding limit would change
package decisionlog

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// maxFile is the size at which a file is renamed, so that a log takes at most twice as much. A pass over 100 variants takes 150 kB.
	maxFile = 64 << 20
	// maxLine is the size of the largest record that Read accepts: ten times that of 10 000 variants.
	maxLine = 256 << 20

	// oldSuffix is added to the name of the file before the present one.
	oldSuffix = ".1"
)

// Log writes records. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	name string
	out  io.Writer
	file *os.File // nil for standard output
	size int64
	most int64
}

// Open returns a Log that appends to a file. The name - is standard output; an empty one means that nothing is written.
func Open(name string, standard io.Writer) (*Log, error) {
	l := &Log{name: name, most: maxFile}
	switch name {
	case "":
		l.out = io.Discard
		return l, nil
	case "-":
		l.out = standard
		return l, nil
	}
	return l, l.openFile()
}

func (l *Log) openFile() error {
	file, err := os.OpenFile(l.name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open decision log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("open decision log: %w", err), file.Close())
	}
	l.file, l.out, l.size = file, file, info.Size()
	return nil
}

// Write appends a record. A file that would become too large is renamed first.
func (l *Log) Write(r *decision.Record) error {
	if l.out == io.Discard {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	line = append(line, '\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && l.size > 0 && l.size+int64(len(line)) > l.most {
		if err := l.rotateFile(); err != nil {
			return err
		}
	}
	n, err := l.out.Write(line)
	if l.size += int64(n); err != nil {
		return fmt.Errorf("write decision log: %w", err)
	}
	return nil
}

func (l *Log) rotateFile() error {
	if err := errors.Join(l.file.Close(), os.Rename(l.name, l.name+oldSuffix)); err != nil {
		return fmt.Errorf("rename decision log: %w", err)
	}
	return l.openFile()
}

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// Read returns the last snapshot of a text: a decision log, or one snapshot.
func Read(in io.Reader) (*snapshot.Snapshot, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	var last []byte
	for lines.Scan() {
		if len(lines.Bytes()) > 0 {
			last = append(last[:0], lines.Bytes()...)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	if last == nil {
		return nil, errors.New("read snapshot: the input is empty")
	}
	var record decision.Record
	if err := json.Unmarshal(last, &record); err != nil {
		return nil, fmt.Errorf("read snapshot: the last line is not JSON: %w", err)
	}
	if record.Snapshot != nil {
		return record.Snapshot, nil
	}
	s := &snapshot.Snapshot{}
	if err := json.Unmarshal(last, s); err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	if s.Settings.Split == "" {
		return nil, errors.New("read snapshot: the last line is neither a record nor a snapshot")
	}
	return s, nil
}
