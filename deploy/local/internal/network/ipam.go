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

// ErrNoAddress says that every pod address of the node is taken.
var ErrNoAddress = errors.New("no pod address left on this node")

// Pod addresses of a node are .2 to .254 of its range.
const (
	firstPodAddress = 2
	lastPodAddress  = 254
)

// AddressPool hands out one node's pod addresses in a ring, so that a freed one comes last. The place in the ring is kept
// in a file: after a reboot the pods that are known by old addresses never meet them in new hands.
type AddressPool struct {
	index int
	file  string

	mu    sync.Mutex
	last  int
	taken map[int]bool
}

// OpenAddressPool returns node index's pool, going on where the file says.
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

// Take hands out the next free address.
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

// save writes the file beside and renames it: a node may be killed at any moment, and must not find an empty one then.
func (p *AddressPool) save() error {
	if err := os.WriteFile(p.file+".new", []byte(strconv.Itoa(p.last)), 0o644); err != nil {
		return err
	}
	return os.Rename(p.file+".new", p.file)
}

// Give returns an address.
func (p *AddressPool) Give(ip net.IP) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, int(ip.To4()[3]))
}
