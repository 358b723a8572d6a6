// Package replicas lets the replicas of the picker know of each other's requests, so that several place them like one.
//
// Each replica serves the events of the requests that it places (estimate.Event) and reads those of all others. It hears of a
// request within about a millisecond, and counts it from then on like its own: its load, its prompt in the cache of its endpoint,
// and what its first token says about speeds.
//
//	replica A                                    replica B
//	picks -> Publisher -> Server  ---- HTTP ---> follower -> estimate.Replica -> load, index, costs
//	estimate.Replica <- follower  <--- HTTP ---- Server <- Publisher <- picks
//
// A replica only reads from addresses that its own configuration names, so nobody can send it events. If a connection ends, the
// requests of that replica are abandoned: the pages of their endpoints show them, and the rules for unknown replicas apply
// (package estimate, owner.go).
//
// # Protocol
//
// GET /v1/events?pool=TITLE answers with frames until one side closes: a server does when its pool ends. GET /v1/contents?pool=TITLE
// answers with frames of the kinds cached and occupied, which give an empty index of prefixes the contents of the sender's, and a frame of
// the kind complete. A new replica asks one other for it. frame.proto defines frames. Each frame comes after its length, a varint, and an
// event is encoded once for all readers.
//
// The reader computes when something happened from the last clock and its own, so clocks need not agree. Replicas of different
// versions of the protocol (in the header Fairlead-Replica-Protocol) tell each other nothing. Frames do not contain the version: what
// stores frames has to store the version before them. Readers skip fields that they do not know, so only a change that an older reader
// must not ignore needs a new version.
//
// # State file
//
// A picker that restarts alone hears from no other replica. A StateFile has the contents of all caches, as frames, for the next process:
// a line with the versions of the file and of the protocol, a State, a SavedCache for each endpoint (state.proto), and a checksum. It is
// written every 10 s after changes, and at the beginning and the end of the drain, until the next process has written it. The next process
// ignores a file that is damaged, larger than the limit of the index, older than 10 min, or of another version or other hashes of prompts.
// It gives an endpoint its cache before a request can come to it. An endpoint with another address or UID is another one. A server with
// lower counters of cache queries has restarted, and its cache is empty.
//
// # Bounds
//
// A reader that is slower than the events is disconnected when its part of maxPending bytes waits for it, and connects again. A server
// accepts maxReaders, of which maxReadersOfClient may have one IP address. It writes contents to a client one at a time, to maxContents
// clients at the same time, for contentsTimeout at most, and reads an index for a tenth of the time at most, however many clients ask.
// Of maxWaiting connections that wait for a request, package connlimit closes the oldest. A follower refuses frames of more than
// maxFrame bytes, and hears of at most 65 536 requests of a replica.
package replicas
