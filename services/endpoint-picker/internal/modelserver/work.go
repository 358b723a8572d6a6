package modelserver

import "time"

// Estimated processor time of the parts of a scrape: bounds of what BenchmarkHostilePages measured, whose pages cost most. The work is
// counted and not timed, because a busy machine must not slow the scrapes.
const (
	workOfConnection = 100 * time.Microsecond
	workOfHandshake  = time.Millisecond // of TLS, with a new session
	workOfRead       = 200 * time.Nanosecond
	workOfLine       = 15 * time.Nanosecond
	workOfCandidate  = 100 * time.Nanosecond // a line that begins like a needed metric
	workOfSeries     = 300 * time.Nanosecond // of a needed metric
	workOfKiB        = time.Microsecond
	workOfLabelsKiB  = 20 * time.Microsecond // of a series
)

// maxWorkShare is the share of a core that the pages of one endpoint may take: 20 ms a second, whatever they contain. A page of vLLM of
// 30 KiB counts as 40 µs, so it may be read at any interval; one of 2 MiB counts as 2 to 43 ms, and is read every 0.1 to 2 s.
const maxWorkShare = 0.02

// work counts what a page cost.
type work struct {
	reads, lines, candidates, series int
	bytes, seriesBytes               int
}

// estimatedTime returns the estimated processor time.
func (w *work) estimatedTime() time.Duration {
	return time.Duration(w.reads)*workOfRead + time.Duration(w.lines)*workOfLine + time.Duration(w.candidates)*workOfCandidate +
		time.Duration(w.series)*workOfSeries + time.Duration(w.bytes)*workOfKiB/1024 + time.Duration(w.seriesBytes)*workOfLabelsKiB/1024
}
