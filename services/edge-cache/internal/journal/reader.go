package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// scanResult is what a file holds.
type scanResult struct {
	header header
	good   int64 // length up to the last commit (log) or the footer (snapshot)
	size   int64 // length of the file
	footer footer
	// complete means that a snapshot has its footer.
	complete bool
	// damage says why reading ended before the end of the file. A log that a crash cut off has some too.
	damage error
}

// reader reads frames of one file, with a memory of one frame.
type reader struct {
	file   File
	buf    *bufio.Reader
	codec  *frameCodec
	header header
	offset int64
	size   int64
	frame  []byte
}

// openReader opens a file. With an error, it returns the size of the file as far as it is known, and nothing to close.
func (j *Journal) openReader(name string) (*reader, error) {
	file, err := j.fs.Open(name)
	if err != nil {
		return &reader{}, err
	}
	r := &reader{file: file, buf: bufio.NewReaderSize(file, 256<<10)}
	if err := r.readHeader(j.options.Keys); err != nil {
		return r, errors.Join(err, file.Close())
	}
	return r, nil
}

func (r *reader) readHeader(keys Keys) error {
	var err error
	if r.size, err = r.file.Size(); err != nil {
		return err
	}
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(r.buf, head); err != nil {
		return fmt.Errorf("%w: %w", errBadHeader, err)
	}
	if r.header, err = decodeHeader(head); err != nil {
		return err
	}
	r.offset = headerSize
	r.codec, err = newFrameCodec(&r.header, keys)
	return err
}

// readFrame returns the next frame's payload, which is valid until the next call. It returns io.EOF at the end of the file.
func (r *reader) readFrame() (payload []byte, flags uint8, err error) {
	head, err := r.buf.Peek(frameHeader)
	if len(head) == 0 && errors.Is(err, io.EOF) {
		return nil, 0, io.EOF
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errBadFrame, err)
	}
	size, err := frameSize(head)
	if err != nil || int64(frameHeader+size) > r.size-r.offset { // a damaged length must not cost memory
		return nil, 0, errBadFrame
	}
	if need := frameHeader + size; cap(r.frame) < need {
		r.frame = make([]byte, need)
	} else {
		r.frame = r.frame[:need]
	}
	if _, err := io.ReadFull(r.buf, r.frame); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errBadFrame, err)
	}
	if payload, flags, err = r.codec.openFrame(r.frame); err != nil {
		return nil, 0, err
	}
	r.offset += int64(len(r.frame))
	return payload, flags, nil
}

// scanFile verifies a file. The error is for a file that cannot be read at all: the result has its size, then.
func (j *Journal) scanFile(name string) (scanResult, error) {
	r, err := j.openReader(name)
	if err != nil {
		return scanResult{size: r.size}, err
	}
	defer r.file.Close()
	s := scanResult{header: r.header, good: headerSize, size: r.size}
	records := uint64(0)
	for !s.complete {
		payload, flags, err := r.readFrame()
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err == nil {
			err = s.checkPayload(payload, flags, &records)
		}
		if err != nil {
			s.damage = fmt.Errorf("%s at byte %d of %d: %w", name, r.offset, r.size, err)
			return s, nil
		}
		if s.complete || flags&flagCommit != 0 {
			s.good = r.offset
		}
	}
	return s, nil
}

// checkPayload checks the payload of a frame.
func (s *scanResult) checkPayload(payload []byte, flags uint8, records *uint64) error {
	if flags&flagFooter == 0 {
		return decodeRecords(payload, func(Record) error { *records++; return nil })
	}
	var err error
	s.footer, err = decodeFooter(payload)
	if err == nil && (s.header.Kind != kindSnapshot || s.footer.Records != *records) {
		err = errBadRecord
	}
	s.complete = err == nil
	return err
}

// deliverRecords calls fn for the records of a file up to a length that scan found good.
func (j *Journal) deliverRecords(name string, end int64, fn func(Record) error) error {
	r, err := j.openReader(name)
	if err != nil {
		return err
	}
	defer r.file.Close()
	for r.offset < end {
		payload, flags, err := r.readFrame()
		if err != nil {
			return fmt.Errorf("%s at byte %d changed since it was verified: %w", name, r.offset, err)
		}
		if flags&flagFooter != 0 {
			return nil
		}
		if err := decodeRecords(payload, fn); err != nil {
			return err
		}
	}
	return nil
}
