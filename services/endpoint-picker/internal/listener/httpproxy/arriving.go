package httpproxy

import (
	"errors"
	"sync"

	"fairlead.dev/services/endpoint-picker/internal/limits"
)

// usualHeader is the size of a response's headers up to which they may arrive although their client is beyond its share: one read of
// http.Transport.
const usualHeader = 4 << 10

// errBeyondShare ends a connection to a model server whose headers arrive.
var errBeyondShare = errors.New("the headers of the model server's response are long, and its client is beyond its share of memory")

// arrivingHeaders counts the headers of a response for the client that waits for them, while they arrive. A model server could otherwise
// make the process hold any number of them by never ending one.
type arrivingHeaders struct {
	mu      sync.Mutex
	account *limits.Account // nil if no headers are expected
	bytes   int64
}

// startCounting begins to count for a client.
func (h *arrivingHeaders) startCounting(a *limits.Account) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.account = a
}

// addBytes counts bytes that have arrived. An error ends the connection.
func (h *arrivingHeaders) addBytes(n int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.account == nil {
		return nil
	}
	h.bytes += int64(n)
	h.account.AddUse(limits.Bytes, int64(n)*limits.HeaderGrowth)
	if h.bytes > usualHeader && h.account.IsOverdrawn() {
		return errBeyondShare
	}
	return nil
}

// stopCounting ends the count.
func (h *arrivingHeaders) stopCounting() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.account != nil {
		h.account.AddUse(limits.Bytes, -h.bytes*limits.HeaderGrowth)
		h.account, h.bytes = nil, 0
	}
}
