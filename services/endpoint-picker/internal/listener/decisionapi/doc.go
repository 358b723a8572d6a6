// Package decisionapi serves picks over HTTP, for load balancers that can call HTTP but not ext_proc. A load balancer asks for
// the endpoint of each request, sends the request there itself, and reports what became of it.
//
//	POST /v1/pick      a request, or a digest of its prompt  ->  endpoints, best first, and an id
//	POST /v1/outcome   the id and an event                   ->  nothing
//
// A pick starts a request.Context, which is open until the outcome of the pick:
//
//	event         methods of the request.Context                              then
//	first_token   OnResponseHeaders, OnFirstToken                             the time limit starts again
//	completed     OnResponseHeaders, OnFirstToken if its time is given,       the lease is released
//	              OnResponseEnd, EndRequest
//	failed        OnResponseHeaders with an error, OnResponseEnd, EndRequest  the lease is released
//	aborted       EndRequest                                                  released after a first token, else abandoned
//	(none)        EndRequest, after the time limit                            as for aborted
//
// Callers are not trusted with more than their own picks: an id has 128 random bits, an outcome reaches the pick of its id
// only, and can name no endpoint that the pick did not offer. All input is bounded. Connections, calls and open picks count for
// their clients in the ledger that all listeners share (package limits), and a client beyond its share gets 429. It can still
// report outcomes, which return what its picks hold.
//
// Picks are in the memory of one replica. Its answer says at which address the replica receives the outcome.
package decisionapi
