package chatload

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

var columns = []string{"server", "requests", "share", "p50", "p95", "ttft p50", "ttft p95", "tokens", "cached", "failures"}

// WriteTable writes the report as text: a row for each server and the total, then a line that ends in the number of failures,
// then the failures by class, and examples.
func (r *Report) WriteTable(w io.Writer) error {
	rows := [][]string{columns}
	for _, s := range r.Servers {
		rows = append(rows, s.row())
	}
	total := r.Total
	total.Server = "total"
	rows = append(rows, total.row())

	var b strings.Builder
	writeAligned(&b, rows)
	seconds := max(r.Elapsed.Seconds(), 1e-9)
	fmt.Fprintf(&b, "\n%s, %.1f requests/s, %.0f tokens/s", formatDuration(r.Elapsed), float64(total.Requests)/seconds, float64(total.Tokens)/seconds)
	if r.Canceled > 0 {
		fmt.Fprintf(&b, ", canceled %d", r.Canceled)
	}
	fmt.Fprintf(&b, ", failures %d\n", total.Failures)
	for _, class := range slices.Sorted(maps.Keys(r.Failures)) {
		fmt.Fprintf(&b, "  %s %d\n", class, r.Failures[class])
	}
	for _, example := range r.Examples {
		fmt.Fprintf(&b, "  request %d at %s: %s\n", example.Index, cmp.Or(example.ServedBy, "-"), example.Err)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func (s ServerReport) row() []string {
	cached := "-"
	if s.PromptTokens > 0 {
		cached = percent(float64(s.CachedTokens) / float64(s.PromptTokens))
	}
	return []string{
		cmp.Or(s.Server, "-"), fmt.Sprint(s.Requests), percent(s.Share), formatDuration(s.Latency.P50), formatDuration(s.Latency.P95),
		formatDuration(s.TTFT.P50), formatDuration(s.TTFT.P95), fmt.Sprint(s.Tokens), cached, fmt.Sprint(s.Failures),
	}
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// formatDuration formats a duration with about three digits.
func formatDuration(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	case d < time.Minute:
		return fmt.Sprintf("%.2f s", d.Seconds())
	default:
		return d.Round(time.Second).String()
	}
}

// writeAligned writes rows in columns. It aligns the first column left, and the others right.
func writeAligned(b *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		for i, cell := range row {
			padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString(cell + padding)
			} else {
				b.WriteString("  " + padding + cell)
			}
		}
		b.WriteByte('\n')
	}
}
