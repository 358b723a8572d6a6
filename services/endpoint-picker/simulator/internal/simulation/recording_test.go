package simulation

import (
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/testlane"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// Two conversations, one with two turns, and a prompt that has nothing in common with them.
const recordedLines = `{"timestamp": 1000, "input_length": 1000, "output_length": 10, "hash_ids": [1, 2]}
{"timestamp": 2000, "input_length": 600, "output_length": 1, "hash_ids": [7, 8]}
{"timestamp": 6000, "input_length": 1400, "output_length": 20, "hash_ids": [1, 2, 3]}
`

func TestRecordingIsPlayed(t *testing.T) {
	t.Parallel()
	r, err := loadRecording(strings.NewReader(recordedLines))
	require.NoError(t, err)
	s := r.Scenario("recorded", 0.3, []Engine{UsualEngine()})
	assert.InDelta(t, 10*time.Second, s.Warm+s.Measured, float64(time.Millisecond))
	arrivals := s.Trace(1).arrivals
	require.Len(t, arrivals, 3)
	first, other, second := arrivals[0], arrivals[1], arrivals[2]
	assert.InDeltaSlice(t, []float64{0, 2, 10}, []float64{first.at.Seconds(), other.at.Seconds(), second.at.Seconds()}, 0.001)
	assert.Equal(t, []bool{false, true, true}, []bool{first.measured, other.measured, second.measured})
	assert.Equal(t, first.group, second.group)
	assert.NotEqual(t, first.group, other.group)
	assert.Equal(t, []int{1000, 10}, []int{first.prompt, first.out})

	// 1000 tokens are 62 blocks and a half, which the answer follows; in the next turn other text does.
	assert.Equal(t, first.chain[:62], second.chain[:62])
	assert.NotEqual(t, first.chain[62], second.chain[62])
	assert.NotContains(t, other.chain, first.chain[0])
	assert.True(t, strings.HasPrefix(second.recorded.promptText(), first.recorded.promptText()[:512*4]))
	assert.Len(t, first.recorded.promptText(), 1000*4)
}

func TestRecordedSystemPromptsAreNoConversation(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range manyFollow + 1 {
		line := `{"timestamp": T, "input_length": 1024, "output_length": 1, "hash_ids": [1, 9T]}` + "\n"
		b.WriteString(strings.ReplaceAll(line, "T", string(rune('0'+i/10))+string(rune('0'+i%10))))
	}
	text := strings.ReplaceAll(b.String(), `"timestamp": 0`, `"timestamp": `) // no leading zeros
	r, err := loadRecording(strings.NewReader(text))
	require.NoError(t, err)
	groups := map[int]bool{}
	for _, q := range r.requests {
		groups[q.group] = true
	}
	assert.Len(t, groups, manyFollow+1)
}

func TestBadRecordings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":  "requests at two different times",
		"{": "line 1 of the recording: ",
		strings.Repeat(`{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [1]}`+"\n", 2): "requests at two different times",
	} {
		_, err := loadRecording(strings.NewReader(text))
		assert.ErrorContains(t, err, want, text)
	}
}

// The picker estimates the length of prompts. Servers report it, and work on what they report.
func TestRecordedLengthsAreThoseOfServers(t *testing.T) {
	t.Parallel()
	r, err := loadRecording(strings.NewReader(`{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2], "prompt_tokens": 1536, "streaming": false}
{"timestamp": 1, "input_length": 2048, "output_length": 1, "hash_ids": [1, 2, 3, 4], "prompt_tokens": 3072}
{"timestamp": 2, "input_length": 1024, "output_length": 1, "hash_ids": [1, 9]}
`))
	require.NoError(t, err)
	arrivals := r.Scenario("recorded", 1, []Engine{UsualEngine()}).Trace(1).arrivals
	require.Len(t, arrivals, 3)
	whole, long, other := arrivals[0], arrivals[1], arrivals[2]
	assert.Equal(t, []int{1536, 3072, 1536}, []int{whole.prompt, long.prompt, other.prompt})
	assert.Len(t, long.recorded.promptText(), 2048*charsPerToken, "the picker sees what it saw")
	assert.Equal(t, whole.chain[:96], long.chain[:96])
	assert.Equal(t, whole.chain[:48], other.chain[:48], "the first hash is 768 tokens")
	assert.NotEqual(t, whole.chain[48], other.chain[48])
	assert.Equal(t, []bool{false, true}, []bool{whole.stream, long.stream})
}

