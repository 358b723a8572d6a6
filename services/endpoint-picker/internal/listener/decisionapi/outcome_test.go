package decisionapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// TestOutcome_Events ends picks in every way.
func TestOutcome_Events(t *testing.T) {
	t.Parallel()
	usage := `,"prompt_tokens":30,"cached_tokens":16,"completion_tokens":7`
	used := request.Usage{Known: true, CachedKnown: true, Prompt: 30, Cached: 16, Output: 7}
	tests := []struct {
		name     string
		reports  [][2]string // event and further fields
		want     request.Record
		wantOpen int64 // requests that count until a scrape shows them
	}{
		{name: "completed", reports: [][2]string{{"completed", usage}}, want: request.Record{Outcome: request.Completed, Status: 200, Usage: used}},
		{
			name: "completed, in two calls", reports: [][2]string{{"first_token", ""}, {"completed", usage}},
			want: request.Record{Outcome: request.Completed, Status: 200, Usage: used},
		},
		{name: "completed with an error", reports: [][2]string{{"completed", `,"status":400`}}, want: request.Record{Outcome: request.Completed, Status: 400}},
		{
			name: "completed by another endpoint", reports: [][2]string{{"completed", `,"endpoint":"10.0.0.2:8000"`}},
			want: request.Record{Outcome: request.Completed, Status: 200, Served: "10.0.0.2:8000"},
		},
		{name: "failed", reports: [][2]string{{"failed", ""}}, want: request.Record{Outcome: request.Completed, Status: 503}},
		{name: "failed with a status", reports: [][2]string{{"failed", `,"status":500`}}, want: request.Record{Outcome: request.Completed, Status: 500}},
		{name: "aborted before the response", reports: [][2]string{{"aborted", ""}}, want: request.Record{Outcome: request.Unseen}, wantOpen: 1},
		{
			name: "aborted after the first token", reports: [][2]string{{"first_token", ""}, {"aborted", usage}},
			want: request.Record{Outcome: request.Interrupted, Status: 200, Usage: used},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.pick("", "{}")
			r.reportAll(a.ID, tt.reports)
			got := r.pool.last()
			assert.Equal(t, tt.want, request.Record{Outcome: got.Outcome, Status: got.Status, Usage: got.Usage, Served: got.Served})
			assert.Equal(t, tt.wantOpen, r.pool.inFlight())
			r.assertNothingHeld()
			assert.Equal(t, http.StatusNotFound, r.report(a.ID, "completed", ""), "it has ended")
			assert.Equal(t, 1, r.results.of(resultUnknown))
			assert.Equal(t, 1, r.results.of(tt.reports[len(tt.reports)-1][0]))
		})
	}
}

// TestOutcome_AbortedPicks has clients that leave, and may never have sent their requests. A prompt counts as computed if they report
// something of an answer.
func TestOutcome_AbortedPicks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		reports [][2]string
		want    []request.HealthSignal
	}{
		{name: "nothing of an answer", reports: [][2]string{{"aborted", ""}}, want: []request.HealthSignal{request.Aborted}},
		{name: "the first token", reports: [][2]string{{"first_token", ""}, {"aborted", ""}}},
		{name: "the time of the first token", reports: [][2]string{{"aborted", `,"first_token_seconds":0.1`}}},
		{name: "the usage", reports: [][2]string{{"aborted", `,"prompt_tokens":3`}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.pick("", "{}")
			r.reportAll(a.ID, tt.reports)
			assert.Equal(t, tt.want, r.pool.signals)
		})
	}
}

