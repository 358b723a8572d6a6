// Package chatload sends streaming chat completions to an OpenAI-compatible server, and reports the servers that answered, the
// durations, and the failures.
//
// The package is for demos and whole-system tests, so its checks are strict: a stream must be a complete and well-formed chat
// completion that ends in [DONE]. The number of tokens must equal the server's usage and, with ignore_eos, the requested number.
// The package never retries a request. Request number i is the same in every run with the same seed.
package chatload

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

type runner struct {
	Options
	client *http.Client
	start  time.Time

	mu      sync.Mutex
	started int
	results collector
}

// Run sends the load that o describes until it reaches one of the limits, and waits for running requests. When ctx ends, Run
// aborts running requests, and does not count them as failures. An error means that the options are invalid; the report contains
// the failures of requests.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	client, closeIdle := o.client()
	defer closeIdle()
	r := &runner{Options: o, client: client, start: time.Now()}
	if o.Rate > 0 {
		r.openLoop(ctx)
	} else {
		r.closedLoop(ctx)
	}
	return r.results.report(time.Since(r.start)), nil
}

func (r *runner) closedLoop(ctx context.Context) {
	var wg sync.WaitGroup
	for range r.Concurrency {
		wg.Go(func() {
			for i, ok := r.next(ctx); ok; i, ok = r.next(ctx) {
				r.finish(r.do(ctx, i))
			}
		})
	}
	wg.Wait()
}

func (r *runner) openLoop(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	arrivals := rand.New(rand.NewPCG(r.Prompts.Seed, 8))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for due := r.start; ; {
		due = due.Add(time.Duration(arrivals.ExpFloat64() / r.Rate * float64(time.Second)))
		if r.Duration > 0 && due.Sub(r.start) >= r.Duration {
			return
		}
		timer.Reset(time.Until(due))
		select {
		case <-ctx.Done():
			return
		case <-r.Stop:
			return
		case <-timer.C:
		}
		i, ok := r.next(ctx)
		if !ok {
			return
		}
		wg.Go(func() { r.finish(r.do(ctx, i)) })
	}
}

// next returns the number of the next request, or false if a limit is reached.
func (r *runner) next(ctx context.Context) (int, bool) {
	select {
	case <-r.Stop:
		return 0, false
	case <-ctx.Done():
		return 0, false
	default:
	}
	if r.Duration > 0 && time.Since(r.start) >= r.Duration {
		return 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Requests > 0 && r.started >= r.Requests {
		return 0, false
	}
	r.started++
	return r.started - 1, true
}

func (r *runner) finish(result Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results.add(result)
	if r.OnResult != nil {
		r.OnResult(result)
	}
}
