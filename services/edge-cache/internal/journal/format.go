package journal

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// A file is a header and frames. Numbers are little-endian.
//
//	header  0 magic   8 version  10 kind  11 sealed  12 zero  16 generation  24 predecessor  32 its end
//	        40 key id  48 salt  64 CRC of what precedes
//	frame   0 CRC of what follows, seeded with the salt   4 length of payload   8 number, from 0   16 flags  17 zero   20 payload
//	payload records: op (1)  type (2)  length of key (uvarint)  key  length of value (uvarint)  value;
//	        encrypted with AES-256-GCM if sealed in the header is 1
//
// The salt is random: frames of another file, left behind in the blocks of the disk or copied, do not have the right CRC. A file has a key
// of its own, derived from the salt, and a frame's number is its nonce: no nonce serves twice, because no process appends to a file that it
// did not create.
const (
	magic          = "FLEDGEJ\n"
	headerSize     = 68
	frameHeader    = 20
	saltSize       = 16
	targetFrame    = 1 << 20
	maxPayload     = MaxValue + MaxKey + recordOverhead + sealOverhead
	recordOverhead = 1 + 2 + 2*binary.MaxVarintLen32
	sealOverhead   = 16
)

const (
	kindSnapshot uint8 = 1
	kindLog      uint8 = 2
)

// Operations of records.
const (
	opPut    uint8 = 1
	opDelete uint8 = 2
)

const (
	// flagCommit ends a batch of a log.
	flagCommit uint8 = 1
	// flagFooter ends a snapshot: its payload is a footer, not records.
	flagFooter uint8 = 2
)

var (
	crcTable = crc32.MakeTable(crc32.Castagnoli)

	errBadHeader = errors.New("header is damaged")
	errNewer     = errors.New("written by a later version")
	errBadFrame  = errors.New("frame is damaged")
	errBadRecord = errors.New("record is malformed")
)

// header begins a file: the fields in the order of the file, and then a CRC.
type header struct {
	Magic   [len(magic)]byte
	Version uint16
	Kind    uint8
	Sealed  bool
	_       uint32
	Gen     uint64
	// PrevGen and PrevEnd say what a log continues: the log of that generation, up to that length. PrevGen is 0 for a log that continues
	// none, which therefore only counts on top of the snapshot of its own generation.
	PrevGen, PrevEnd uint64
	KeyID            keyID
	Salt             [saltSize]byte
}

func newHeader(kind uint8, gen uint64) header {
	h := header{Magic: [len(magic)]byte([]byte(magic)), Version: FormatVersion, Kind: kind, Gen: gen}
	_, _ = rand.Read(h.Salt[:]) // it never fails: crypto/rand ends the program instead
	return h
}

func (h *header) encodeHeader() []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, h) // all fields have a fixed size
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crcTable))
}

func decodeHeader(b []byte) (header, error) {
	var h header
	n, err := binary.Decode(b, binary.LittleEndian, &h)
	switch {
	case err != nil, len(b) < headerSize, string(h.Magic[:]) != magic,
		binary.LittleEndian.Uint32(b[n:]) != crc32.Checksum(b[:n], crcTable):
		return h, errBadHeader
	case h.Version != FormatVersion:
		return h, fmt.Errorf("%w: format %d, this program reads %d", errNewer, h.Version, FormatVersion)
	}
	return h, nil
}

// footer ends a snapshot. While the snapshot was written, batches went to the log of its generation, and some of its values are theirs: the
// snapshot is a state of one moment only together with the log up to LogEnd.
type footer struct {
	Records uint64
	LogEnd  uint64
}

func decodeFooter(b []byte) (footer, error) {
	var f footer
	if n, err := binary.Decode(b, binary.LittleEndian, &f); err != nil || n != len(b) {
		return footer{}, errBadRecord
	}
	return f, nil
}

// frameCodec turns payloads into frames of one file and back.
type frameCodec struct {
	seed uint32
	aead cipher.AEAD // nil: not encrypted
	next uint64      // number of the next frame
}

func newFrameCodec(h *header, keys Keys) (*frameCodec, error) {
	c := &frameCodec{seed: crc32.Checksum(h.Salt[:], crcTable)}
	if !h.Sealed {
		return c, nil
	}
	aead, err := keys.fileCipher(h)
	if err != nil {
		return nil, err
	}
	c.aead = aead
	return c, nil
}

