package replay

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/telemetry/recorder"
	"fairlead.dev/services/endpoint-picker/simulator/internal/simulation"
)

// unknown is the cell of a figure that a recording does not contain.
const unknown = "-"

// table is the printed comparison.
type table struct {
	out  io.Writer
	rows [][]string
}

func newTable(out io.Writer) *table {
	return &table{out: out, rows: [][]string{{
		"", "first token ms: mean", "p50", "p99", "whole answer ms: mean", "p50", "p99", "good", "hit", "requests per server", "failed",
	}}}
}

// printHeader prints what is played.
func (t *table) printHeader(p *playableRecording, profile *simulation.Profile, s simulation.Scenario) {
	input, output := 0, 0
	for i := range p.requests {
		input += p.requests[i].Input
		output += p.requests[i].Output
	}
	n := len(p.requests)
	fmt.Fprintf(t.out, "recording: %d requests, %.3g/s, with %d tokens of prompt and %d of answer on average\n", n, p.Rate(), input/n,
		output/n)
	fmt.Fprintf(t.out, "played at: %.3g/s on %d servers: %s\n\n", s.Rate(), len(s.Servers), profile.About)
}

// addSimulated adds the row of a policy.
func (t *table) addSimulated(name string, r *simulation.Result) {
	least, most := r.PerServer()
	t.addRow(name, r.FirstTokenTimes(), r.AnswerTimes(), formatPercent(r.Goodput()), formatPercent(r.HitRate()), formatSpread(least, most),
		strconv.Itoa(r.Failed+r.Lost))
}

func (t *table) addRow(name string, first, answer simulation.Times, rest ...string) {
	row := []string{name}
	for _, times := range []simulation.Times{first, answer} {
		for _, d := range []time.Duration{times.Mean, times.P50, times.P99} {
			cell := unknown
			if d > 0 {
				cell = strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 0, 64)
			}
			row = append(row, cell)
		}
	}
	t.rows = append(t.rows, append(row, rest...))
}

// addRecorded adds the row of the real servers, if the recording contains anything about them. Like the others it leaves out the first
// tenth of the time.
func (t *table) addRecorded(requests []recorder.RecordedRequest) {
	const warm = 0.1
	begin, end := *requests[0].Timestamp, *requests[len(requests)-1].Timestamp
	m := measurements{perServer: map[int]int{}}
	for i := range requests {
		if r := &requests[i]; *r.Timestamp-begin >= warm*(end-begin) {
			m.addRequest(r)
		}
	}
	if len(m.answers) == 0 {
		return
	}
	good, hit := unknown, unknown
	if len(m.firstTokens) > 0 {
		good = formatPercent(float64(m.good) / float64(len(m.firstTokens)))
	}
	if m.prompt > 0 {
		hit = formatPercent(float64(m.cached) / float64(m.prompt))
	}
	least, most := m.requestSpread()
	t.addRow("recorded", simulation.NewTimes(m.firstTokens), simulation.NewTimes(m.answers), good, hit, formatSpread(least, most), unknown)
}

// measurements are the measurements of real servers.
type measurements struct {
	firstTokens, answers []time.Duration
	good, prompt, cached int
	perServer            map[int]int
}

func (m *measurements) addRequest(r *recorder.RecordedRequest) {
	if r.Duration == nil {
		return
	}
	answer := toDuration(*r.Duration)
	m.answers = append(m.answers, answer)
	cached := 0
	if r.Prompt > 0 && r.Cached != nil {
		cached = min(*r.Cached, r.Prompt)
		m.prompt += r.Prompt
		m.cached += cached
	}
	if r.Endpoint != nil {
		m.perServer[*r.Endpoint]++
	}
	if r.TTFT == nil {
		return
	}
	first := toDuration(*r.TTFT)
	m.firstTokens = append(m.firstTokens, first)
	if simulation.IsGood(first, answer-first, max(r.Prompt, r.Input)-cached, r.Output) {
		m.good++
	}
}

func (m *measurements) requestSpread() (least, most int) {
	for _, n := range m.perServer {
		if least == 0 || n < least {
			least = n
		}
		most = max(most, n)
	}
	return least, most
}

func toDuration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func formatPercent(part float64) string { return strconv.FormatFloat(100*part, 'f', 1, 64) + "%" }

func formatSpread(least, most int) string { return fmt.Sprintf("%d to %d", least, most) }

func (t *table) printTable() error {
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range t.rows {
		fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print comparison: %w", err)
	}
	return nil
}
