package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSolve(t *testing.T) {
	t.Parallel()
	const problem = `{"split":"capacity","groups":[{"model":"m","priority":1,"rate":21000000,"variants":[` +
		`{"name":"a","cards":1,"cost":40000000,"capacity":15000000},{"name":"l","cards":1,"cost":23000000,"capacity":7000000}]}]}`
	var out bytes.Buffer
	require.NoError(t, answerProblems(strings.NewReader(problem+"\nsolve\n"+problem+"\nsolve\n"), &out))
	const answer = "ready\n" + `{"replicas":[1,1],"capacities":[15000000,7000000],"acted":[1,1],"bound":63000000}` + "\n"
	assert.Equal(t, answer+answer, out.String())
}

// TestSolveWithLimits has limits of each unit. The unit of a limit without one is cards.
func TestSolveWithLimits(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]string{
		`"cards":2`:                "[1,0]",
		`"unit":"cards","cards":1`: "[0,1]",
		`"unit":"replicas","namespace":"x","cards":1`: "[1,0]",
		`"unit":"replicas","namespace":"y","cards":1`: "[0,3]",
		`"unit":"cost","cards":46000000`:              "[0,2]",
	} {
		problem := `{"split":"capacity","limits":[{` + limit + `}],"groups":[{"namespace":"x","priority":1,"rate":21000000,"variants":[` +
			`{"name":"a","accelerator":"A100","cards":2,"cost":70000000,"capacity":15000000},{"name":"l","cards":1,"cost":23000000,"capacity":7000000}]}]}`
		var out bytes.Buffer
		require.NoError(t, answerProblems(strings.NewReader(problem+"\nsolve\n"), &out))
		assert.Contains(t, out.String(), `{"replicas":`+want, limit)
	}
}

func TestSolveRefuses(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"x\n":                            "parse problem: invalid character",
		`{"groups":[]}` + "\nplan\n":     `the line after a problem must be "solve"`,
		`{"groups":[]}`:                  "read problem: EOF",
		`{"split":"half"}` + "\nsolve\n": `problem: split "half" is not one of capacity, equal, observed`,
		`{"split":"equal","groups":[{"rate":-1}]}` + "\nsolve\n": "problem: group 0: the rate is -1",
	} {
		var out bytes.Buffer
		require.ErrorContains(t, answerProblems(strings.NewReader(input), &out), want)
	}
}
