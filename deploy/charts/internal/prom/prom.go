// Package prom checks and evaluates the PromQL of alert rules and dashboards with Prometheus' own parser and engine, on series
// that a test writes down.
package prom

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// Step is the time between two samples of a series, and between two evaluations of a rule.
const Step = time.Minute

// Rule is a rule of a rule file.
type Rule = rulefmt.Rule

var language = parser.NewParser(parser.Options{})

// ReadRules reads a rule file as Prometheus does: unknown fields, wrong expressions and wrong templates are errors.
func ReadRules(file string) ([]Rule, error) {
	groups, errs := rulefmt.ParseFile(file, false, model.LegacyValidation, language, nil)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var rules []Rule
	for _, g := range groups.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules, nil
}

// Use is a metric with the labels that an expression expects it to have.
type Use struct {
	Metric   string
	Matchers []*labels.Matcher
	Labels   []string // that the expression matches, or groups by, sorted
}

// Uses returns the metrics of an expression. A label of an aggregation or of a vector match counts for every metric below it.
func Uses(expr string) ([]Use, error) {
	root, err := language.ParseExpr(expr)
	if err != nil {
		return nil, fmt.Errorf("parse %q: %w", expr, err)
	}
	var uses []Use
	parser.Inspect(root, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		use := Use{Metric: selector.Name}
		for _, m := range selector.LabelMatchers {
			if m.Name == model.MetricNameLabel {
				use.Metric = m.Value
				continue
			}
			use.Matchers, use.Labels = append(use.Matchers, m), append(use.Labels, m.Name)
		}
		for _, above := range path {
			switch above := above.(type) {
			case *parser.AggregateExpr:
				use.Labels = append(use.Labels, above.Grouping...)
			case *parser.BinaryExpr:
				if above.VectorMatching != nil {
					use.Labels = append(use.Labels, above.VectorMatching.MatchingLabels...)
				}
			}
		}
		slices.Sort(use.Labels)
		use.Labels = slices.Compact(use.Labels)
		uses = append(uses, use)
		return nil
	})
	return uses, nil
}

// World is a set of series.
type World []storage.Series

// NewWorld reads series in the notation of promtool's unit tests, such as `up{job="a"} 0+1x10`: one sample each Step from 0.
func NewWorld(series ...string) (World, error) {
	var w World
	for _, text := range series {
		l, values, err := language.ParseSeriesDesc(text)
		if err != nil {
			return nil, fmt.Errorf("parse series %q: %w", text, err)
		}
		var samples []chunks.Sample
		for i, v := range values {
			if !v.Omitted {
				samples = append(samples, sample{at: Step.Milliseconds() * int64(i), value: v.Value})
			}
		}
		w = append(w, storage.NewListSeries(l, samples))
	}
	return w, nil
}

// Query returns the result of an expression at each Step between two times.
func (w World) Query(ctx context.Context, expr string, from, to time.Duration) (promql.Matrix, error) {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: language})
	zero := time.UnixMilli(0)
	query, err := engine.NewRangeQuery(ctx, w, nil, expr, zero.Add(from), zero.Add(to), Step)
	if err != nil {
		return nil, fmt.Errorf("query %q: %w", expr, err)
	}
	defer query.Close()
	result := query.Exec(ctx)
	if result.Err != nil {
		return nil, fmt.Errorf("query %q: %w", expr, result.Err)
	}
	matrix, err := result.Matrix()
	if err != nil {
		return nil, fmt.Errorf("query %q: %w", expr, err)
	}
	return slices.Clone(matrix), nil
}

// Firing returns the labels of the alerts that a rule fires at a time, each as Prometheus writes them: those whose expression
// had a result in every Step of the rule's `for`.
func (w World) Firing(ctx context.Context, r Rule, at time.Duration) ([]string, error) {
	held := time.Duration(r.For)
	matrix, err := w.Query(ctx, r.Expr, at-held, at)
	if err != nil {
		return nil, err
	}
	var firing []string
	for _, series := range matrix {
		if len(series.Floats) == int(held/Step)+1 {
			firing = append(firing, series.Metric.String())
		}
	}
	return firing, nil
}

// Querier implements storage.Queryable.
func (w World) Querier(int64, int64) (storage.Querier, error) { return querier{World: w}, nil }

// querier answers queries for series; queries for labels are not needed.
type querier struct {
	storage.LabelQuerier
	World
}

// Select implements storage.Querier.
func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &seriesSet{next: -1}
	for _, series := range q.World {
		if matches(series.Labels(), matchers) {
			found.series = append(found.series, series)
		}
	}
	return found
}

// Close implements storage.LabelQuerier.
func (querier) Close() error { return nil }

func matches(l labels.Labels, matchers []*labels.Matcher) bool {
	return !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(l.Get(m.Name)) })
}

// seriesSet implements storage.SeriesSet.
type seriesSet struct {
	series []storage.Series
	next   int
}

func (s *seriesSet) Next() bool                        { s.next++; return s.next < len(s.series) }
func (s *seriesSet) At() storage.Series                { return s.series[s.next] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// sample implements chunks.Sample for a float.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
