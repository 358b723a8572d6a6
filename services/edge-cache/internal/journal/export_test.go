package journal

import "fmt"

// Sync returns nil when everything that was appended before the call survives a power loss.
func (j *Journal) Sync() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.closed || !j.started:
		return ErrClosed
	case j.status.Degraded:
		return fmt.Errorf("%w: %s", ErrDegraded, j.status.Reason)
	}
	return j.waitForSyncLocked(j.status.Failures)
}

// HeaderSize is the number of bytes of a header.
const HeaderSize = headerSize
