package network

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// ErrNoAddress means that every pod address of the node is in use.
var ErrNoAddress = errors.New("no pod address left on this node")

// Pod addresses of a node are .2 to .254 of its range.
const (
	firstPodAddress = 2
	lastPodAddress  = 254
)

// AddressPool allocates one node's pod addresses in a ring, so that a released address is reused last. A file stores the
// position in the ring: after a reboot, the addresses of earlier pods are not assigned to new ones.
type AddressPool struct {
	index int
	file  string

	mu    sync.Mutex
	last  int
	taken map[int]bool
}

// OpenAddressPool returns node index's pool, starting at the position in the file.
func OpenAddressPool(index int, file string) (*AddressPool, error) {
	p := &AddressPool{index: index, file: file, last: lastPodAddress, taken: map[int]bool{}}
	raw, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read address pool: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || n < firstPodAddress || n > lastPodAddress {
		return nil, fmt.Errorf("read address pool %s: %q is no pod address", filepath.Base(file), raw)
	}
	p.last = n
	return p, nil
}

// Take allocates the next free address.
func (p *AddressPool) Take() (net.IP, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range lastPodAddress - firstPodAddress + 1 {
		p.last++
		if p.last > lastPodAddress {
			p.last = firstPodAddress
		}
		if p.taken[p.last] {
			continue
		}
		if err := p.save(); err != nil {
			return nil, fmt.Errorf("write address pool: %w", err)
		}
		p.taken[p.last] = true
		return net.IPv4(10, 244, byte(p.index), byte(p.last)), nil
	}
	return nil, ErrNoAddress
}

// save writes a temporary file and renames it: a node may be killed at any time, and must not find an empty file then.
func (p *AddressPool) save() error {
	if err := os.WriteFile(p.file+".new", []byte(strconv.Itoa(p.last)), 0o644); err != nil {
		return err
	}
	return os.Rename(p.file+".new", p.file)
}

// Give releases an address.
func (p *AddressPool) Give(ip net.IP) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, int(ip.To4()[3]))
}
