package learn

import "time"

const (
	// maxPoints bounds the memory of a Learner to 10 kB. Batches from 1 to 512 in steps of pointWidth are 62 points.
	maxPoints = 64
	// maxAge is a day and some hours, so that the peak of yesterday is known when the peak of today begins.
	maxAge = 26 * time.Hour
	// halfLife is the age at which a point counts half of what a new one does. It prevails on points of changed servers within an hour or
	// two.
	halfLife = 2 * time.Hour
	// oldest bounds the loss of weight by age: the only points with large batches must outweigh the priors in the morning.
	oldest = 1.0 / 16
	// pointWidth is the difference of the logarithms of the batches of two points; sizeWidth that of requests. Narrower points
	// average less noise, wider ones hide the slope.
	pointWidth = 0.1
	sizeWidth  = 0.2
	// pointMemory is the number of samples that a point averages. With half, the noise of a sample is 1.4 times as large.
	pointMemory = 8
	// pointWeight is the number of samples that a point counts as, at most. With pointMemory, the priors never fade at a constant load,
	// and the replicas stay too many; with double, an hour at one load outweighs what the day showed at others.
	pointWeight = 64
	// maxStep bounds the change of an average by one sample, as a part of the average: one sample out of line moves a full point by
	// maxStep/pointMemory = 4 %, while a lasting change by half takes five samples more.
	maxStep = 0.35

	// exploration is the ratio of the largest batch that the law is trusted with to the largest batch seen. With 2, the episode of
	// TestEpisode takes 5 % more replicas in its median run. With 4, its worst runs lose twice as many requests: a law that was seen at a
	// few requests is believed at many.
	exploration = 3
	// smallest is the batch that a replica is trusted with at least. All servers double ITL at a batch of 10 or later.
	smallest = 4
	// certain is the number of samples that a batch must have to count as seen. With 1, each wrong sample widens the range.
	certain = 3
	// usualSlots is vLLM's default for the slots of the batch, until something shows their number. The limit on the rate bounds what
	// follows from it.
	usualSlots = 256
	// full is the part of the batch that waits when the batch is full. Arrivals also wait a moment for the next step, fewer than
	// fullWaiting requests on average.
	full        = 0.2
	fullWaiting = 0.8
	// often is the part of the batch that waits, without being full by the rule above, when a small batch is often full. Then queuing
	// is how much larger than all requests of the replica the batch may be. With 1, nothing would ever show that it is larger.
	often   = 0.12
	queuing = 1.3
	// prefillBatch is the number of prompts that a server which only prefills computes at a time in the model. The waits are then those of
	// prompts that vary by sizeSpread. With 1, waits are 1.6 times as long, as if sizes were exponential. With 4, only one in five prompts
	// of a server that computes for two thirds of the time would wait.
	prefillBatch = 2
	// prefillQueue is the number of requests that wait for a server that only prefills when it is saturated: the mean queue of one that
	// computes for 90 % of the time has as many. With half, one that computes for 80 % of the time is taken for saturated; with double, a
	// slow transfer of KV caches is learned after twice the wait.
	prefillQueue = 8
	// saturation is how much more than a saturated replica served it may serve: the average has moments without a queue.
	saturation = 1.05
	// cacheUse is the part of the KV cache that a server uses before it preempts requests: some blocks are not full.
	cacheUse = 0.95
	// cacheSeen is the part of the KV cache that must be in use to learn the size of a request from it.
	cacheSeen = 0.1

	// priorSlope is the expected growth of a decode step with each request, as a part of the step of an empty batch. Published
	// profiles have 0.006 to 0.02; long contexts raise it to 0.06. A large one is cautious: it expects more of the time at a large
	// batch. With double, a first answer is 30 % lower; with half, it exceeds the truth at long contexts.
	priorSlope = 0.06
	// priorWeight is the weight of a prior beside that of a sample.
	priorWeight = 1
	// huber is the number of standard deviations from which an error counts linearly.
	huber = 1.5
	// minDeviation bounds the standard deviation of relative errors, so that exact data do not make all else outliers.
	minDeviation = 0.03
	rounds       = 6 // of reweighting; the weights change by less than 1 % then

	// sizeSpread is the standard deviation of prompts as a part of their mean. Samples show only means; in Azure's traces of 2023
	// it is 0.96, in services with one prompt template near 0.
	sizeSpread = 0.5
	// mostTail is the part of the target for TTFT that an idle replica may take by what is assumed of the percentile: an assumption
	// does not put a target out of reach.
	mostTail = 0.8
	// maxBusy bounds the part of the time that prefills take, where the wait for them grows without bound.
	maxBusy = 0.95

	errorMemory = 32  // predictions; half makes the error jump, double keeps the errors of the first hour for the second
	priorError  = 0.5 // of a law that was never tested
	maxSamples  = 1 << 30
	pickerAge   = 10 * time.Minute

	// Bounds of plausible samples. Beyond them a sample is wrong.
	maxTime    = 1e7     // ms: 2.8 hours
	maxTokens  = 1e8     // of a request
	maxRate    = 1e6     // requests per second and replica
	maxRunning = 1 << 16 // as in package queueing
	maxWaiting = 1e9
	maxKV      = 1e12

	perSecond    = 1e3 // milliseconds
	microPerUnit = 1e6
)
