package conformance

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// ReportFile is the report of the last run against the backendset-syncer, which the repository keeps.
const ReportFile = "deploy/local/e2e/conformance/gateway-report.yaml"

//go:embed gateway*.yaml
var gatewayFiles embed.FS

// Report is a report of the conformance suite of the Gateway API. Its form is that of the suite.
type Report struct {
	APIVersion        string         `json:"apiVersion"`
	Kind              string         `json:"kind"`
	Date              string         `json:"date"`
	GatewayAPIVersion string         `json:"gatewayAPIVersion"`
	GatewayAPIChannel string         `json:"gatewayAPIChannel"`
	Mode              string         `json:"mode"`
	Implementation    Implementation `json:"implementation"`
	Profiles          []Profile      `json:"profiles"`
}

// Implementation is what a report is about.
type Implementation struct {
	Organization string   `json:"organization"`
	Project      string   `json:"project"`
	URL          string   `json:"url"`
	Version      string   `json:"version"`
	Contact      []string `json:"contact"`
}

// Profile is the part of a report about a conformance profile.
type Profile struct {
	Name     string    `json:"name"`
	Summary  string    `json:"summary"`
	Core     Status    `json:"core"`
	Extended *Extended `json:"extended,omitempty"`
}

// Status is the result of the tests of a level.
type Status struct {
	Result       string     `json:"result"`
	Statistics   Statistics `json:"statistics"`
	SkippedTests []string   `json:"skippedTests,omitempty"`
	FailedTests  []string   `json:"failedTests,omitempty"`
}

// Extended is the result of the tests of extended features.
type Extended struct {
	Status

	SupportedFeatures   []string `json:"supportedFeatures,omitempty"`
	UnsupportedFeatures []string `json:"unsupportedFeatures,omitempty"`
}

// Statistics are numbers of tests.
type Statistics struct {
	Passed  int `json:"Passed"`
	Skipped int `json:"Skipped"`
	Failed  int `json:"Failed"`
}

// ParseReport reads a report of one profile.
func ParseReport(text []byte) (*Report, error) {
	r := &Report{}
	if err := yaml.UnmarshalStrict(text, r); err != nil {
		return nil, fmt.Errorf("parse conformance report: %w", err)
	}
	if r.Kind != "ConformanceReport" || len(r.Profiles) != 1 || r.Profiles[0].Extended == nil {
		return nil, errors.New("parse conformance report: want a ConformanceReport with one profile and its extended features")
	}
	return r, nil
}

// KeptReport returns the report that the repository keeps.
func KeptReport() (*Report, error) {
	text, err := gatewayFiles.ReadFile("gateway-report.yaml")
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", ReportFile, err)
	}
	return ParseReport(text)
}

// Difference returns how another report differs in its results, or nothing. Dates and versions of the program are no results.
func (r *Report) Difference(other *Report) string {
	a, b := &r.Profiles[0], &other.Profiles[0]
	for _, pair := range [][3]string{
		{"gatewayAPIVersion", r.GatewayAPIVersion, other.GatewayAPIVersion},
		{"gatewayAPIChannel", r.GatewayAPIChannel, other.GatewayAPIChannel},
		{"core", a.Core.String(), b.Core.String()},
		{"extended", a.Extended.String(), b.Extended.String()},
		{"supportedFeatures", sorted(a.Extended.SupportedFeatures), sorted(b.Extended.SupportedFeatures)},
		{"unsupportedFeatures", sorted(a.Extended.UnsupportedFeatures), sorted(b.Extended.UnsupportedFeatures)},
	} {
		if pair[1] != pair[2] {
			return fmt.Sprintf("%s was %q and is %q", pair[0], pair[1], pair[2])
		}
	}
	return ""
}

// String has the numbers of a status, and the tests that did not pass.
func (s *Status) String() string {
	text := fmt.Sprintf("%d passed, %d skipped, %d failed", s.Statistics.Passed, s.Statistics.Skipped, s.Statistics.Failed)
	for _, list := range [][]string{s.SkippedTests, s.FailedTests} {
		if len(list) > 0 {
			text += "; " + sorted(list)
		}
	}
	return text
}

func sorted(names []string) string {
	return strings.Join(slices.Sorted(slices.Values(names)), ", ")
}

// WriteFeatures writes the features of a report as a table in Markdown, with the reasons for what is not supported.
func WriteFeatures(w io.Writer, r *Report, e *Expectations) error {
	p := &r.Profiles[0]
	rows := [][3]string{}
	reasons := map[string]string{}
	for _, x := range slices.Concat(e.Skip, e.Fail) {
		reasons[x.Test] = x.Reason
	}
	core := p.Core.Statistics
	rows = append(rows, [3]string{"core of Gateway, HTTPRoute and ReferenceGrant", fmt.Sprintf("%d of %d tests", core.Passed, core.Passed+core.Skipped+core.Failed), ""})
	for _, name := range slices.Sorted(slices.Values(slices.Concat(p.Core.SkippedTests, p.Core.FailedTests))) {
		if reasons[name] == "" {
			return fmt.Errorf("gateway.yaml has no reason for test %s", name)
		}
		rows = append(rows, [3]string{"test " + name, "no", reasons[name]})
	}
	for _, name := range slices.Sorted(slices.Values(p.Extended.SupportedFeatures)) {
		rows = append(rows, [3]string{name, "yes", ""})
	}
	for _, name := range slices.Sorted(slices.Values(p.Extended.UnsupportedFeatures)) {
		if e.Unsupported[name] == "" {
			return fmt.Errorf("gateway.yaml has no reason for feature %s", name)
		}
		rows = append(rows, [3]string{name, "no", e.Unsupported[name]})
	}
	if _, err := fmt.Fprintf(w, "Gateway API %s, %s channel, profile %s, of %s.\n\n| feature | supported | why not |\n|---|---|---|\n",
		r.GatewayAPIVersion, r.GatewayAPIChannel, p.Name, r.Date[:min(len(r.Date), len("2026-01-01"))]); err != nil {
		return fmt.Errorf("write features: %w", err)
	}
	for _, row := range rows {
		if _, err := fmt.Fprintf(w, "| %s | %s | %s |\n", row[0], row[1], row[2]); err != nil {
			return fmt.Errorf("write features: %w", err)
		}
	}
	return nil
}