func TestProfileIsObeyed(t *testing.T) {
	t.Parallel()
	p, err := ReadProfile(strings.NewReader(`{
		"law": {"base_ms": 10, "per_decoding_ms": 0.5, "per_context_token_us": 0.04, "per_prompt_token_us": 128, "per_prompt_pair_ns": 2.7, "noise": 0.1, "first_token_extra_ms": 12},
		"chunk_tokens": 4096, "slots": 7, "kv_blocks": 900, "block_tokens": 32, "bytes_per_token": [2.5, 4.2], "step_factors": [1, 1.5],
		"page": {"refresh_ms": 1000, "refresh_per_request_ms": 5, "answer_ms": 15}, "page_faults": [{"server": 2, "kind": "frozen", "after_s": 3}]}`))
	require.NoError(t, err)
	s := find(t, StandardScenarios(), "slow").withServers(3).WithProfile(p)
	e := s.Servers[0]
	assert.InDelta(t, 2, e.Slowness, 1e-9)
	assert.InDelta(t, 3, s.Servers[1].Slowness, 1e-9, "of(3) repeats the slow server")
	assert.Equal(t, []int{4096, 7, 900, 32}, []int{e.Batch, e.Slots, e.Blocks, e.BlockTokens})
	assert.Equal(t, []time.Duration{10 * time.Millisecond, 500 * time.Microsecond, 40, 128 * time.Microsecond, 2700 * time.Microsecond, 12 * time.Millisecond},
		[]time.Duration{e.Law.Base, e.Law.PerSeq, e.Law.PerContext, e.Law.PerToken, e.Law.PerMegaPair, e.Extra})
	assert.InDelta(t, 0.1, e.Law.Noise, 1e-9)
	assert.Equal(t, Refresh{Interval: time.Second, PerRequest: 5 * time.Millisecond}, e.Refresh)
	assert.Equal(t, 15*time.Millisecond, e.PageDelay)
	assert.Equal(t, []PageFault{"", "", Frozen}, []PageFault{s.Servers[0].Fault, s.Servers[1].Fault, s.Servers[2].Fault})
	assert.Equal(t, 3*time.Second, s.Servers[2].FaultAfter)
	for _, a := range s.Trace(1).arrivals[:20] {
		ratio := float64(len(a.messages[0].text)) / float64(even.Tokens)
		assert.Contains(t, []float64{2.5, 4.2}, math.Round(ratio*10)/10)
		assert.Equal(t, 32, a.blockTokens)
	}
}

