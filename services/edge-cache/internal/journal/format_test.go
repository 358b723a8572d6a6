package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// memoryFile is a file for the parser.
type memoryFile struct{ *bytes.Reader }

func (memoryFile) Write([]byte) (int, error) { return 0, errors.New("read only") }
func (memoryFile) Sync() error               { return nil }
func (memoryFile) Close() error              { return nil }
func (f memoryFile) Size() (int64, error)    { return f.Reader.Size(), nil }
func (f memoryFS) Open(string) (File, error) { return memoryFile{bytes.NewReader(f.content)}, nil }
func (memoryFS) Create(string) (File, error) { return nil, errors.New("read only") }
func (memoryFS) Rename(string, string) error { return errors.New("read only") }
func (memoryFS) Remove(string) error         { return errors.New("read only") }
func (f memoryFS) List() ([]string, error)   { return f.names, nil }
func (memoryFS) SyncDir() error              { return nil }
func (memoryFS) Lock() (func() error, error) { return func() error { return nil }, nil }

// memoryFS has the same content under each of its names.
type memoryFS struct {
	content []byte
	names   []string
}

// writeFile encodes batches of records.
func writeFile(h header, keys Keys, batches ...[]Record) []byte {
	var out bytes.Buffer
	if len(keys) > 0 {
		h.Sealed, h.KeyID = true, keys.currentID()
	}
	codec, err := newFrameCodec(&h, keys)
	if err != nil {
		panic(err)
	}
	out.Write(h.encodeHeader())
	for _, batch := range batches {
		frame := make([]byte, frameHeader, 4<<10)
		for i := range batch {
			frame = appendRecord(frame, &batch[i])
		}
		out.Write(codec.sealFrame(frame, flagCommit))
	}
	return out.Bytes()
}

var someBatches = [][]Record{
	{{Type: 1, Key: "a", Value: []byte("1")}, {Type: 2, Key: "", Value: []byte{}}},
	{{Type: 1, Key: "a"}},
}

// TestHeaderLayout compares the bytes of a header with those that caches of earlier versions have on their disks.
func TestHeaderLayout(t *testing.T) {
	t.Parallel()
	h := newHeader(kindLog, 0x0102030405060708)
	h.Sealed, h.PrevGen, h.PrevEnd, h.KeyID = true, 7, 68, keyID{1, 2, 3, 4, 5, 6, 7, 8}
	want := append([]byte("FLEDGEJ\n"), 1, 0, 2, 1, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 7, 0, 0, 0, 0, 0, 0, 0, 68, 0, 0, 0, 0, 0, 0, 0)
	want = append(append(want, h.KeyID[:]...), h.Salt[:]...)
	want = binary.LittleEndian.AppendUint32(want, crc32.Checksum(want, crc32.MakeTable(crc32.Castagnoli)))
	assert.Equal(t, want, h.encodeHeader())
	assert.Len(t, want, headerSize)
	got, err := decodeHeader(want)
	require.NoError(t, err)
	assert.Equal(t, h, got)
}

// FuzzFile reads any content as a log and as a snapshot: it must not panic, must not take more memory than the content justifies, and what
// it reads must survive being written again.
func FuzzFile(f *testing.F) {
	keys := Keys{bytes.Repeat([]byte{7}, keySize)}
	f.Add(writeFile(newHeader(kindLog, 1), nil, someBatches...))
	f.Add(writeFile(newHeader(kindLog, 1), keys, someBatches...))
	f.Add(writeFile(newHeader(kindSnapshot, 1), nil, someBatches...))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, content []byte) {
		fs := memoryFS{content: content, names: []string{logName(1), snapshotName(1), logName(2)}}
		j, err := Open(fs, Options{Keys: keys})
		if err != nil {
			require.ErrorIs(t, err, ErrKey)
			return
		}
		var batch []Record
		require.NoError(t, j.Replay(func(r Record) error {
			batch = append(batch, Record{Type: r.Type, Key: r.Key, Value: bytes.Clone(r.Value)})
			return nil
		}))
		again, err := Open(memoryFS{content: writeFile(newHeader(kindLog, 1), keys, batch), names: []string{logName(1)}},
			Options{Keys: keys})
		require.NoError(t, err)
		n := 0
		require.NoError(t, again.Replay(func(r Record) error {
			require.Equal(t, batch[n].Value == nil, r.Value == nil)
			require.Equal(t, batch[n].Key, r.Key)
			require.True(t, bytes.Equal(batch[n].Value, r.Value))
			n++
			return nil
		}))
		require.Equal(t, len(batch), n)
	})
}

// FuzzRecords decodes any payload, past the checksums.
func FuzzRecords(f *testing.F) {
	for _, batch := range someBatches {
		var b []byte
		for i := range batch {
			b = appendRecord(b, &batch[i])
		}
		f.Add(b)
	}
	f.Add([]byte{1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, payload []byte) {
		var again []byte
		err := decodeRecords(payload, func(r Record) error {
			require.NoError(t, r.validate())
			again = appendRecord(again, &r)
			return nil
		})
		if err != nil {
			require.ErrorIs(t, err, errBadRecord)
			return
		}
		assert.LessOrEqual(t, len(again), len(payload), "lengths can be written longer than needed, not shorter")
	})
}

// TestDamagedLength claims 16 MiB in a small file: the reader does not allocate them.
func TestDamagedLength(t *testing.T) {
	content := writeFile(newHeader(kindLog, 1), nil, someBatches...)
	content[headerSize+6] = 0xff // the third byte of the length
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	j, err := Open(memoryFS{content: content, names: []string{logName(1)}}, Options{})
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Equal(t, int64(len(content)-headerSize), j.Recovery().LostBytes)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

// TestStaleFrames puts frames of another file with the same generation behind a header, as a disk that reuses blocks can.
func TestStaleFrames(t *testing.T) {
	t.Parallel()
	one := writeFile(newHeader(kindLog, 1), nil, someBatches...)
	other := writeFile(newHeader(kindLog, 1), nil, someBatches...)
	mixed := append(bytes.Clone(one[:headerSize]), other[headerSize:]...)
	j, err := Open(memoryFS{content: mixed, names: []string{logName(1)}}, Options{})
	require.NoError(t, err)
	require.Equal(t, int64(len(mixed)-headerSize), j.Recovery().LostBytes)
}

// TestLaterVersion is a directory of a later release, after a roll-back: the cache starts empty.
func TestLaterVersion(t *testing.T) {
	t.Parallel()
	content := writeFile(newHeader(kindLog, 1), nil, someBatches...)
	content[8]++
	binary.LittleEndian.PutUint32(content[64:], crc32.Checksum(content[:64], crcTable))
	j, err := Open(memoryFS{content: content, names: []string{logName(1)}}, Options{})
	require.NoError(t, err)
	require.Equal(t, BaseEmpty, j.Recovery().Base)
	require.Contains(t, j.Recovery().Reason, "format 2, this program reads 1")
}

// TestFrameOverhead keeps the largest record within what a reader accepts.
func TestFrameOverhead(t *testing.T) {
	t.Parallel()
	r := Record{Key: string(make([]byte, MaxKey)), Value: make([]byte, MaxValue)}
	require.LessOrEqual(t, len(appendRecord(nil, &r))+sealOverhead, maxPayload)
}
