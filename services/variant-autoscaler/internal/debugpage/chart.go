package debugpage

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Size of a chart in units of its own. The lowest and the highest value stay within the margin.
const (
	width, height = 300.0, 60.0
	margin        = 2.0
	// tallest is the largest ratio to a target that has room in a chart. Larger ones are drawn at its top.
	tallest = 2.0
	// shortest is the least time that a chart shows.
	shortest = 10 * time.Minute
)

// chart is a drawing of figures over time.
type chart struct {
	Title string
	Unit  string
	Top   float64 // value at the top; the bottom is 0
	Lines []line
	Mark  string // path of the target
}

// line is a figure in a chart.
type line struct {
	Name, Class, Path string
	Last              float64
	Known             bool // whether there is a last value
}

// Span is the time that the charts of a view show.
func (v *view) Span() time.Duration {
	return min(max(v.Time.Sub(v.Since), shortest), history)
}

// Charts returns the charts of a model.
func (v *view) Charts(m *model) []chart {
	d := drawing{points: m.History, from: v.Time.Add(-v.Span()).Unix(), to: v.Time.Unix(), gap: m.History.maxGap()}
	targets := d.drawChart("Latency / target", "", figure{"TTFT", "a", func(p *point) float32 { return p.ttft }},
		figure{"ITL", "b", func(p *point) float32 { return p.itl }})
	targets.Mark = fmt.Sprintf("M0 %.1fH%.0f", d.yOf(1, targets.Top), width)
	return []chart{
		d.drawChart("Load", "requests/s", figure{"load", "a", func(p *point) float32 { return p.rate }},
			figure{"demand", "b", func(p *point) float32 { return p.demand }}),
		d.drawChart("Replicas", "", figure{"desired", "a", func(p *point) float32 { return p.desired }},
			figure{"ready", "b", func(p *point) float32 { return p.ready }}),
		targets,
		d.drawChart("Cost", "per hour", figure{"desired replicas", "a", func(p *point) float32 { return p.cost }}),
	}
}

// drawing draws the points of a model.
type drawing struct {
	points   points
	from, to int64
	gap      int64
}

type figure struct {
	name, class string
	value       func(p *point) float32
}

func (d *drawing) drawChart(title, unit string, figures ...figure) chart {
	c := chart{Title: title, Unit: unit}
	for _, f := range figures {
		for i := range d.points {
			if v := float64(f.value(&d.points[i])); v > c.Top { // not for NaN
				c.Top = v
			}
		}
	}
	if figures[0].name == "TTFT" {
		c.Top = min(max(c.Top, 1), tallest)
	}
	for _, f := range figures {
		l := line{Name: f.name, Class: f.class, Path: d.linePath(f.value, c.Top)}
		if n := len(d.points); n > 0 {
			l.Last = float64(f.value(&d.points[n-1]))
			l.Known = !math.IsNaN(l.Last)
		}
		c.Lines = append(c.Lines, l)
	}
	return c
}

// linePath returns the path of a figure. It has a gap where the figure was not known, and where passes are missing.
func (d *drawing) linePath(value func(p *point) float32, top float64) string {
	var b strings.Builder
	var last int64
	drawn := false
	for i := range d.points {
		p := &d.points[i]
		v := float64(value(p))
		if math.IsNaN(v) || p.at < d.from {
			drawn = false
			continue
		}
		x, y := d.xOf(p.at), d.yOf(v, top)
		if drawn && p.at-last <= d.gap {
			fmt.Fprintf(&b, "L%.1f %.1f", x, y)
		} else {
			fmt.Fprintf(&b, "M%.1f %.1fh0", x, y) // a line of no length is a dot
		}
		last, drawn = p.at, true
	}
	return b.String()
}

func (d *drawing) xOf(at int64) float64 {
	return margin + (width-2*margin)*float64(at-d.from)/float64(max(d.to-d.from, 1))
}

func (d *drawing) yOf(v, top float64) float64 {
	if top <= 0 {
		return height - margin
	}
	return height - margin - (height-2*margin)*min(max(v/top, 0), 1)
}
