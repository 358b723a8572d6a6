package estimate

// Every tunable number of the estimator: its unit, its origin, and its sensitivity.
//
// Sensitivity is the change of the mean TTFT in percent when the number is halved (½) and doubled (×2), as "one replica / two
// replicas": the geometric mean over 25 scenarios of package simulation, of which 6 follow the estimator's own model, 6 the
// realistic law, and 13 other fleets, each the median of three seeds. "none" is below 0.05 in every case. Differences below
// 1 % are chance: single scenarios change by up to 15 % with any number that changes choices at all. So no number is tuned to a
// percent. The largest effects are those of priorCosts, slowdownPrior and progressCredit, and long-answers with twice the
// priorCosts (two replicas: +22).
//
// For usualAnswer, maxAnswer, progressCredit, and the numbers of tokens, of pairs of them and of caches, it is that over 8 scenarios,
// each with three seeds, from a run of make bench BENCH=Sensitivity: 2 that follow the estimator's own model, 2 the realistic law, 2
// whose servers keep less than their pages say, and 2 with recorded requests. There chance is 2 %: a program that only rounds in another
// way differs by 1.2 %, with a standard error of 1.4 %.
//
// Origins:
//
//	assumed    a typical model, machine or workload, which observations replace
//	derived    follows from the other numbers, or from how servers work
//	simulated  chosen with package simulation: a flat optimum
//	guarded    a bound that normal traffic does not reach

// priorCosts are the estimate without observations: a model of 8 billion parameters on one recent GPU, in seconds (assumed).
// A few dozen first tokens outweigh them. All four times: ½ +0.6 / −0.6, ×2 +1.9 / +0.7. The hit rate
// of histories: ½ 0 / −0.1, ×2 0 / +0.5.
var priorCosts = Costs{Base: 0.010, PerDecoding: 0.0001, PerOther: 0.0001, PerToken: 50e-6, HistoryHitRate: 0.5}

// Learning of costs.
const (
	// priorWeight is the weight of priorCosts in first tokens, each with priorDecoding decoding requests and priorTokens
	// uncached tokens (simulated). ½ +1.4 / −1.2, ×2 +0.7 / −1.2.
	priorWeight   = 2
	priorDecoding = 10  // requests (assumed). ½ +0.3 / −0.1, ×2 +1.3 / +0.2
	priorTokens   = 300 // tokens (assumed). ½ +1.3 / −0.3, ×2 +0.6 / −0.2
	// priorExpected is the same for tokens expected at the owner of a prompt (simulated). It is high: a few long prompts are
	// evidence against the prior rate of 0, many short ones are not. ½ 0 / −0.3, ×2 0 / +0.3.
	priorExpected = 7000 // tokens
	// priorHistory is the same for tokens of a conversation, which are usually found (simulated). ½ 0 / −0.2, ×2 0 / +0.1.
	priorHistory = 1000 // tokens

	// priorPairs is the same for pairs of tokens (simulated): those of a prompt of 7700 tokens. A pool without long prompts learns
	// nothing of them. ½ +1.5 / +1.2, ×2 +1.2 / −0.8.
	priorPairs = 3e7
	// maxPair limits the cost of a pair of tokens, in tokens (guarded): at 1000 tokens of context, a token costs twice as much as
	// without. ½ +0.6 / −0.6, ×2 −0.3 / −0.4.
	maxPair = 1e-3

	// costMemory is the weight that older first tokens of the pool keep after each new one: the last 1000 count (simulated).
	// Half as many +0.4 / +0.2, twice as many +0.5 / +0.5.
	costMemory = 0.999
	minBase    = 0.001 // seconds (guarded): below it the least squares are noise. ½ +0.1 / 0, ×2 +0.1 / 0
	minToken   = 1e-6  // seconds per token (guarded): the same
	// learnedCosts is the number of first tokens from which metrics show costs as learned (derived: the prior has 4 % of their
	// weight). No pick depends on it.
	learnedCosts = 50

	// maxOverrun limits an observation to this multiple of the expected time (simulated). Beyond it the request waited for KV
	// cache, not for compute, which says nothing about costs. ½ −0.2 / +1.1, ×2 −0.3 / +0.2.
	maxOverrun = 5
	// sameStep is the part of the base cost within which two first tokens belong to one step of the engine (derived: steps of
	// a server are at least a base cost apart, and tokens of one step come within a fraction of it). ½ none, ×2 0 / −0.3.
	sameStep = 0.25
	// soloOthers is the number of other replicas' requests from which the time between two steps says nothing about our
	// prompts (derived: theirs may have been computed in between). ½ none, ×2 0 / −0.7.
	soloOthers = 1.0
)

