package journal_test

import (
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"

	"fairlead.dev/services/edge-cache/internal/journal"
)

// faultDisk is a directory in memory for tests of a journal: it fails, fills up, turns read-only, flips bits and loses power. The zero
// value is not usable: see newFaultDisk.
//
// It is harsher than a disk. What was not synced may be lost, torn at any byte, or have holes, in each file by itself; an fsync of a file
// says nothing about its name; operations on names that were not synced survive one by one; a failed fsync loses data for good although it
// can still be read.
type faultDisk struct {
	mu      sync.Mutex
	names   map[string]*inode
	durable map[string]*inode // names that survive a power loss
	pending []nameChange
	locked  bool

	free     int64
	bounded  bool
	readOnly bool
	syncErr  error
	sync     func() // an fsync takes as long as it; nil: no time
}

type inode struct {
	data   []byte
	synced int
	lost   [][2]int // ranges that a failed fsync dropped
}

// nameChange is an operation on names: to gets an inode, from loses its own.
type nameChange struct {
	from, to string
	node     *inode
}

// newFaultDisk returns an empty directory.
func newFaultDisk() *faultDisk {
	return &faultDisk{names: map[string]*inode{}, durable: map[string]*inode{}}
}

// SetFree bounds the space that is left. Removing files adds to it.
func (d *faultDisk) SetFree(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free, d.bounded = bytes, true
}

// SetUnbounded removes the bound of SetFree.
func (d *faultDisk) SetUnbounded() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bounded = false
}

// SetReadOnly makes every change fail with EROFS.
func (d *faultDisk) SetReadOnly(readOnly bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readOnly = readOnly
}

// FailSync makes the next fsync of a file fail, once.
func (d *faultDisk) FailSync(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncErr = err
}

// SetSync makes each fsync take as long as a function. Data written meanwhile is not part of it.
func (d *faultDisk) SetSync(sync func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sync = sync
}

// FileNames returns the names of all files, sorted.
func (d *faultDisk) FileNames() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.names))
}

// FileSize returns the length of a file.
func (d *faultDisk) FileSize(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.names[name].data)
}

// UsedBytes returns the length of all files.
func (d *faultDisk) UsedBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	total := int64(0)
	for _, node := range d.names {
		total += int64(len(node.data))
	}
	return total
}

// FlipBits changes bits of a byte.
func (d *faultDisk) FlipBits(name string, offset int, mask byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[name].data[offset] ^= mask
}

// TruncateFile shortens a file.
func (d *faultDisk) TruncateFile(name string, size int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	node := d.names[name]
	node.data = slices.Clone(node.data[:size])
	node.synced = min(node.synced, size)
}

// WriteFile replaces the content of a file, or makes it.
func (d *faultDisk) WriteFile(name string, content []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	node := &inode{data: slices.Clone(content), synced: len(content)}
	d.names[name], d.durable[name] = node, node
}

// ReadFile returns a copy of a file.
func (d *faultDisk) ReadFile(name string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.names[name].data)
}

// Clone returns a disk with the same files, all of them durable. It is what a killed process leaves.
func (d *faultDisk) Clone() *faultDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := newFaultDisk()
	for name, node := range d.names {
		c.names[name] = &inode{data: slices.Clone(node.data), synced: len(node.data)}
	}
	c.durable = maps.Clone(c.names)
	return c
}

// PowerLoss returns what a power loss now could leave, one of many outcomes.
func (d *faultDisk) PowerLoss(random *rand.Rand) *faultDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := maps.Clone(d.durable)
	for _, change := range d.pending {
		if random.IntN(2) == 0 {
			change.applyTo(names)
		}
	}
	c := newFaultDisk()
	for name, node := range names {
		c.names[name] = node.afterPowerLoss(random)
	}
	c.durable = maps.Clone(c.names)
	return c
}

// sector is the unit that a disk writes or does not write.
const sector = 512

