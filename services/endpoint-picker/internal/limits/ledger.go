package limits

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
)

// A Resource is something that clients use and that the process has little of.
type Resource uint8

// The resources.
const (
	Connections Resource = iota // of gateways; those of other clients count as the bytes that they take
	Streams                     // open requests
	Bytes                       // held for clients
	Parked                      // the part of Bytes that is held until the client makes another call. It has no limit of its own
	resourceCount
)

// reserve is the part of its share of bytes that a client can use although it is beyond its share by what it has parked: an eighth. Without
// it, the client could not make the calls that return what it has parked.
const reserve = 8

// Reasons for refusals, as clients see them.
var (
	// ErrTooManyStreams means that the limit of open streams is exceeded, and the client has more than its share.
	ErrTooManyStreams = errors.New("too many open requests")
	// ErrTooManyBytes means that the limit of bytes is exceeded, and the client holds more than its share.
	ErrTooManyBytes = errors.New("too many bytes of requests in memory")
)

// Limits are the limits for all clients together; 0 for no limit.
type Limits struct {
	Connections, Streams, Bytes int
}

// A Ledger contains the accounts of all clients. It is safe for concurrent use.
type Ledger struct {
	limits [resourceCount]fairLimit

	mu       sync.Mutex // guards the following, and Account.holders
	accounts map[netip.Addr]*Account
}

// NewLedger returns a Ledger without accounts.
func NewLedger(l Limits) *Ledger {
	ledger := &Ledger{accounts: map[netip.Addr]*Account{}}
	ledger.limits[Connections].limit = int64(l.Connections)
	ledger.limits[Streams].limit = int64(l.Streams)
	ledger.limits[Bytes].limit = int64(l.Bytes)
	return ledger
}

// OpenAccount returns the account of an address, as of connlimit.AddressOf. The holder must close it when it uses nothing of it anymore.
func (l *Ledger) OpenAccount(address netip.Addr) *Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[address]
	if a == nil {
		a = &Account{ledger: l, Address: address}
		l.accounts[address] = a
	}
	a.holders++
	return a
}

// TotalUse returns the use of a resource by all clients.
func (l *Ledger) TotalUse(r Resource) int64 { return l.limits[r].total.Load() }

// LimitOf returns the limit of a resource, 0 if the resource is not limited.
func (l *Ledger) LimitOf(r Resource) int64 { return l.limits[r].limit }

// FairLevel returns the fair level of a resource, as of a few milliseconds ago. It is called when the limit is exceeded.
func (l *Ledger) FairLevel(r Resource) int64 {
	return l.limits[r].fairLevel(func() []int64 {
		l.mu.Lock()
		defer l.mu.Unlock()
		uses := make([]int64, 0, len(l.accounts))
		for _, a := range l.accounts {
			uses = append(uses, a.CurrentUse(r))
		}
		return uses
	})
}

// An Account is what one client uses.
type Account struct {
	Address netip.Addr

	ledger  *Ledger
	used    [resourceCount]atomic.Int64
	holders int
}

// Close ends the use of the account by one holder.
func (a *Account) Close() {
	l := a.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	a.holders--
	if a.holders == 0 {
		delete(l.accounts, a.Address)
	}
}

// AddUse changes the client's use of a resource.
func (a *Account) AddUse(r Resource, n int64) {
	a.used[r].Add(n)
	a.ledger.limits[r].total.Add(n)
}

// CurrentUse returns the client's use of a resource.
func (a *Account) CurrentUse(r Resource) int64 { return a.used[r].Load() }

// IsBeyondShare reports whether a limit is exceeded and the client uses more than its fair share of it.
func (a *Account) IsBeyondShare(r Resource) bool {
	return a.ledger.limits[r].isFull() && a.CurrentUse(r) > a.ledger.FairLevel(r)
}

// TryAddUse adds n to the client's use of a resource. If the client would be beyond its share, it adds nothing and returns false.
func (a *Account) TryAddUse(r Resource, n int64) bool {
	a.AddUse(r, n)
	if a.IsBeyondShare(r) {
		a.AddUse(r, -n)
		return false
	}
	return true
}

// IsOverdrawn reports whether the client is beyond its share of bytes and must not send anything. A client that is beyond it by
// what it has parked can still make the calls that return it, within the reserve.
func (a *Account) IsOverdrawn() bool {
	return a.IsBeyondShare(Bytes) && a.CurrentUse(Bytes)-a.CurrentUse(Parked) > a.ledger.FairLevel(Bytes)/reserve
}