// TestOutcome_Wrong gives reports that are refused. The pick stays open.
func TestOutcome_Wrong(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string // ID stands for the id of the pick
		wantStatus int
		wantField  string
	}{
		{name: "no id", give: `{"event":"completed"}`, wantField: "id"},
		{name: "short id", give: `{"id":"00","event":"completed"}`, wantField: "id"},
		{name: "id is not hexadecimal", give: `{"id":"` + strings.Repeat("x", 32) + `","event":"completed"}`, wantField: "id"},
		{name: "unknown id", give: `{"id":"` + strings.Repeat("0", 32) + `","event":"completed"}`, wantStatus: 404, wantField: "id"},
		{name: "no event", give: `{"id":"ID"}`, wantField: "event"},
		{name: "unknown event", give: `{"id":"ID","event":"done"}`, wantField: "event"},
		{name: "endpoint of another pool", give: `{"id":"ID","event":"completed","endpoint":"10.9.9.9:8000"}`, wantField: "endpoint"},
		{name: "endpoint that was not offered", give: `{"id":"ID","event":"completed","endpoint":"10.0.0.4:8000"}`, wantField: "endpoint"},
		{name: "status below the range", give: `{"id":"ID","event":"completed","status":99}`, wantField: "status"},
		{name: "status above the range", give: `{"id":"ID","event":"completed","status":600}`, wantField: "status"},
		{name: "failure with 200", give: `{"id":"ID","event":"failed","status":200}`, wantField: "status"},
		{name: "negative time", give: `{"id":"ID","event":"completed","first_token_seconds":-1}`, wantField: "first_token_seconds"},
		{name: "endless time", give: `{"id":"ID","event":"completed","first_token_seconds":1e999}`, wantField: "first_token_seconds"},
		{name: "tokens above the limit", give: `{"id":"ID","event":"completed","completion_tokens":99999999999}`, wantField: "completion_tokens"},
		{name: "more cached than there are", give: `{"id":"ID","event":"completed","prompt_tokens":1,"cached_tokens":2}`, wantField: "cached_tokens"},
		{name: "unknown field", give: `{"id":"ID","event":"completed","tokens":2}`, wantField: "tokens"},
		{name: "large", give: `{"id":"ID","event":"completed"` + strings.Repeat(" ", maxOutcome) + `}`, wantStatus: 413},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.pick("", "{}")
			before := r.PickStats()
			status, answer := r.call(PathOutcome, strings.ReplaceAll(tt.give, "ID", a.ID))
			if tt.wantStatus == 0 {
				tt.wantStatus = http.StatusBadRequest
			}
			assert.Equal(t, tt.wantStatus, status, answer)
			field, _ := wrongOf(t, answer)
			assert.Equal(t, tt.wantField, field)
			assert.Equal(t, before, r.PickStats())
			assert.Equal(t, http.StatusNoContent, r.report(a.ID, "completed", ""))
		})
	}
}

// TestOutcome_FirstToken reports the time of the first token in one call or two.
func TestOutcome_FirstToken(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		reports [][2]string // one second apart
		want    time.Duration
	}{
		{name: "not reported", reports: [][2]string{{"completed", ""}}},
		{name: "at the end", reports: [][2]string{{"completed", `,"first_token_seconds":0.25`}}, want: 250 * time.Millisecond},
		{name: "never in the future", reports: [][2]string{{"completed", `,"first_token_seconds":9`}}, want: time.Second},
		{name: "when it came", reports: [][2]string{{"first_token", ""}, {"completed", ""}}, want: time.Second},
		{name: "after it came", reports: [][2]string{{"first_token", `,"first_token_seconds":0.5`}, {"completed", ""}}, want: 500 * time.Millisecond},
		{name: "the first report counts", reports: [][2]string{{"first_token", ""}, {"completed", `,"first_token_seconds":0.5`}}, want: time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				picked, a := time.Now(), r.pick("", "{}")
				for _, one := range tt.reports {
					time.Sleep(time.Second)
					require.Equal(t, http.StatusNoContent, r.report(a.ID, one[0], one[1]))
				}
				first := r.pool.last().FirstContent
				if tt.want == 0 {
					assert.Zero(t, first)
				} else {
					assert.Equal(t, tt.want, first.Sub(picked))
				}
			})
		})
	}
}

func TestOutcome_ThatNeverComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		silent, begun := r.pick("", "{}"), r.pick("", "{}")
		time.Sleep(40 * time.Second)
		require.Equal(t, http.StatusNoContent, r.report(begun.ID, EventFirstToken, ""))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.Equal(t, 1, r.results.of(resultExpired))
		assert.Equal(t, request.Unseen, r.pool.last().Outcome)
		assert.Equal(t, http.StatusNotFound, r.report(silent.ID, EventCompleted, ""))
		time.Sleep(40 * time.Second)
		synctest.Wait()
		assert.Equal(t, 2, r.results.of(resultExpired), "the report of the first token begins the time anew")
		assert.Equal(t, request.Interrupted, r.pool.last().Outcome)
		assert.EqualValues(t, 1, r.pool.inFlight(), "the server may still have the request without a response")
		r.assertNothingHeld()
	})
}