// Slowdown of a server.
const (
	// slowdownWeight is the weight of one first token in the means of observed and expected times: the last 100 count
	// (simulated). ½ +0.4 / +0.7, ×2 +0.8 / −1.4.
	slowdownWeight = 0.01
	// slowdownPrior is the weight of a slowdown of 1, relative to those 100 first tokens (simulated). ½ +2.2 / −1.0,
	// ×2 −0.2 / +1.3: with less, chance looks like slowness.
	slowdownPrior = 0.2
	// meanTTFTWeight is the weight of one first token in the mean TTFT of the pool, the unit of slowdownPrior (derived: as
	// slowdownWeight). ½ +0.1 / −0.2, ×2 −0.1 / −0.1.
	meanTTFTWeight = 0.01
)

// TTFT of a request.
const (
	// progressCredit is the part of the time since the last first token that counts as progress on the next prompt, whose
	// step may have begun later (simulated). ½ −1.7 / −0.2, 1.0 +4.0 / +4.5.
	progressCredit = 0.75
	// delayWeight is the part of the delay of others that counts beside the time to the first token of a request (simulated). It trades
	// first tokens for whole answers. Over 42 scenarios, the mean TTFT to the greedy policy, and the mean time of whole answers to the
	// policy lmetric: 0 1.06 / 1.06, 0.05 1.02 / 1.00, 0.1 1.03 / 0.98, 0.2 1.04 / 0.98, 0.4 1.08 / 0.98. Over six fleets with recorded
	// requests, the worst: 0.07 1.08 / 1.16, 0.1 1.05 / 1.09, 0.12 1.14 / 1.14, 0.15 1.10 / 1.05, 0.3 1.14 / 1.06.
	delayWeight = 0.1

	// prefillShareSeconds is the memory of the share of its time that a server spends on prompts (simulated), and maxPrefillShare the most
	// that counts: at 0.8, an answer takes five times as long as without. Over 6 fleets with 15 % long prompts at 80 and 90 % of the load,
	// the mean TTFT and the 99th percentile of whole answers to the greedy policy: without the share 1.07 / 1.10, at most 0.6 1.09 / 1.05,
	// 0.8 1.07 / 0.97, 0.95 1.07 / 0.97. Where prompts fill all servers, more than 0.8 would cost cache hits: over 4 fleets whole answers
	// took 0.87 without the share, 0.95 with at most 0.8, and 1.03 to 1.27 with 0.95.
	prefillShareSeconds = 5.0
	maxPrefillShare     = 0.8

	// usualAnswer is the tokens of an answer without observations (assumed). ½ −0.6 / +1.3, ×2 −0.2 / −0.7.
	usualAnswer = 160
	maxAnswer   = 100_000 // tokens of an answer (guarded): more is an error of the server. ½ none, ×2 none.

	usualTokens       = 300  // uncached tokens of a request without observations (assumed). ½ 0 / −1.0, ×2 0 / −0.4
	usualTokensWeight = 0.01 // of one request in their mean: the last 100 count. ½ 0 / −0.2, ×2 0 / −0.4
)

