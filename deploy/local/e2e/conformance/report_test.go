package conformance

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/golden"
)

// document has the table of features.
const document = "../../../../docs/services/backendset-syncer-conformance.md"

// Marks of the table in the document.
const (
	begin = "<!-- begin: features -->\n"
	end   = "<!-- end: features -->\n"
)

// TestDocumentHasTheReport compares the table in the document with the report. With -update, it writes the table.
func TestDocumentHasTheReport(t *testing.T) {
	t.Parallel()
	report, err := KeptReport()
	require.NoError(t, err)
	expected, err := ExpectedOfGateways()
	require.NoError(t, err)
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok, "the document has no mark %q", begin)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "the document has no mark %q", end)
	var table bytes.Buffer
	require.NoError(t, WriteFeatures(&table, report, expected))
	golden.File(t, document, []byte(before+begin+table.String()+end+after))
}

// TestKeptReportIsAsExpected compares the report with the expected results: nobody keeps a report of a run that failed.
func TestKeptReportIsAsExpected(t *testing.T) {
	t.Parallel()
	report, err := KeptReport()
	require.NoError(t, err)
	expected, err := ExpectedOfGateways()
	require.NoError(t, err)
	p := &report.Profiles[0]
	assert.Empty(t, p.Core.FailedTests)
	assert.Empty(t, p.Extended.FailedTests)
	var skipped []string
	for _, x := range expected.Skip {
		skipped = append(skipped, x.Test)
	}
	assert.ElementsMatch(t, skipped, append(p.Core.SkippedTests, p.Extended.SkippedTests...))
	assert.ElementsMatch(t, expected.Features, p.Extended.SupportedFeatures)
	assert.Equal(t, len(expected.Pass), p.Core.Statistics.Passed+p.Extended.Statistics.Passed)
	assert.ElementsMatch(t, slices.Collect(maps.Keys(expected.Unsupported)), p.Extended.UnsupportedFeatures)
}

func TestParseReport_Errors(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "another kind", give: "kind: Report", want: "want a ConformanceReport"},
		{name: "no profile", give: "kind: ConformanceReport", want: "with one profile"},
		{name: "an unknown field", give: "kinds: []", want: `unknown field "kinds"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseReport([]byte(tt.give))
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestReport_Difference(t *testing.T) {
	t.Parallel()
	report := func(passed int, failed ...string) *Report {
		return &Report{Date: "today", Profiles: []Profile{{Core: Status{Statistics: Statistics{Passed: passed, Failed: len(failed)}, FailedTests: failed}, Extended: &Extended{}}}}
	}
	later := report(2)
	later.Date = "tomorrow"
	assert.Empty(t, report(2).Difference(later), "a date is no result")
	assert.Equal(t, `core was "2 passed, 0 skipped, 0 failed" and is "1 passed, 0 skipped, 1 failed; A"`, report(2).Difference(report(1, "A")))
	other := report(2)
	other.Profiles[0].Extended.SupportedFeatures = []string{"B", "A"}
	assert.Equal(t, `supportedFeatures was "" and is "A, B"`, report(2).Difference(other))
}

func TestWriteFeatures_NeedsReasons(t *testing.T) {
	t.Parallel()
	r := &Report{Profiles: []Profile{{Extended: &Extended{UnsupportedFeatures: []string{"A"}}}}}
	require.ErrorContains(t, WriteFeatures(&bytes.Buffer{}, r, &Expectations{}), "no reason for feature A")
	r = &Report{Profiles: []Profile{{Core: Status{SkippedTests: []string{"B"}}, Extended: &Extended{}}}}
	require.ErrorContains(t, WriteFeatures(&bytes.Buffer{}, r, &Expectations{}), "no reason for test B")
}

func TestExpectedOfGateways(t *testing.T) {
	t.Parallel()
	e, err := ExpectedOfGateways()
	require.NoError(t, err)
	rows := Compare(e, []Result{{Test: e.Skip[0].Test, Outcome: Skip}, {Test: e.Skip[1].Test, Outcome: Pass}})
	differences := map[string]string{}
	for _, r := range rows {
		differences[r.Test] = r.Difference
	}
	assert.Empty(t, differences[e.Skip[0].Test])
	assert.Equal(t, "was not skipped", differences[e.Skip[1].Test])
	assert.Equal(t, noResult, differences[e.Pass[0]])
}
