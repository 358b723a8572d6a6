package simulation

import (
	"math/rand/v2"
	"slices"
	"time"

	"fairlead.dev/pkg/steptime"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// An Engine contains the size and speed of a model server.
type Engine struct {
	Slots       int // maximum number of running requests
	Blocks      int // of the cache
	BlockTokens int // tokens of a block
	Batch       int // maximum tokens of one step

	Law      steptime.Law // duration of a step
	Slowness float64      // factor of the duration

	Extra time.Duration // time from the end of a step to the arrival of its tokens at the client

	StaleGauges bool          // the page shows the state as of the end of the last step
	PageTime    time.Duration // time for which a page delays tokens
	PageDelay   time.Duration // the same without an effect on tokens
	Refresh     Refresh       // the page shows the state as of its last refresh, if there are refreshes
	Cache       CacheKind     // what differs from a cache of blocks
	Reports     Reports       // of cached tokens
	Fault       PageFault     // of the page
	FaultAfter  time.Duration // time of the fault since the start
	Failure     *Failure      // of answers
	HoldsBack   bool          // of a stream, only the first content comes before the end
}

// CacheKind is how a cache differs from one with as many blocks as the page says.
type CacheKind struct {
	Off       bool // nothing is kept
	Part      int  // factor by which the page claims more blocks, if above 1: layers of other kinds keep less
	Alignment int  // blocks of which a hit is a multiple, if above 1
	Ends      bool // a hit ends where a prompt ended, or left an earlier one
}

// Reports is where a server reports the cached tokens of prompts.
type Reports struct {
	Usage  bool // in the usage of answers, of which streams have one, too
	NoZero bool // usage omits a zero, as that of vLLM does
	NoPage bool // not on its page
}

// Refresh is the time between two refreshes of a page.
type Refresh struct {
	Interval, PerRequest time.Duration
}

// A Failure is what a server answers in place of an answer that it has to compute.
type Failure struct {
	Response request.ResponseHeaders
	Body     string
	Cut      bool          // the response does not end
	Silent   bool          // there is no response, and the client goes
	Stalls   bool          // the response goes on with nothing, until the client goes
	Unclear  bool          // the carrier cannot tell whether the client has gone, or the server
	Every    int           // the server fails each request with a multiple of this number
	After    time.Duration // from the request to its failure
	From     time.Duration // when the server begins to fail
}

// A PageFault is a way in which a metrics page becomes useless.
type PageFault string

// The faults of pages.
const (
	Hangs  PageFault = "hangs"  // it is never answered
	Fails  PageFault = "fails"  // the answer is an error
	Idle   PageFault = "idle"   // it shows no requests and an empty cache
	Frozen PageFault = "frozen" // it does not change any more
)

// job is one request on one server.
type job struct {
	*arrival

	watcher watcher

	first, done time.Duration // times of its first and its last token, 0 before them
	hit         int           // tokens of the prompt that were in the cache

	prompted   int // uncomputed tokens of the prompt
	answer     int // remaining tokens of the answer
	chunk      int // prompt tokens in the current step, -1 for a token of the answer
	need       int // blocks that it does not share with others, as of its arrival
	heldBlocks []int32
}

// watcher is notified of a job's progress.
type watcher interface {
	onFirstToken(j *job)
	onMoreTokens(j *job) // with another token of a stream, which the gateway has
	onEnd(j *job)
	onServerLost(j *job) // together with its server
}

// setWork sets the work for a job with cached blocks of its prompt.
func (j *job) setWork(blocks int) {
	j.hit = blocks * j.blockTokens
	j.prompted, j.answer = j.prompt-j.hit, j.out
}

// blockMemory contains the blocks of a batch's requests.
type blockMemory interface {
	// reserveBlocks reserves blocks for a job, or returns false.
	reserveBlocks(j *job) bool
	releaseBlocks(j *job)
}

// batch schedules a server's work: continuous batching with chunked prefill, first come first served. It is a state machine:
// each step is planned, then finished at its end.
type batch struct {
	Engine

	noise *rand.Rand // of the law; nil in a forecast, which cannot know it

	waiting, running []*job
	waitingAtStart   int // jobs that had to wait when the current step began
	stepping         bool
	end              time.Duration // of the current step
}

// startStep plans a step, if there is work.
func (b *batch) startStep(now time.Duration, m blockMemory) {
	for len(b.waiting) > 0 && len(b.running) < b.Slots && m.reserveBlocks(b.waiting[0]) {
		b.running = append(b.running, b.waiting[0])
		b.waiting = b.waiting[1:]
	}
	if b.stepping = len(b.running) > 0; !b.stepping {
		return
	}
	b.waitingAtStart = len(b.waiting)
	took := b.Law.Time(b.planStep())
	factor := b.Slowness
	if b.noise != nil {
		factor *= b.Law.Vary(b.noise)
	}
	b.end = now + time.Duration(factor*float64(took))
}

// planStep decides the content of the step: a token of each decoding request, and prompts in the order of their arrival.
func (b *batch) planStep() steptime.Step {
	var step steptime.Step
	for _, j := range b.running {
		if j.chunk = -1; j.prompted == 0 {
			step.Decode(j.prompt + j.out - j.answer)
		}
	}
	budget := b.Batch - step.Sequences
	for _, j := range b.running {
		if j.prompted > 0 {
			j.chunk = min(j.prompted, max(0, budget-step.Prompt))
			step.Prefill(j.prompt-j.prompted, j.chunk)
		}
	}
	return step
}

// endStep ends the current step. It returns the jobs whose answer began with it, and those whose answer ended.
func (b *batch) endStep(m blockMemory) (began, ended []*job) {
	b.running = slices.DeleteFunc(b.running, func(j *job) bool {
		if j.chunk >= 0 {
			if j.prompted -= j.chunk; j.prompted > 0 {
				return false
			}
			j.first = b.end + b.Extra
			began = append(began, j)
		}
		if j.answer--; j.answer > 0 {
			return false
		}
		j.done = b.end + b.Extra
		m.releaseBlocks(j)
		ended = append(ended, j)
		return true
	})
	return began, ended
}

// withJob returns a copy of the batch with another job, to simulate the future.
func (b *batch) withJob(more *job) batch {
	next := *b
	next.noise = nil
	next.running, next.waiting = copyJobs(b.running), append(copyJobs(b.waiting), more)
	return next
}

func copyJobs(jobs []*job) []*job {
	values, copied := make([]job, len(jobs)), make([]*job, len(jobs), len(jobs)+1)
	for i, j := range jobs {
		values[i] = *j
		copied[i] = &values[i]
	}
	return copied
}

// freeBlocks is the memory of a simulated batch: the number of blocks without their identity.
type freeBlocks struct {
	batch *batch
	free  int
}

func (r *freeBlocks) reserveBlocks(j *job) bool {
	if j.need > r.free && len(r.batch.running) > 0 {
		return false
	}
	r.free -= j.need
	return true
}

func (r *freeBlocks) releaseBlocks(j *job) { r.free += j.need }
