// Package golden compares a pure function with pairs of files: testdata/<case>.in.yaml holds its input, <case>.out.yaml
// what it must return. A pair is named for the behaviour it shows; `go test -update`, or `make golden`, writes the
// outputs anew, to be read in the diff before they are committed.
//
// Both files are decoded strictly, so a misspelt field is an error, and every case runs twice, so an output that depends
// on map order is one too.
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
)

var update = flag.Bool("update", false, "write the .out.yaml files of golden tests anew")

// Run runs f on every <case>.in.yaml of dir, each as a parallel subtest named for its case, and compares what it returns
// with <case>.out.yaml. An output without an input is an error, and so is a folder without cases.
func Run[In, Out any](t *testing.T, dir string, f func(t *testing.T, in In) Out) {
	t.Helper()
	cases, err := findCases(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(filepath.Base(c), func(t *testing.T) {
			t.Parallel()
			handle := check[Out]
			if *update {
				handle = rewrite
			}
			if err := runCase(c, func(in In) Out { return f(t, in) }, handle); err != nil {
				t.Error(err)
			}
		})
	}
}

// File compares what a file of any kind holds with what it must hold.
func File(t *testing.T, path string, got []byte) {
	t.Helper()
	handle := same
	if *update {
		handle = rewrite
	}
	if err := handle(path, got); err != nil {
		t.Error(err)
	}
}

// Decode decodes YAML and fails the test for fields that T does not have.
func Decode[T any](t *testing.T, data []byte) T {
	t.Helper()
	v, err := decode[T](data)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// findCases returns the paths of the cases in dir, without suffixes, in order.
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

// runCase runs f on the input of one case and hands the output on with the path of its file.
func runCase[In, Out any](path string, f func(In) Out, handle func(path string, got []byte) error) error {
	in, err := os.ReadFile(path + inSuffix)
	if err != nil {
		return err
	}
	got, err := run(in, f)
	if err != nil {
		return fmt.Errorf("%s: %w", path+inSuffix, err)
	}
	return handle(path+outSuffix, got)
}

func rewrite(path string, got []byte) error {
	return os.WriteFile(path, got, 0o644)
}

func check[Out any](path string, got []byte) error {
	want, err := read(path)
	if err != nil {
		return err
	}
	if _, err := decode[Out](want); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return compare(path, want, got)
}

func same(path string, got []byte) error {
	want, err := read(path)
	if err != nil {
		return err
	}
	return compare(path, want, got)
}

func read(path string) ([]byte, error) {
	want, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("make it with -update: %w", err)
	}
	return want, err
}

func compare(path string, want, got []byte) error {
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		return fmt.Errorf("%s differs (-want +got), -update writes it anew:\n%s", path, diff)
	}
	return nil
}

// run returns the encoded output, the same both times.
func run[In, Out any](data []byte, f func(In) Out) ([]byte, error) {
	first, err := runOnce(data, f)
	if err != nil {
		return nil, err
	}
	second, err := runOnce(data, f)
	if err != nil {
		return nil, err
	}
	if diff := cmp.Diff(string(first), string(second)); diff != "" {
		return nil, fmt.Errorf("one input gave two outputs (-first +second):\n%s", diff)
	}
	return first, nil
}

// runOnce decodes an input of its own, as f may change what it is given.
func runOnce[In, Out any](data []byte, f func(In) Out) ([]byte, error) {
	in, err := decode[In](data)
	if err != nil {
		return nil, err
	}
	out, err := yaml.Marshal(f(in))
	if err != nil {
		return nil, fmt.Errorf("encode output: %w", err)
	}
	return out, nil
}

func decode[T any](data []byte) (T, error) {
	var v T
	if err := yaml.UnmarshalStrict(data, &v); err != nil {
		return v, fmt.Errorf("decode: %w", err)
	}
	return v, nil
}