func TestBadProfiles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"unknown": 1}`:                                  "unknown field",
		`{"kv_blocks": 9000000000}`:                       "must be at most 1073741824",
		`{"slots": 0}`:                                    "must be positive",
		`{"bytes_per_token": []}`:                         "bytes_per_token",
		`{"bytes_per_token": [0.5]}`:                      "bytes_per_token",
		`{"step_factors": [0]}`:                           "step_factors",
		`{"law": {"base_ms": 0}}`:                         "base time",
		`{"law": {"noise": -1}}`:                          "must not be negative",
		`{"page": {"answer_ms": -1}}`:                     "must not be negative",
		`{"page_faults": [{"server": 0, "kind": "sad"}]}`: "page_faults 0",
	} {
		_, err := ReadProfile(strings.NewReader(text))
		assert.ErrorContains(t, err, want, text)
	}
}

// The profiles of the documentation, in small fleets.
func TestPickerOnProfiles(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]float64{"8b-h100": 40, "32b-2xh100": 18, "7b-code-a100": 8} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := os.Open("servers/" + name + ".json")
			require.NoError(t, err)
			defer file.Close()
			p, err := ReadProfile(file)
			require.NoError(t, err)
			s := find(t, StandardScenarios(), "multiturn").withServers(4).WithProfile(p)
			requests := testlane.Repetitions(60, 300)
			s.Warm, s.Measured, s.Workload.rate = time.Duration(testlane.Repetitions(2, 6))*time.Second, time.Duration(float64(requests)/rate)*time.Second, rate
			trace := s.Trace(1)
			got, least := trace.Run(IndependentPickers(1, InTurn)), trace.Run(LeastLoad())
			compare(got, trace.Run(Greedy())).assertWithin(t, ratios{mean: 1.35, p99: 2}, "one replica to greedy") // the third longest of one seed
			assert.Less(t, got.FirstTokenTimes().Mean, least.FirstTokenTimes().Mean*4/5)
		})
	}
}

// A page that is refreshed shows an old state, and with a fault none that is true.
func TestPagesOfProfiles(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tt := range []struct {
		name    string
		change  func(e *Engine)
		running []float64 // after 0.5, 1.2, 2.7 and 3.5 s, of a request from 0.4 to 2.55 s
		answers bool
	}{
		{"current", func(*Engine) {}, []float64{1, 1, 0, 0}, true},
		{"refreshed each second", func(e *Engine) { e.Refresh.Interval = time.Second }, []float64{0, 1, 1, 0}, true},
		{"refreshed later with a request", func(e *Engine) { e.Refresh = Refresh{Interval: time.Second, PerRequest: 2500 * ms} }, []float64{0, 1, 1, 1}, true},
		{"idle", func(e *Engine) { e.Fault, e.FaultAfter = Idle, time.Second }, []float64{1, 0, 0, 0}, true},
		{"frozen", func(e *Engine) { e.Fault, e.FaultAfter = Frozen, 600*ms }, []float64{1, 1, 1, 1}, true},
		{"hangs", func(e *Engine) { e.Fault, e.FaultAfter = Hangs, time.Second }, []float64{1, 0, 0, 0}, false},
		{"fails", func(e *Engine) { e.Fault, e.FaultAfter = Fails, time.Second }, []float64{1, 0, 0, 0}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := plain()
			tt.change(&e)
			s := newServer(e)
			if e.Refresh.Interval > 0 {
				s.refreshPage()
			}
			s.timeline.scheduleAt(400*ms, func() { s.enqueue(&job{arrival: asking(50, 2, 0), watcher: &log{}}) })
			var shown []float64
			var answers bool
			for _, at := range []time.Duration{500 * ms, 1200 * ms, 2700 * ms, 3500 * ms} {
				s.timeline.scheduleAt(at, func() {
					var g endpoint.Gauges
					g, _, answers = s.metricsPage()
					shown = append(shown, g.Running)
				})
			}
			s.timeline.runWhile(func() bool { return len(shown) < 4 })
			assert.Equal(t, tt.running, shown)
			assert.Equal(t, tt.answers, answers)
		})
	}
}

// Tokens reach the client after their step, which the next step does not wait for.
func TestTokensArriveLater(t *testing.T) {
	t.Parallel()
	e := plain()
	plainly := serve(newServer(e), asking(50, 2, 0))[0]
	e.Extra = 70 * time.Millisecond
	later := serve(newServer(e), asking(50, 2, 0))[0]
	assert.Equal(t, plainly.first+e.Extra, later.first)
	assert.Equal(t, plainly.done+e.Extra, later.done)
}

func TestLoadIsAPartOfWhatGreedySustains(t *testing.T) {
	t.Parallel()
	at := func(perSecond float64) Scenario {
		s := find(t, StandardScenarios(), "uniform").withServers(1)
		s.Warm, s.Measured, s.Workload.rate = time.Second, time.Duration(testlane.Repetitions(4, 10))*time.Second, perSecond
		return s
	}
	full, err := AtLoad(t.Context(), 1, 1, at)
	require.NoError(t, err)
	assert.True(t, sustainsLoad(t.Context(), full.Trace(1)))
	assert.False(t, sustainsLoad(t.Context(), at(1.03*full.Workload.rate).Trace(1)))
	half, err := AtLoad(t.Context(), 0.5, 1, at)
	require.NoError(t, err)
	assert.InEpsilon(t, full.Workload.rate/2, half.Workload.rate, 1e-9)
}

// loadRecording reads a recording.
func loadRecording(from io.Reader) (*Recording, error) {
	requests, err := ReadRecording(from)
	if err != nil {
		return nil, err
	}
	return NewRecording(requests)
}