func (c *frameCodec) frameNonce() []byte {
	return binary.LittleEndian.AppendUint64(make([]byte, 4, 12), c.next)
}

// sealFrame completes a frame in place. frame has frameHeader free bytes, then the payload, then a capacity for sealOverhead more bytes.
func (c *frameCodec) sealFrame(frame []byte, flags uint8) []byte {
	head := frame[:frameHeader]
	clear(head)
	size := len(frame) - frameHeader
	if c.aead != nil {
		size += c.aead.Overhead()
	}
	binary.LittleEndian.PutUint32(head[4:], uint32(size))
	binary.LittleEndian.PutUint64(head[8:], c.next)
	head[16] = flags
	if c.aead != nil {
		frame = frame[:frameHeader+len(c.aead.Seal(frame[frameHeader:frameHeader], c.frameNonce(), frame[frameHeader:], head[4:]))]
	}
	binary.LittleEndian.PutUint32(head, crc32.Update(c.seed, crcTable, frame[4:]))
	c.next++
	return frame
}

// frameSize reads the length of the payload from a frame's header; the CRC is checked later.
func frameSize(head []byte) (int, error) {
	size := binary.LittleEndian.Uint32(head[4:])
	if size > maxPayload {
		return 0, errBadFrame
	}
	return int(size), nil
}

// openFrame checks a frame and returns its payload, which shares the memory of frame.
func (c *frameCodec) openFrame(frame []byte) (payload []byte, flags uint8, err error) {
	if binary.LittleEndian.Uint32(frame) != crc32.Update(c.seed, crcTable, frame[4:]) || binary.LittleEndian.Uint64(frame[8:]) != c.next {
		return nil, 0, errBadFrame
	}
	payload, flags = frame[frameHeader:], frame[16]
	if c.aead != nil {
		if payload, err = c.aead.Open(payload[:0], c.frameNonce(), payload, frame[4:frameHeader]); err != nil {
			return nil, 0, errBadFrame
		}
	}
	c.next++
	return payload, flags, nil
}

func appendRecord(b []byte, r *Record) []byte {
	op := opPut
	if r.Value == nil {
		op = opDelete
	}
	b = append(b, op)
	b = binary.LittleEndian.AppendUint16(b, r.Type)
	b = binary.AppendUvarint(b, uint64(len(r.Key)))
	b = append(b, r.Key...)
	b = binary.AppendUvarint(b, uint64(len(r.Value)))
	return append(b, r.Value...)
}

// decodeRecords calls fn for each record of a payload. Values share its memory.
func decodeRecords(b []byte, fn func(Record) error) error {
	for len(b) > 0 {
		if len(b) < 3 {
			return errBadRecord
		}
		op, r := b[0], Record{Type: binary.LittleEndian.Uint16(b[1:])}
		key, rest, err := decodeBytes(b[3:], MaxKey)
		if err != nil {
			return err
		}
		if r.Value, b, err = decodeBytes(rest, MaxValue); err != nil {
			return err
		}
		r.Key = string(key)
		switch {
		case op == opDelete && len(r.Value) == 0:
			r.Value = nil
		case op != opPut:
			return errBadRecord
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

func decodeBytes(b []byte, limit uint64) (value, rest []byte, err error) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > limit || size > uint64(len(b)-n) {
		return nil, nil, errBadRecord
	}
	end := n + int(size)
	return b[n:end:end], b[end:], nil
}

const (
	snapshotPrefix = "snapshot-"
	logPrefix      = "log-"
	tmpSuffix      = ".tmp"
)

func snapshotName(gen uint64) string { return fmt.Sprintf("%s%016x", snapshotPrefix, gen) }

func logName(gen uint64) string { return fmt.Sprintf("%s%016x", logPrefix, gen) }

// parseName returns the generation of a name that snapshotName or logName made, and 0 for any other name.
func parseName(name, prefix string) uint64 {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok || len(digits) != 16 {
		return 0
	}
	gen, err := strconv.ParseUint(digits, 16, 64)
	if err != nil || digits != strings.ToLower(digits) {
		return 0
	}
	return gen
}
