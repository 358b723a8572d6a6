package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type input struct {
	Text string `json:"text"`
}

type output struct {
	Counts map[string]int `json:"counts"`
}

func TestRunPassesWhenFilesAgree(t *testing.T) {
	t.Parallel()
	Run(t, "testdata", func(_ *testing.T, in *input) output { return countWords(in) })
}

func TestCheck(t *testing.T) {
	t.Parallel()
	calls := 0
	tests := []struct {
		name    string
		in, out string
		f       func(*input) output
		wantErr []string
	}{
		{name: "equal", in: "text: a", out: "counts:\n  a: 1\n", f: countWords},
		{
			name: "different", in: "text: a", out: "counts:\n  a: 2\n", f: countWords,
			wantErr: []string{"case.out.yaml differs", "-update", "2", "1"},
		},
		{name: "no output file", in: "text: a", f: countWords, wantErr: []string{"create it with -update"}},
		{name: "unknown field in input", in: "txt: a", out: "counts: {}\n", f: countWords, wantErr: []string{"case.in.yaml", `unknown field "txt"`}},
		{name: "unknown field in output", in: "text: a", out: "count: {}\n", f: countWords, wantErr: []string{"case.out.yaml", `unknown field "count"`}},
		{
			name: "output differs from run to run", in: "text: a", out: "counts:\n  a: 1\n",
			f: func(*input) output {
				calls++
				return output{Counts: map[string]int{"a": calls}}
			},
			wantErr: []string{"output differs between two runs"},
		},
		{
			name: "each run gets a new input", in: "text: a", out: "counts:\n  a: 1\n",
			f: func(in *input) output {
				out := countWords(in)
				in.Text = ""
				return out
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "case")
			write(t, path+inSuffix, tt.in)
			write(t, path+outSuffix, tt.out)

			err := runCase(path, tt.f, checkOutput[output])

			if tt.wantErr == nil {
				require.NoError(t, err)
			}
			for _, want := range tt.wantErr {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestCheckRewrites(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "case")
	write(t, path+inSuffix, "text: a")
	write(t, path+outSuffix, "anything: old")

	require.NoError(t, runCase(path, countWords, rewriteFile))

	got, err := os.ReadFile(path + outSuffix)
	require.NoError(t, err)
	assert.Equal(t, "counts:\n  a: 1\n", string(got))
}

func TestFindCases(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		files   []string
		want    []string
		wantErr string
	}{
		{name: "sorted, other files ignored", files: []string{"b.in.yaml", "a.in.yaml", "a.out.yaml", "c.yaml"}, want: []string{"a", "b"}},
		{name: "no cases", files: []string{"c.yaml"}, wantErr: "no *.in.yaml in"},
		{name: "output without input", files: []string{"a.in.yaml", "b.out.yaml"}, wantErr: "output without input"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, name := range tt.files {
				write(t, filepath.Join(dir, name), "x: 1")
			}

			cases, err := findCases(dir)

			if tt.wantErr != "" {
				require.ErrorContains(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			for i := range cases {
				cases[i] = filepath.Base(cases[i])
			}
			assert.Equal(t, tt.want, cases)
		})
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	assert.Equal(t, input{Text: "a"}, Decode[input](t, []byte("text: a")))
}

func countWords(in *input) output {
	counts := map[string]int{}
	for word := range strings.FieldsSeq(in.Text) {
		counts[word]++
	}
	return output{Counts: counts}
}

// write creates a file, unless content is empty.
func write(t *testing.T, path, content string) {
	t.Helper()
	if content != "" {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "page.html")
	require.ErrorContains(t, checkFile(path, []byte("a")), "create it with -update")
	require.NoError(t, rewriteFile(path, []byte("a")))
	require.ErrorContains(t, checkFile(path, []byte("b")), path+" differs (-want +got)")
	File(t, path, []byte("a"))
}
