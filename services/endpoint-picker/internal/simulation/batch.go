package simulation

import (
	"math/rand/v2"
	"slices"
	"time"

	"fairlead.dev/pkg/steptime"
)

// An Engine is the size and speed of a model server.
type Engine struct {
	Slots  int // requests that run at a time
	Blocks int // of its cache
	Batch  int // tokens of one step

	Law      steptime.Law // time of a step
	Slowness float64      // factor of it

	StaleGauges bool          // the page shows the state as of the end of the last step
	PageTime    time.Duration // a page holds up tokens for so long
}

// UsualEngine returns what resembles a model of 8 billion parameters on one recent GPU.
func UsualEngine() Engine {
	return Engine{
		Slots: 48, Blocks: 4096, Batch: 2048, Law: steptime.Linear(), Slowness: 1,
	}
}

// job is one request on one server.
type job struct {
	*arrival

	watcher watcher

	first, done time.Duration // when its first and its last token came, 0 as long as they have not
	hit         int           // tokens of the prompt that were in the cache

	prompted int // tokens of the prompt that are still to be computed
	answer   int // tokens of the answer that are still to come
	chunk    int // prompt tokens of the step under way, -1 if it is one of the answer
	need     int // blocks that it does not share with others, as seen when it came
	held     []int32
}

// watcher is told how a job fares.
type watcher interface {
	began(j *job)
	ended(j *job)
	lost(j *job) // with its server
}

// expect sets what is to be done if so many blocks of the prompt are cached.
func (j *job) expect(blocks int) {
	j.hit = blocks * blockTokens
	j.prompted, j.answer = j.prompt-j.hit, j.out
}

// memory is where the requests of a batch have their blocks.
type memory interface {
	// admit takes room for a job, or reports that there is none.
	admit(j *job) bool
	release(j *job)
}

// batch decides what a server computes when: continuous batching with chunked prefill, first come first served. It is a
// state machine: a step is planned, and at its end finished.
type batch struct {
	Engine

	noise *rand.Rand // of the law; nil in a forecast, which cannot know it

	waiting, running []*job
	left             int // jobs that had to wait when the step under way began
	stepping         bool
	end              time.Duration // of the step under way
}

// begin plans a step, if there is anything to do.
func (b *batch) begin(now time.Duration, m memory) {
	for len(b.waiting) > 0 && len(b.running) < b.Slots && m.admit(b.waiting[0]) {
		b.running = append(b.running, b.waiting[0])
		b.waiting = b.waiting[1:]
	}
	if b.stepping = len(b.running) > 0; !b.stepping {
		return
	}
	b.left = len(b.waiting)
	took := b.Law.Time(b.plan())
	factor := b.Slowness
	if b.noise != nil {
		factor *= b.Law.Vary(b.noise)
	}
	b.end = now + time.Duration(factor*float64(took))
}

// plan decides what the step computes: a token of each answer under way, and prompts in the order in which they came.
func (b *batch) plan() steptime.Step {
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

// finish ends the step under way. It returns the jobs whose answer began with it, and those whose answer ended.
func (b *batch) finish(m memory) (began, ended []*job) {
	b.running = slices.DeleteFunc(b.running, func(j *job) bool {
		if j.chunk >= 0 {
			if j.prompted -= j.chunk; j.prompted > 0 {
				return false
			}
			j.first = b.end
			began = append(began, j)
		}
		if j.answer--; j.answer > 0 {
			return false
		}
		j.done = b.end
		m.release(j)
		ended = append(ended, j)
		return true
	})
	return began, ended
}

// ahead is a copy of a batch to look into the future with, and a job more.
func (b *batch) ahead(more *job) batch {
	next := *b
	next.noise = nil
	next.running, next.waiting = copies(b.running), append(copies(b.waiting), more)
	return next
}

func copies(jobs []*job) []*job {
	values, made := make([]job, len(jobs)), make([]*job, len(jobs), len(jobs)+1)
	for i, j := range jobs {
		values[i] = *j
		made[i] = &values[i]
	}
	return made
}

// room is the memory of a batch that is run ahead: how many blocks there are, not which.
type room struct {
	batch *batch
	free  int
}

func (r *room) admit(j *job) bool {
	if j.need > r.free && len(r.batch.running) > 0 {
		return false
	}
	r.free -= j.need
	return true
}

func (r *room) release(j *job) { r.free += j.need }