// TestDrain ends a picker with open picks: it refuses picks, and takes outcomes.
// TestPick_WhoseRequestNeverComes has picks whose servers show no requests, or some. An idle server does not have the request.
func TestPick_WhoseRequestNeverComes(t *testing.T) {
	t.Parallel()
	for _, running := range []float64{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Timeout = time.Minute })
			picked := r.pick("", "{}")
			e := r.pool.endpoints[0]
			page := func() float64 {
				e.RecordSample(e.StartScrape(time.Now()), endpoint.Gauges{Running: running})
				time.Sleep(absentAfter)
				synctest.Wait()
				return e.Load().Open
			}
			assert.InDelta(t, 1, page(), 0, "the page is from before the client could send the request")
			page()
			if open := page(); running > 0 {
				assert.InDelta(t, 1, open, 0)
			} else {
				assert.Zero(t, open)
			}
			assert.Equal(t, 1, r.PickStats().Open, "its outcome may come")
			assert.Equal(t, http.StatusNoContent, r.report(picked.ID, EventCompleted, ""))
			assert.Zero(t, e.Load().Open)
		})
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		one, two := r.pick("", "{}"), r.pick("", "{}")
		left := make(chan int, 1)
		go func() { left <- r.drainPicks(t.Context()) }()
		synctest.Wait()
		status, _ := r.call(PathPick, "{}")
		assert.Equal(t, http.StatusServiceUnavailable, status)
		assert.Equal(t, http.StatusNoContent, r.report(one.ID, EventCompleted, ""))
		synctest.Wait()
		assert.Empty(t, left)
		assert.Equal(t, http.StatusNoContent, r.report(two.ID, EventCompleted, ""))
		assert.Zero(t, <-left)
	})
}

// A call whose client may have its answer already is no second pick.
func TestDrainCountsPicks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.pick("", "{}")
		defer r.openPicks.startCall()()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.Equal(t, 1, r.drainPicks(ctx))
	})
}

// TestAnySequence makes random calls. Whatever they are, nothing is counted at the end.
func TestAnySequence(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { playAnySequence(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func playAnySequence(t *testing.T, random *rand.Rand) {
	r := newLimitedRig(t, limits.Limits{Streams: 8, Bytes: 16 << 20})
	var ids []string
	picks, ended := 0, 0
	events := []string{EventFirstToken, EventCompleted, EventFailed, EventAborted, "other"}
	fields := []string{"", `,"status":500`, `,"endpoint":"10.0.0.2:8000"`, `,"endpoint":"10.0.0.4:8000"`, `,"first_token_seconds":2`, `,"completion_tokens":5`}
	for range 300 {
		switch n := random.IntN(10); {
		case n < 4:
			status, answer := r.call(PathPick, `{"body":"`+strings.Repeat("a", random.IntN(500))+`"}`)
			if status == http.StatusOK {
				picks++
				ids = append(ids, answer[7:39])
			}
		case n < 9 && len(ids) > 0:
			id, event := ids[random.IntN(len(ids))], events[random.IntN(len(events))]
			if random.IntN(8) == 0 {
				id = strings.Repeat("0", 32)
			}
			if r.report(id, event, fields[random.IntN(len(fields))]) == http.StatusNoContent && event != EventFirstToken {
				ended++
			}
		default:
			time.Sleep(time.Duration(random.IntN(30)) * time.Second)
			synctest.Wait()
		}
		open := r.PickStats().Open
		require.Equal(t, picks-ended-r.results.of(resultExpired), open)
		require.GreaterOrEqual(t, r.pool.inFlight(), int64(open))
	}
	if random.IntN(2) == 0 {
		r.Server.Close()
	} else {
		time.Sleep(2 * time.Minute)
		synctest.Wait()
	}
	for _, e := range r.pool.endpoints {
		e.ExpireAbandoned(time.Now().Add(time.Second)) // as the pool does when no scrape shows the requests
	}
	assert.Zero(t, r.pool.inFlight())
	r.assertNothingHeld()
	assert.Positive(t, picks)
}

// TestMemoryOfOpenPicks measures what a pick holds, which openBytes must cover. The leases of the fake pool are smaller than those of a
// real one by the state of the estimator: half a KiB, at most.
func TestMemoryOfOpenPicks(t *testing.T) {
	const picks = 2000
	r := newLimitedRig(t, limits.Limits{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range picks {
		status, _ := r.call(PathPick, "{}")
		require.Equal(t, http.StatusOK, status)
	}
	r.pool.incoming, r.pool.late = nil, nil
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / picks
	t.Logf("%d bytes for each open pick", each)
	assert.Less(t, each, int64(openBytes))
}
