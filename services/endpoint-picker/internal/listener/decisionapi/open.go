package decisionapi

import (
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"fairlead.dev/pkg/wake"
	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// openBytes is the memory of an open pick besides its prompt and its texts: its request.Context, lease, timer and place in the table
// (1.5 KiB in TestMemoryOfOpenPicks, without the state of the estimator).
const openBytes = 2 << 10

// tokensPerByte is the number of a prompt's tokens in a byte of memory while its pick is open: the hash of a block has 8 bytes for
// 16 tokens. The memory is less for long prompts, of which the picker hashes only the beginning.
const tokensPerByte = 2

// absentAfter is the time in which a client sends its request after the pick.
const absentAfter = 2 * time.Second

// An openPick is a pick without an outcome.
type openPick struct {
	id        id
	account   *limits.Account // of its client, which may have no connection anymore
	streams   int64           // that count for it: 1 after its admission
	heldBytes int64           // bytes that count for it
	endpoints []string        // that may serve the request; the picked one first

	mu             sync.Mutex // guards what follows
	requestContext request.Context
	answered       time.Time
	expires        time.Time
	expiry         *time.Timer
	responded      bool
	isEnded        bool
}

// openPicks are the picks without an outcome. It is safe for concurrent use.
type openPicks struct {
	mu    sync.Mutex
	picks map[id]*openPick
	calls int         // that may open a pick
	fewer wake.Signal // a pick or a call has ended
}

// addPick adds a pick, and gives it an id that nobody can guess.
func (o *openPicks) addPick(p *openPick) {
	_, _ = rand.Read(p.id[:]) // it never fails
	o.mu.Lock()
	defer o.mu.Unlock()
	o.picks[p.id] = p
}

// findPick returns the pick with an id, or nil.
func (o *openPicks) findPick(i id) *openPick {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.picks[i]
}

// removePick removes a pick.
func (o *openPicks) removePick(p *openPick) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.picks, p.id)
	o.fewer.Send()
}

// startCall counts a call that may open a pick, until done is called.
func (o *openPicks) startCall() (done func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.calls--
		o.fewer.Send()
	}
}

// pendingCount returns the number of open picks, and of calls that may open one.
func (o *openPicks) pendingCount() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.picks) + o.calls
}

// listPicks returns the open picks.
func (o *openPicks) listPicks() []*openPick {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.picks))
}

// pickSize returns the memory of a pick, in bytes.
func pickSize(rc *request.Context) int64 {
	size := openBytes + rc.PromptTokens/tokensPerByte
	for _, text := range []string{rc.RequestID, rc.TraceParent, rc.Path, rc.Model, rc.Target, rc.Fairness, rc.Objective} {
		size += len(text)
	}
	return int64(size)
}

// isAbsent reports whether the model server has no request at all, by a page of metrics from after the client has sent the request. The
// caller has the lock.
func (p *openPick) isAbsent() bool {
	s := p.requestContext.Placements.AnsweringLease().Endpoint().Sample()
	return s.IsScraped && s.RequestCount() == 0 && !s.At.Before(p.answered.Add(absentAfter))
}

// releaseAccount ends the count of the pick.
func (p *openPick) releaseAccount() {
	p.account.AddUse(limits.Streams, -p.streams)
	p.account.AddUse(limits.Bytes, -p.heldBytes)
	p.account.AddUse(limits.Parked, -p.heldBytes)
	p.account.Close()
}

// dropUnneeded drops what an open pick does not need any more.
func (p *openPick) dropUnneeded() {
	rc := &p.requestContext
	p.endpoints = make([]string, len(rc.Ranking))
	for i, s := range rc.Ranking {
		p.endpoints[i] = s.Endpoint.Address()
	}
	rc.Ranking, rc.Restore, rc.Edit, rc.Set, rc.Remove, rc.Reply = nil, (*api.ModelRenamer)(nil), request.Edit{}, nil, nil, nil
}

// applyReport records a report. It reports whether the pick has ended. The caller has the lock.
func (p *openPick) applyReport(o *outcome, now time.Time) (ended bool) {
	rc := &p.requestContext
	if o.event != EventAborted && !p.responded {
		rc.OnResponseHeaders(&request.ResponseHeaders{Status: o.status, Served: o.endpoint})
		p.responded = true
	}
	switch {
	case o.hasFirst:
		rc.OnFirstToken(p.timeAfterAnswer(o.first, now))
	case o.event == EventFirstToken:
		rc.OnFirstToken(now)
	}
	if o.usage.Known {
		rc.Usage = o.usage
	}
	switch {
	case o.event == EventFirstToken:
		return false
	case o.event != EventAborted:
		rc.OnResponseEnd()
	case !p.responded && rc.FirstContent.IsZero() && !o.usage.Known: // it may never have sent the request
		rc.ReportHealth(request.Aborted)
	}
	return true
}

// timeAfterAnswer returns a time after the answer to the pick, which is not in the future.
func (p *openPick) timeAfterAnswer(seconds float64, now time.Time) time.Time {
	at := p.answered.Add(time.Duration(seconds * float64(time.Second)))
	if at.After(now) {
		return now
	}
	return at
}