func (n *inode) afterPowerLoss(random *rand.Rand) *inode {
	data := slices.Clone(n.data)
	if unsynced := len(data) - n.synced; unsynced > 0 {
		data = data[:n.synced+random.IntN(unsynced+1)]
		if random.IntN(2) == 0 {
			for at := n.synced; at < len(data); at = (at/sector + 1) * sector {
				if random.IntN(3) == 0 {
					clear(data[at:min((at/sector+1)*sector, len(data))])
				}
			}
		}
	}
	for _, r := range n.lost {
		if r[0] < len(data) {
			clear(data[r[0]:min(r[1], len(data))])
		}
	}
	return &inode{data: data, synced: len(data)}
}

func (c nameChange) applyTo(names map[string]*inode) {
	if c.from != "" {
		delete(names, c.from)
	}
	if c.to != "" {
		names[c.to] = c.node
	}
}

func (d *faultDisk) changeName(c nameChange) {
	c.applyTo(d.names)
	d.pending = append(d.pending, c)
}

// Open implements journal.FS.
func (d *faultDisk) Open(name string) (journal.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	node, ok := d.names[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
	}
	return &faultFile{disk: d, node: node}, nil
}

// Create implements journal.FS.
func (d *faultDisk) Create(name string) (journal.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkWritable("create", name); err != nil {
		return nil, err
	}
	if _, ok := d.names[name]; ok {
		return nil, &fs.PathError{Op: "create", Path: name, Err: syscall.EEXIST}
	}
	node := &inode{}
	d.changeName(nameChange{to: name, node: node})
	return &faultFile{disk: d, node: node}, nil
}

// Rename implements journal.FS.
func (d *faultDisk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkWritable("rename", from); err != nil {
		return err
	}
	node, ok := d.names[from]
	if !ok {
		return &fs.PathError{Op: "rename", Path: from, Err: syscall.ENOENT}
	}
	d.changeName(nameChange{from: from, to: to, node: node})
	return nil
}

// Remove implements journal.FS.
func (d *faultDisk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkWritable("remove", name); err != nil {
		return err
	}
	node, ok := d.names[name]
	if !ok {
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOENT}
	}
	d.free += int64(len(node.data))
	d.changeName(nameChange{from: name})
	return nil
}

// List implements journal.FS.
func (d *faultDisk) List() ([]string, error) { return d.FileNames(), nil }

// SyncDir implements journal.FS.
func (d *faultDisk) SyncDir() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.checkWritable("fsync", "."); err != nil {
		return err
	}
	d.durable, d.pending = maps.Clone(d.names), nil
	return nil
}

// Lock implements journal.FS.
func (d *faultDisk) Lock() (func() error, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locked {
		return nil, journal.ErrLocked
	}
	d.locked = true
	return func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.locked = false
		return nil
	}, nil
}

func (d *faultDisk) checkWritable(op, name string) error {
	if d.readOnly {
		return &fs.PathError{Op: op, Path: name, Err: syscall.EROFS}
	}
	return nil
}

type faultFile struct {
	disk   *faultDisk
	node   *inode
	offset int
	closed bool
}

func (f *faultFile) Read(b []byte) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.offset >= len(f.node.data) {
		return 0, io.EOF
	}
	n := copy(b, f.node.data[f.offset:])
	f.offset += n
	return n, nil
}

func (f *faultFile) Write(b []byte) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.closed {
		return 0, fs.ErrClosed
	}
	if err := f.disk.checkWritable("write", ""); err != nil {
		return 0, err
	}
	n := len(b)
	if f.disk.bounded {
		n = int(min(int64(n), max(f.disk.free, 0)))
		f.disk.free -= int64(n)
	}
	f.node.data = append(f.node.data, b[:n]...)
	if n < len(b) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (f *faultFile) Sync() error {
	f.disk.mu.Lock()
	target, sync, err := len(f.node.data), f.disk.sync, f.disk.syncErr
	if f.closed {
		err = fs.ErrClosed
	} else {
		f.disk.syncErr = nil
	}
	f.disk.mu.Unlock()
	if sync != nil {
		sync()
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err != nil {
		f.node.lost = append(f.node.lost, [2]int{f.node.synced, target})
	}
	f.node.synced = max(f.node.synced, target)
	return err
}

func (f *faultFile) Size() (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return int64(len(f.node.data)), nil
}

func (f *faultFile) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	return nil
}
