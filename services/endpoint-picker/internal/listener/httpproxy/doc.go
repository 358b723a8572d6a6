// Package httpproxy serves the requests of clients that have no gateway: plain HTTP in, the same pick as over ext_proc, and a
// reverse proxy to the picked model server. Any load balancer can be in front of it, or none.
//
// One request:
//
//	step       what happens                                        if it fails
//	admit      the client's share of open requests                 429
//	collect    the body, which the pick needs, in memory           408, 413, 429, or the client has gone
//	decide     the pick (package request)                          the pick's refusal
//	attempt    the request goes to the picked server               another attempt, or 502, 503, 504
//	relay      every piece of the response goes on at once         both connections are closed
//
// An attempt is repeated on the next server of the ranking, 3 attempts in all, if the model server cannot have begun the
// request: no byte of it was sent. Requests that may run twice (GET, HEAD, OPTIONS, TRACE, or with an Idempotency-Key) are also
// repeated if no response has come. Nothing is repeated once a response has begun: a status of 502, 503 or 504 is relayed as it
// is, and counts as a failure of its server.
//
// The package has a handler of its own on http.Transport. httputil.ReverseProxy has no place for attempts, for limits of the
// time between two pieces, or for the record of a request, so most of it would be replaced by hooks; what remains, the
// headers between two connections, is in headers.go. http.Transport keeps the connections to model servers, and upstream.go
// decides which of them may be used: see keepAlive for servers that close idle connections.
//
// What clients make the process hold counts for their addresses, in the ledger that all listeners share (package limits):
// connections and requests by what they take, headers while they arrive, and bodies. A client beyond its share gets 429, or no
// connection. Every wait for a client or a model server has a time limit.
//
// Model servers are asked over HTTP/1.1, with TLS if their endpoint says so. A WebSocket becomes a tunnel (tunnel.go); other upgrades,
// CONNECT and trailers of requests are not forwarded.
package httpproxy