// Memory of KV caches.
const (
	usageWeight = 0.05 // of one page in the memory in use (simulated)
	// crowdedCache is the share of a KV cache of unknown size above which the requests in a queue wait for memory (upstream: its default
	// threshold of a full endpoint).
	crowdedCache = 0.8
	leastHeld    = 0.05 // part of the memory below which its use says little (guarded)
	minUsage     = 0.02 // of the memory of the prompts (guarded): a prefix that 50 requests share
	maxUsage     = 1.5  // the same (guarded): blocks that are half empty, and answers that are twice as long as usual
	// crowdedMemory is the part of the memory from which a request may have to wait, so that its first token says nothing about costs
	// (simulated).
	crowdedMemory = 0.9
	// leavingSlack is the part of a request by which memory may be exceeded (simulated): requests differ, and a larger one may end first.
	leavingSlack = 0.75
	maxLeaving   = 256.0 // requests (guarded): a batch
	// answerTimeWeight is the weight of one answer in the time that answers take (simulated): the last 50 count.
	answerTimeWeight = 0.02
	maxLonger        = 10.0 // times the remaining time of answers that one answer counts as (guarded)
)

// Servers that have stopped. None of these numbers matters while all servers work.
const (
	// minFailing is the number of failures in a row, without a sign of work in between, from which a server is suspect (simulated): with 3,
	// clients that leave make it suspect while it works; with 12, one that fails at once gets as many requests while first tokens take 1 s.
	minFailing = 6
	// minStalled is the number of requests that must wait (guarded): one client that does not read its answer says nothing of the server.
	minStalled = 3
	// stalledGaps is the number of usual gaps between two contents after which streams have stalled (simulated). With double, a server that
	// stalls gets twice as many requests before.
	stalledGaps = 20
	usualGap    = 0.0075 // seconds, before the first gap (assumed)
	gapWeight   = 0.01   // of one gap in the mean of their squares: the last 100 count
	// stalledPrompts is the multiple of the expected time for the prompts that are there, which streams and prompts may pause beyond that
	// (simulated): servers that compute long prompts in one step look stalled with none.
	stalledPrompts = 2
	// stalledFirsts is the multiple of the usual time to the first content after which requests wait in vain (simulated).
	stalledFirsts = 1.5
	paceWeight    = 1.0 / 16 // of one time in the usual one (assumed): the last 16 count
	// workWithoutPage is the seconds after the first failure of a page from which content shows that the server works (assumed).
	workWithoutPage = 1.0
	// suspectPause is the seconds between two requests to a server that is suspect: those of the first ejection.
	suspectPause = 1.0
)

// Pages.
const (
	// batchPages is the number of pages with a queue that must show the same full batch (simulated): a server that is busy
	// with a long prompt also lets requests wait, and then runs all of them. ½ −0.2 / −0.3, ×2 +0.2 / 0.
	batchPages = 10
	// batchMemory is the number of pages with a queue after which a larger batch, not seen since, is forgotten (guarded): 100 s
	// of a queue at the usual interval. ½ none, ×2 none. An engine that restarts with a smaller batch looks too large for half
	// or twice as long.
	batchMemory = 1000
	// maxNewRequests limits the requests that a page can add to the last page (guarded). More in one interval of scrapes, of
	// 100 ms, is an error of the page: it is the usual limit of a whole batch of vLLM. ½ none, ×2 none.
	maxNewRequests = 1024
	// backlogSlack is how much longer than usual the prompts of unobserved requests may be (guarded). ½ none, ×2 none.
	backlogSlack = 2.0
	// usualBlocks is the capacity of a KV cache in blocks before its page was read (assumed: a model of 8 billion parameters on
	// one recent GPU has room for 480 000 tokens). ½ none, ×2 none: pages have it within a second.
	usualBlocks = 30_000
)

