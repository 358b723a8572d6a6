package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const lanes = "testdata/lanes"

// TestCheck compares the problems with the comments of the form "want name" in the files of testdata.
func TestCheck(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(lanes, "*_test.go"))
	require.NoError(t, err)
	var want []string
	for _, file := range files {
		want = append(want, wanted(t, file)...)
	}
	require.NotEmpty(t, want)

	problems, err := checkFolders([]string{lanes})
	require.NoError(t, err)
	var got []string
	position := regexp.MustCompile(`^([^:]+:\d+):\d+: (\S+) in the (first|system) lane: .+`)
	for _, p := range problems {
		parts := position.FindStringSubmatch(p)
		require.NotNil(t, parts, p)
		got = append(got, parts[1]+" "+parts[2])
	}
	assert.ElementsMatch(t, want, got)
}

func wanted(t *testing.T, path string) []string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var want []string
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; lines.Scan(); n++ {
		if _, name, found := strings.Cut(lines.Text(), "// want "); found {
			want = append(want, fmt.Sprintf("%s:%d %s", path, n, name))
		}
	}
	return want
}

func TestList(t *testing.T) {
	t.Parallel()
	for lane, want := range map[string]string{
		firstLane:  "./.\t^(TestAlone|TestBubble|TestFirst|TestImport|TestNamed|TestParallel|TestRunners)$\n",
		systemLane: "./.\t^(FuzzSystem|TestBoth|TestSystem)$\n",
		longLane:   "./.\t^(TestBoth|TestLong)$\n",
	} {
		var out bytes.Buffer
		problems, err := run([]string{"list", lane, lanes}, &out)
		require.NoError(t, err)
		assert.Empty(t, problems)
		assert.Equal(t, want, out.String(), lane)
	}
}

func TestRun_RefusesUnknownArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"check"}, {"list", "system"}, {"show", "x"}} {
		_, err := run(args, nil)
		require.Error(t, err, args)
	}
	_, err := run([]string{"check", "testdata/missing"}, nil)
	require.ErrorContains(t, err, "missing")
}

// TestConstraintThatNoLaneCompiles checks that a test is not left out because of a mistake in its constraint.
func TestConstraintThatNoLaneCompiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x_test.go"), []byte("//go:build system && long\n\npackage x\n"), 0o600))
	_, err := checkFolders([]string{dir})
	require.ErrorContains(t, err, "no lane compiles it")
}
