// Package golden runs a pure function against pairs of files: testdata/<case>.in.yaml contains the input, <case>.out.yaml the
// expected output. Name a case after the behavior that it shows. `go test -update` or `make golden` rewrites the outputs;
// review the diff before you commit it.
//
// Both files are decoded strictly, so a misspelled field is an error. Every case runs several times, so an output that depends on
// map order is an error too.
package golden

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const (
	inSuffix  = ".in.yaml"
	outSuffix = ".out.yaml"

	// repetitions of a case show a map of two keys with a probability of 999 in 1000.
	repetitions = 10
)

var update = flag.Bool("update", false, "rewrite the .out.yaml files of golden tests")

// Run calls f for every <case>.in.yaml in dir, each in a parallel subtest named after the case, and compares the result with
// <case>.out.yaml. An output without an input is an error, and so is a directory without cases.
func Run[In, Out any](t *testing.T, dir string, f func(t *testing.T, in In) Out) {
	t.Helper()
	cases, err := findCases(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(filepath.Base(c), func(t *testing.T) {
			t.Parallel()
			handle := checkOutput[Out]
			if *update {
				handle = rewriteFile
			}
			if err := runCase(c, func(in In) Out { return f(t, in) }, handle); err != nil {
				t.Error(err)
			}
		})
	}
}

// File compares got with the contents of a file in any format.
func File(t *testing.T, path string, got []byte) {
	t.Helper()
	handle := checkFile
	if *update {
		handle = rewriteFile
	}
	if err := handle(path, got); err != nil {
		t.Error(err)
	}
}

// Decode decodes YAML and fails the test for unknown fields.
func Decode[T any](t *testing.T, data []byte) T {
	t.Helper()
	v, err := decodeYAML[T](data)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// findCases returns the sorted paths of the cases in dir, without suffixes.
func findCases(dir string) ([]string, error) {
	inputs, err := filepath.Glob(filepath.Join(dir, "*"+inSuffix))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	if len(inputs) == 0 {
		return nil, fmt.Errorf("no *%s in %s", inSuffix, dir)
	}
	outputs, err := filepath.Glob(filepath.Join(dir, "*"+outSuffix))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	for _, out := range outputs {
		in := strings.TrimSuffix(out, outSuffix) + inSuffix
		if _, err := os.Stat(in); err != nil {
			return nil, fmt.Errorf("output without input: %w", err)
		}
	}
	cases := make([]string, 0, len(inputs))
	for _, in := range inputs {
		cases = append(cases, strings.TrimSuffix(in, inSuffix))
	}
	return cases, nil
}

// runCase calls f with the input of one case, and handle with the path of the output file and the output.
func runCase[In, Out any](path string, f func(In) Out, handle func(path string, got []byte) error) error {
	in, err := os.ReadFile(path + inSuffix)
	if err != nil {
		return err
	}
	got, err := runTwice(in, f)
	if err != nil {
		return fmt.Errorf("%s: %w", path+inSuffix, err)
	}
	return handle(path+outSuffix, got)
}

func rewriteFile(path string, got []byte) error {
	return os.WriteFile(path, got, 0o644)
}

func checkOutput[Out any](path string, got []byte) error {
	want, err := readFile(path)
	if err != nil {
		return err
	}
	if _, err := decodeYAML[Out](want); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return compareOutput(path, want, got)
}

func checkFile(path string, got []byte) error {
	want, err := readFile(path)
	if err != nil {
		return err
	}
	return compareOutput(path, want, got)
}

func readFile(path string) ([]byte, error) {
	want, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("create it with -update: %w", err)
	}
	return want, err
}

func compareOutput(path string, want, got []byte) error {
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		return fmt.Errorf("%s differs (-want +got), rewrite it with -update:\n%s", path, diff)
	}
	return nil
}

// runTwice returns the encoded output of f, or an error if two calls return different outputs.
func runTwice[In, Out any](data []byte, f func(In) Out) ([]byte, error) {
	first, err := runOnce(data, f)
	if err != nil {
		return nil, err
	}
	for range repetitions {
		again, err := runOnce(data, f)
		if err != nil {
			return nil, err
		}
		if diff := cmp.Diff(string(first), string(again)); diff != "" {
			return nil, fmt.Errorf("output differs between two runs (-first +again):\n%s", diff)
		}
	}
	return first, nil
}

// runOnce decodes the input for each call, because f can modify it.
func runOnce[In, Out any](data []byte, f func(In) Out) ([]byte, error) {
	in, err := decodeYAML[In](data)
	if err != nil {
		return nil, err
	}
	out, err := yaml.Marshal(f(in))
	if err != nil {
		return nil, fmt.Errorf("encode output: %w", err)
	}
	return out, nil
}

func decodeYAML[T any](data []byte) (T, error) {
	var v T
	if err := yaml.UnmarshalStrict(data, &v); err != nil {
		return v, fmt.Errorf("decode: %w", err)
	}
	return v, nil
}
