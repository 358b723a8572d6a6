// Package estimate predicts the time to first token (TTFT) of a request on each server of a pool.
//
// A server prefills its prompts, except for their part in the KV cache, then produces the first token of each, and at the same
// time a token for every decoding request. The estimated TTFT is
//
//	base + perDecoding × decoding requests + perOther × requests of others + perToken × tokens + perPair × pairs
//
// times the slowdown of the server. The tokens are those of prompts to compute: of requests that were placed there and have no
// first token yet, and of the request itself. The pairs are each of these tokens with each one before it, in the cache or not:
// attention makes the tokens of a long context cost more. Both together are the work, in tokens without a context. For requests of other
// replicas the server's page contains their number, but not their progress: a part of them is in prefill. If a server is late, because it
// waits for KV cache or has died, its delay so far is added to its estimate.
//
//	ttft.go      the TTFT of a request on a server, from its costs and the server's load
//	learner.go   the costs, in seconds per unit, learned from first tokens; they belong to the pool, because its servers run
//	             one model
//	server.go    the state of one server: backlog, decoding requests, slowdown, completion rate
//	sequence.go  one request on a server, from its placement to its end, and the steps that first tokens belong to
//	suspect.go   servers that seem to have stopped
//	prefills.go  the requests of a server in prefill, in their order
//	batch.go     the learned batch size of a server
//	owner.go     where a prompt is, or is expected to be: prefix index, rendezvous owner
//	tokens.go    the tokens of a model's texts
//	report.go    what was expected of a prompt, and what its server reports of it
//	fit.go       how much a server keeps in its cache
//	ends.go      whether it keeps only the ends of prompts
//	reuse.go     how often prompts recur and conversations continue
//	recent.go    the prompts that this replica placed
//	traffic.go   the share of the load that other replicas placed
//	constants.go every tunable number
//
// An Estimator belongs to one pool. The pick path (Measure, Lookup, Prompt.Estimate) takes no lock, and Prompt.PlaceOn only that of the
// prefills of one server. The locks, in the order in which they are taken:
//
//	endpoint.Lease.mu        ->  prefillQueue.mu, Server.mu (one at a time)  ->  costLearner.mu
//	endpoint.Endpoint.pages  ->  batchSize.mu, loadShare.mu, tokenizers.mu, cacheFit.mu, prefixindex.Index.mu (one at a time)
//	Server.sizeMu            ->  cacheFit.mu, prefixindex.Index.mu (one at a time)
//
// Averages that several goroutines update without a lock may lose one of two concurrent values (movingAverage), and so may the
// times of Server. Such an error lasts until the next value.
package estimate