// Tokens of texts.
const (
	// ratioWeight is the weight of one long prompt in the ratio of counted to estimated tokens: the last 20 count (derived: texts of
	// a model are alike, and one count must not matter). ½ −0.7 / 0, ×2 −0.4 / +0.6.
	ratioWeight = 0.05
	// ratioTokens is the length in tokens from which a prompt has all of that weight (derived: a chat template adds dozens of
	// tokens, which are 2 % of it). ½ none, ×2 none.
	ratioTokens = 1024
	// manyWeight is the same for the prompts between two pages (simulated): what moves at both ends is a tenth of them where prompts
	// are long, so 20 such counts count. With 0.25, the ratio of recorded traffic varied by 10 %.
	manyWeight = 0.05
	// ratioPrior is the weight of the ratio without observations (derived: half a long prompt). ½ −0.8 / +0.5, ×2 −0.2 / 0.
	ratioPrior = 0.025
	// samplePrior is the same for the ratio of a sample text (derived: the sample is as long as ratioTokens, so it weighs as much as one
	// long prompt). The first long prompt leaves half of an error of the sample; with half it leaves a third, with double two thirds. ½
	// none, ×2 none: simulated servers have no samples.
	samplePrior = 0.05
	// ratioStep is the part by which the ratio must change until what was learned is converted (derived: below the error of a ratio).
	ratioStep = 0.01
	// maxSurprise is the factor by which one count may differ from what is known (guarded). It is two steps to the bounds.
	// ½ −1.5 / +0.5, ×2 none.
	maxSurprise = 2
	// maxRatio bounds the ratio: 1 to 16 bytes in a token (guarded). Every byte is a token at worst, and no vocabulary has words of
	// 16 bytes on average. ½ none, ×2 none.
	maxRatio  = 4.0
	maxPrompt = 1 << 27 // tokens (guarded): more in an answer is an error of the server. ½ none, ×2 none.
	// mostlyText is the number of tokens of texts for each other token from which a count is learned from (derived: an error of half
	// in the others is then 12 %). ½ none, ×2 none.
	mostlyText = 4
	// maxModels is the number of models with a ratio of their own (guarded): a base model and its adapters. Each has 100 bytes, and
	// its name. ½ none, ×2 none.
	maxModels = 64
)

