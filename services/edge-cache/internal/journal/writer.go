package journal

import (
	"errors"
	"fmt"
	"slices"
)

// writer appends frames to a file that it created.
type writer struct {
	file   File
	codec  *frameCodec
	gen    uint64
	size   int64 // written
	buffer []byte
}

// maxIdleBuffer is what a writer keeps between batches: a few frames' worth, so that one huge record does not stay in memory.
const maxIdleBuffer = targetFrame + 256<<10

// createFile creates a file with its header.
func (j *Journal) createFile(name string, h header) (*writer, error) {
	if len(j.options.Keys) > 0 {
		h.Sealed, h.KeyID = true, j.options.Keys.currentID()
	}
	codec, err := newFrameCodec(&h, j.options.Keys)
	if err != nil {
		return nil, err
	}
	file, err := j.fs.Create(name)
	if err != nil {
		return nil, err
	}
	w := &writer{file: file, codec: codec, gen: h.Gen}
	if err := w.writeBytes(h.encodeHeader()); err != nil {
		return nil, errors.Join(err, file.Close(), j.fs.Remove(name))
	}
	return w, nil
}

func (w *writer) writeBytes(b []byte) error {
	n, err := w.file.Write(b)
	w.size += int64(n)
	if err == nil && n < len(b) {
		err = fmt.Errorf("short write: %d of %d bytes", n, len(b))
	}
	return err
}

// writeBatch appends a batch that ends with a commit.
func (w *writer) writeBatch(batch []Record) error {
	for i := range batch {
		if err := w.addRecord(&batch[i]); err != nil {
			return err
		}
	}
	return w.endFrame(flagCommit)
}

// addRecord appends a record to the frame in the buffer, and writes the frame out when it is large enough.
func (w *writer) addRecord(r *Record) error {
	if len(w.buffer) > frameHeader && len(w.buffer)+len(r.Key)+len(r.Value)+recordOverhead > targetFrame {
		if err := w.endFrame(0); err != nil {
			return err
		}
	}
	if len(w.buffer) == 0 {
		w.buffer = append(w.buffer, make([]byte, frameHeader)...)
	}
	w.buffer = appendRecord(w.buffer, r)
	return nil
}

// endFrame writes the frame in the buffer out.
func (w *writer) endFrame(flags uint8) error {
	if len(w.buffer) == 0 {
		w.buffer = append(w.buffer, make([]byte, frameHeader)...)
	}
	frame := w.codec.sealFrame(slices.Grow(w.buffer, sealOverhead), flags)
	err := w.writeBytes(frame)
	if w.buffer = frame[:0]; cap(frame) > maxIdleBuffer {
		w.buffer = nil
	}
	return err
}

// rotateLocked creates a new log, and batches go to it. A log with a gap continues no other log.
func (j *Journal) rotateLocked(gap bool) error { //nolint:revive // both callers decide it from the state
	h := newHeader(kindLog, j.nextGen)
	j.nextGen++ // also after an error: a half-made file may be in the way
	if !gap {
		h.PrevGen, h.PrevEnd = j.chain.lastGen, j.chain.lastEnd
		if j.writer != nil {
			h.PrevGen, h.PrevEnd = j.writer.gen, uint64(j.writer.size)
		}
	}
	w, err := j.createFile(logName(h.Gen), h)
	if err != nil {
		return err
	}
	if old := j.writer; old != nil {
		j.retired = append(j.retired, old)
		j.base.logs++
		j.base.log += old.size
	}
	j.writer, j.dirNew = w, true
	j.wakeSync.Send()
	return nil
}
