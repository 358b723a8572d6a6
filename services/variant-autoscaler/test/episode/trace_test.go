package episode

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"time"
)

// ReadTrace reads arrivals of a compressed CSV file with the columns TIMESTAMP, ContextTokens and GeneratedTokens, at a speed.
func ReadTrace(path string, speed float64) ([]Arrival, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open trace: %w", err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("unzip trace: %w", err)
	}
	rows, err := csv.NewReader(unzipped).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	var arrivals []Arrival
	var first time.Time
	for _, row := range rows[1:] {
		at, err := time.Parse("2006-01-02 15:04:05.9999999", row[0])
		if err != nil {
			return nil, fmt.Errorf("read trace: %w", err)
		}
		if first.IsZero() {
			first = at
		}
		input, err := strconv.Atoi(row[1])
		if err != nil {
			return nil, fmt.Errorf("read trace: %w", err)
		}
		output, err := strconv.Atoi(row[2])
		if err != nil {
			return nil, fmt.Errorf("read trace: %w", err)
		}
		arrivals = append(arrivals, Arrival{Model: model, At: at.Sub(first).Seconds() / speed, Input: max(input, 1), Output: max(output, 1)})
	}
	return arrivals, nil
}

// Line is a run in a plot.
type Line struct {
	Name     string
	Timeline []Moment
}

// PlotSVG returns an SVG picture of the rate and the replicas of runs over time.
func PlotSVG(title string, lines []Line) []byte {
	const width, height, left = 800, 320, 40
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/><text x="%d" y="16">%s: replicas, and requests/s in gray</text>`+"\n", width, height, left, title)
	most, rate, end := 1.0, 1.0, 1.0
	for _, l := range lines {
		for _, m := range l.Timeline {
			most, rate, end = max(most, float64(m.Replicas)), max(rate, m.Rate), max(end, m.At)
		}
	}
	path := func(color string, timeline []Moment, value func(m *Moment) float64) {
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" points="`, color)
		for i := range timeline {
			m := &timeline[i]
			fmt.Fprintf(&b, "%.1f,%.1f ", left+m.At/end*(width-left-10), 300-value(m)*240)
		}
		fmt.Fprintln(&b, `"/>`)
	}
	path("#bbb", lines[0].Timeline, func(m *Moment) float64 { return m.Rate / rate })
	for i, l := range lines {
		color := []string{"#c33", "#e90", "#06c", "#393"}[i%4]
		path(color, l.Timeline, func(m *Moment) float64 { return float64(m.Replicas) / most })
		fmt.Fprintf(&b, `<text x="%d" y="36" fill="%s">%s</text>`+"\n", left+i*180, color, l.Name)
	}
	fmt.Fprintf(&b, `<text x="4" y="64">%.0f</text><text x="4" y="304">0</text><text x="%d" y="316">%.0f s</text>`+"\n</svg>\n", most, width-60, end)
	return b.Bytes()
}