// What servers keep in their caches.
const (
	// usualAlignment is the alignment of cached prefixes in tokens before a page has told it (upstream: vLLM's blocks on GPUs).
	// ½ none, ×2 none.
	usualAlignment = 16
	// resizePart is the part of its size by which a cache must change to be resized (simulated): learned ratios vary by some percent.
	// Without it, first tokens of recorded traffic took 1 to 2 % longer, and whole answers up to 2 %.
	resizePart   = 0.1
	maxAlignment = 1 << 16 // tokens (guarded): more is an error of the page. ½ none, ×2 none.

	// distancesPerOctave is the number of distances for each doubling, a power of 2 (derived: sizes differ by a fifth).
	// ½ −1.6 / −0.8, ×2 +1.6 / +0.2.
	distancesPerOctave = 4
	distances          = 21 * distancesPerOctave // up to 2 million blocks, 32 million tokens (derived). ½ −0.6 / −1.0, ×2 none.
	// priorHits is the evidence for the size on the page, in requests for each distance (simulated): it takes four lost prompts to
	// halve the size, and another four to halve it again. With 0.25, what moves at the ends of windows makes caches look smaller
	// than they are: the first tokens of recorded traffic took 1 to 4 % longer. With 3 the same. ½ −1.7 / −0.3, ×2 +1.3 / +0.2.
	priorHits = 1.0
	// priorFar is the same for sizes that are priorNear distances smaller, or more (simulated). With as much as priorHits, servers
	// that keep a tenth of the size, or nothing, are believed to keep more for twice as long. priorFar: ½ −0.3 / +0.3,
	// ×2 −0.3 / +0.2. priorNear: ½ −1.5 / −0.1, ×2 +0.7 / +0.6.
	priorFar  = 0.05
	priorNear = 2 * distancesPerOctave
	// fitMemory is the number of reports that evidence lasts (simulated). A larger size is tried again after about as many. With a
	// quarter of it, twice as many prompts of servers that keep nothing are expected to be cached. ½ −0.1 / +0.3, ×2 −0.3 / +0.4.
	fitMemory = 1024
	// surplusPart is the part of a prompt by which more than expected was cached, so that it counts as more (derived: above the
	// error of a learned ratio, and of a block). ½ none, ×2 none.
	surplusPart = 0.1
	// surplusKeep is what such a prompt leaves of the evidence for misses beyond the current size (simulated): seven outweigh a
	// cache that was found to keep nothing. ½ none, 1.0 none.
	surplusKeep = 0.75
	// recentWeight is the weight of one prompt in the share of expected tokens that were found (derived), and recentLost the share
	// below which a server has lost its cache: after 8 prompts in a row of which nothing was found. A client whose requests bypass
	// caches, a third of all, has so many in a row once in 6000 requests. recentWeight: ½ −0.2 / +0.4, ×2 −0.5 / +0.1. recentLost:
	// ½ −0.2 / +0.4, ×2 −0.1 / +0.4.
	recentWeight = 0.25
	recentLost   = 0.1

	// windowRequests is the number of prompts to compare with the hits on a page (simulated). With less, more of them are on the
	// other side of one end of the window. ½ +0.1 / −0.2, ×2 0 / −0.7.
	windowRequests = 32
	windowSeconds  = 10.0 // of a window with fewer requests (assumed). ½ −0.3 / −0.2, ×2 −0.2 / −0.1.
	// fewRequests is the least number in such a window (simulated): with 4 prompts of 15 000 tokens, those that are on the other
	// side of one end look like misses, and caches of half their size fit best. ½ −0.3 / −0.1, ×2 −0.4 / −0.1.
	fewRequests = 16
	maxWindow   = 64.0 // requests that one window counts for (guarded). ½ none, ×2 none.
	windowLag   = 2    // at least this part of the prompts must be on the page, else it is behind (guarded). ½ +1.0 / −0.1, ×2 −0.1 / 0.
	// noneWeight is the weight of a window without any hit (simulated), which is no chance. With 1, 7 % of the prompts of servers
	// that keep nothing are expected to be cached. ½ none, ×2 none.
	noneWeight = 4.0

	// endsMissed is the number of prompts of which nothing was found beyond the last end, so that a server keeps only ends (simulated), and
	// endsFactor how many times as many they must be as those of which all was found. Clients that bypass caches look like that, but not
	// for long. ½ none, ×2 none: the servers of these scenarios keep all.
	endsMissed = 2.5
	// endsMissedHere is endsMissed if another server of the pool keeps only ends (assumed). ½ none, ×2 none.
	endsMissedHere = 1.5
	endsFactor     = 3.0  // ½ none, ×2 none.
	endsMemory     = 32.0 // prompts of such evidence that count (assumed). ½ none, ×2 none.
	// reachKeep is what each end that is found leaves of the distance up to which misses count (assumed): the last 100 count.
	reachKeep   = 0.99
	reachFactor = 2.0 // times that distance (assumed). ½ none, ×2 none.

	// maxPending is the number of prompts on one server that are remembered as being computed (derived: a batch). Half as many take
	// some prompts for cached that are not yet. ½ none, ×2 none.
	maxPending = 32
)

// Other replicas.
const (
	// shareWeight is the weight of one page in the share of the load that others placed: the last 200 pages count (simulated).
	// ½ none, ×2 none.
	shareWeight = 0.005
	// minOthers is the least share that counts as other replicas (derived). A lower one comes from slightly outdated pages;
	// the smaller of two replicas usually has a third or more. ½ none, ×2 none.
	minOthers = 0.15
	// minOurs is the least share that counts as ours, so that one answer does not stand for more than ten (guarded). ½ none,
	// ×2 none.
	minOurs = 0.1
	// reuseWeight is the weight of one request in the means of reuse: the last 100 count (simulated). ½ 0 / −0.1, ×2 0 / −0.1.
	reuseWeight = 0.01
	// minContinuation is the share of requests that continue a conversation above which any request may begin one (derived).
	// ½ none, ×2 none: scenarios have nearly none, or nearly all.
	minContinuation = 0.2
	// recentPrompts is the approximate number of own prompts to remember, a power of 2: 256 KiB (derived: minutes of traffic).
	// ½ none, ×2 none.
	recentPrompts = 1 << 15
)
