package estimate

// priorCosts are the estimate without observations: a model of 8 billion parameters on one recent GPU. A few dozen first
// tokens outweigh them.
var priorCosts = Costs{Base: 0.010, PerDecoding: 0.0001, PerOther: 0.0001, PerToken: 50e-6, HistoryHitRate: 0.5}

// Learning of costs.
const (
	// priorWeight is the weight of priorCosts in first tokens, each with priorDecoding decoding requests and priorTokens
	// uncached tokens.
	priorWeight   = 2
	priorDecoding = 10  // requests
	priorTokens   = 300 // tokens
	// priorExpected is the same for tokens expected at the owner of a prompt. It is high: a few long prompts are evidence
	// against the prior rate of 0, many short ones are not.
	priorExpected = 7000 // tokens
	// priorHistory is the same for tokens of a conversation, which are usually found.
	priorHistory = 1000 // tokens

	costMemory = 0.999 // weight that older first tokens of the pool keep after each new one: the last 1000 count
	minBase    = 0.001 // seconds; below it the least squares are noise
	minToken   = 1e-6  // seconds per token; the same

	// maxOverrun limits an observation to this multiple of the expected time. Beyond it the request waited for KV cache, not
	// for compute, which says nothing about costs.
	maxOverrun = 5
	// sameStep is the part of the base cost within which two first tokens belong to one step of the engine. Steps of the
	// same server are at least a base cost apart.
	sameStep = 0.25
	// soloOthers is the number of other replicas' requests from which the time between two steps says nothing about our
	// prompts: theirs were computed in between.
	soloOthers = 1.0
)

// Slowdown of a server.
const (
	slowdownWeight = 0.01 // of one first token in the means of observed and expected times: the last 100 count
	// slowdownPrior is the weight of a slowdown of 1, relative to those 100 first tokens.
	slowdownPrior  = 0.2
	meanTTFTWeight = 0.01 // of one first token in the mean TTFT of the pool, the unit of slowdownPrior
)

// TTFT of a request.
const (
	// progressCredit is the part of the time since the last first token that counts as progress on the next prompt, whose
	// step may have begun later.
	progressCredit = 0.75
	// crowdedCache is the share of the KV cache in use above which the free rest may be too little for one more request.
	crowdedCache = 0.8

	usualTokens       = 300  // uncached tokens of a request without observations
	usualTokensWeight = 0.01 // of one request in their mean

	completionSeconds = 5 // memory of the mean rate at which requests end on a server, in seconds
)

// Pages.
const (
	// batchPages is the number of pages with a queue that must show the same full batch: a server that is busy with a long
	// prompt also lets requests wait, and then runs all of them.
	batchPages = 10
	// batchMemory is the number of pages with a queue after which a larger batch, not seen since, is forgotten.
	batchMemory = 1000
	// maxNewRequests limits the requests that a page can add to the last page. More in one interval of scrapes is an error
	// of the page.
	maxNewRequests = 1024
	// backlogSlack is how much longer than usual the prompts of unobserved requests may be.
	backlogSlack = 2.0
	// usualBlocks is the capacity of a KV cache before its page was read: a model of 8 billion parameters on one recent GPU.
	usualBlocks = 30_000
)

// Other replicas.
const (
	shareWeight = 0.005 // of one page in the share of the load that others placed: the last few hundred pages count
	// minOthers is the least share that counts as other replicas. A lower one comes from slightly outdated pages.
	minOthers = 0.15
	// minOurs is the least share that counts as ours, so that one answer does not stand for more than ten.
	minOurs = 0.1
	// reuseWeight is the weight of one request in the means of reuse: the last 100 count.
	reuseWeight = 0.01
	// minContinuation is the share of requests that continue a conversation above which any request may start one.
	minContinuation = 0.2
	// recentPrompts is the approximate number of own prompts to remember, 256 KiB. It is a power of 2.
	recentPrompts = 1 << 15
)
