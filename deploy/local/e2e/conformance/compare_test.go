package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseLine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		give   string
		want   Result
		wantOK bool
	}{
		{name: "a test", give: "\x16--- PASS: TestConformance/InferencePoolAccepted (1.25s)\n",
			want: Result{Test: "InferencePoolAccepted", Outcome: Pass, Took: 1250 * time.Millisecond}, wantOK: true},
		{name: "a subtest with a slash in its name", give: "\x16--- FAIL: TestConformance/A/HTTP/2_pool/pod_x-1 (30.00s)",
			want: Result{Test: "A", Subtest: "HTTP/2_pool/pod_x-1", Outcome: Fail, Took: 30 * time.Second}, wantOK: true},
		{name: "a skipped test", give: "\x16--- SKIP: TestConformance/A (0.00s)", want: Result{Test: "A", Outcome: Skip}, wantOK: true},
		{name: "the suite", give: "\x16--- PASS: TestConformance (601.00s)", want: Result{Outcome: Pass, Took: 601 * time.Second}, wantOK: true},
		{name: "after a line without an end", give: "skipping...\x16--- PASS: TestConformance/A (0.00s)", want: Result{Test: "A", Outcome: Pass}, wantOK: true},
		{name: "a carriage return", give: "\x16--- PASS: TestConformance/A (0.00s)\r\n", want: Result{Test: "A", Outcome: Pass}, wantOK: true},
		{name: "the start of a test", give: "\x16=== RUN   TestConformance/A"},
		{name: "a log without the mark", give: "    helpers.go:42: --- PASS: TestConformance/A (0.00s)"},
		{name: "another test", give: "\x16--- PASS: TestConformanceOfOthers/A (0.00s)"},
		{name: "an invalid duration", give: "\x16--- PASS: TestConformance/A (1.2.3s)"},
		{name: "nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ok := ParseLine(tt.give)
			assert.Equal(t, tt.wantOK, ok)
			assert.Equal(t, tt.want, got)
		})
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add("\x16--- PASS: TestConformance/A/b (1.25s)\n")
	f.Fuzz(func(t *testing.T, line string) {
		r, ok := ParseLine(line)
		if !ok {
			assert.Zero(t, r)
			return
		}
		assert.Contains(t, []Outcome{Pass, Fail, Skip}, r.Outcome)
		assert.NotContains(t, r.Test, "/")
		assert.GreaterOrEqual(t, r.Took, time.Duration(0))
	})
}

func TestCompare(t *testing.T) {
	t.Parallel()
	part := func(subtest string, o Outcome) Result { return Result{Test: "A", Subtest: subtest, Outcome: o} }
	expectPass := Expectations{Pass: []string{"A"}}
	expectFail := Expectations{Fail: []Exception{{Test: "A", Reason: "r"}}}
	expectPart := Expectations{Fail: []Exception{{Test: "A", Subtest: "HTTP/2", Reason: "r"}}}
	unstable := Expectations{Unstable: []Exception{{Test: "A", Reason: "r"}}}
	tests := []struct {
		name   string
		expect Expectations
		give   []Result
		want   string
	}{
		{name: "passes as expected", expect: expectPass, give: []Result{part("", Pass)}},
		{name: "fails", expect: expectPass, give: []Result{part("", Fail)}, want: "failed"},
		{name: "did not run", expect: expectPass, want: "has no result"},
		{name: "was skipped", expect: expectPass, give: []Result{part("", Skip)}, want: "was skipped"},
		{name: "fails as expected", expect: expectFail, give: []Result{part("any", Fail), part("", Fail)}},
		{name: "passes against the list", expect: expectFail, give: []Result{part("", Pass)}, want: "passed: list it as one that passes"},
		{name: "expected to fail, did not run", expect: expectFail, want: "has no result"},
		{name: "expected to fail, was skipped", expect: expectFail, give: []Result{part("", Skip)}, want: "was skipped"},
		{name: "the expected part fails", expect: expectPart,
			give: []Result{part("HTTP/2/pod-1", Fail), part("HTTP/2/pod-2", Pass), part("HTTP/2", Fail), part("default", Pass), part("", Fail)}},
		{name: "another part fails, too", expect: expectPart,
			give: []Result{part("HTTP/2", Fail), part("default/pod-1", Fail), part("default", Fail), part("HTTP/1.1", Fail), part("", Fail)},
			want: "failed in default, HTTP/1.1"},
		{name: "a part whose name begins alike fails", expect: expectPart, give: []Result{part("HTTP/2", Fail), part("HTTP/22", Fail), part("", Fail)},
			want: "failed in HTTP/22"},
		{name: "fails before the expected part", expect: expectPart, give: []Result{part("", Fail)}, want: "did not fail in HTTP/2"},
		{name: "passes with the expected part", expect: expectPart, give: []Result{part("HTTP/2", Pass), part("", Pass)},
			want: "passed: list it as one that passes"},
		{name: "unstable, passes", expect: unstable, give: []Result{part("", Pass)}},
		{name: "unstable, fails", expect: unstable, give: []Result{part("", Fail)}},
		{name: "unstable, did not run", expect: unstable, want: "has no result"},
		{name: "is not listed", give: []Result{part("", Pass)}, want: "is not listed in expected.yaml"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rows := Compare(&tt.expect, append(tt.give, Result{Outcome: Fail})) // the last one is the suite's
			require.Len(t, rows, 1)
			assert.Equal(t, "A", rows[0].Test)
			assert.Equal(t, tt.want, rows[0].Difference)
			assert.Equal(t, tt.want != "", Differences(rows) == 1)
		})
	}
}

func TestWriteTable(t *testing.T) {
	t.Parallel()
	e := Expectations{Pass: []string{"B", "C"}, Fail: []Exception{{Test: "A", Reason: "the gateway"}}}
	rows := Compare(&e, []Result{{Test: "B", Outcome: Fail, Took: 1500 * time.Millisecond}, {Test: "A", Outcome: Fail, Took: 30 * time.Second}})
	var b strings.Builder
	require.NoError(t, WriteTable(&b, rows))
	assert.Equal(t, `TEST  RESULT  SECONDS  EXPECTED  REASON
A     FAIL    30.0     fail      the gateway
B     FAIL    1.5      pass      
C             0.0      pass      
B: failed
C: has no result
`, b.String())
}

func TestExpected_ListsEachTestOnce(t *testing.T) {
	t.Parallel()
	e, err := Expected()
	require.NoError(t, err)
	assert.Len(t, Compare(e, nil), 14, "tests of the suite v1.6.0")
	assert.Len(t, Compare(e.Only("InferencePoolAppProtocol"), nil), 1)
	assert.Empty(t, Compare(e.Only("Other"), nil))
}

func TestParseExpectations_Errors(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "twice", give: "pass: [A]\nunstable: [{test: A, reason: r}]", want: `test "A" is listed twice`},
		{name: "no reason", give: "fail: [{test: A}]", want: `test "A" has no reason`},
		{name: "no name", give: "fail: [{reason: r}]", want: "a test has no name"},
		{name: "an unknown field", give: "fails: []", want: `unknown field "fails"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := parseExpectations([]byte(tt.give))
			require.ErrorContains(t, err, tt.want)
		})
	}
}
