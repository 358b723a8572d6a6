// Package helm renders the charts of the repository for tests.
//
// It runs the command in the environment variable HELM, which `make chart` sets. Without it, it runs the helm of bin/localkube,
// which `make local` builds. A relative path is that of a file in the repository.
package helm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// Values are the values of a chart.
type Values = map[string]any

// Repository returns the root of the repository.
func Repository() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(fmt.Sprintf("working directory: %v", err)) // not reached: tests run in the folder of their package
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			panic("no folder above has a go.work")
		}
		dir = parent
	}
}

// Template renders a chart with values and returns its objects.
func Template(chart string, values Values, args ...string) ([]*unstructured.Unstructured, error) {
	out, err := Run(values, append([]string{"template", "release", chart, "--namespace", "system"}, args...)...)
	if err != nil {
		return nil, err
	}
	return Objects([]byte(out))
}

// Notes returns the text that an installation of the chart prints.
func Notes(chart string, values Values) (string, error) {
	out, err := Run(values, "install", "release", chart, "--namespace", "system", "--dry-run=client")
	if err != nil {
		return "", err
	}
	_, notes, found := strings.Cut(out, "\nNOTES:\n")
	if !found {
		return "", fmt.Errorf("install of %s prints no notes", chart)
	}
	return notes, nil
}

// Command returns the command of helm and its first arguments: HELM in the environment, or the helm of the local cluster.
func Command() []string {
	command := strings.Fields(os.Getenv("HELM"))
	if len(command) == 0 {
		command = []string{"bin/localkube", "helm"}
	}
	if program := command[0]; strings.Contains(program, "/") && !filepath.IsAbs(program) {
		command[0] = filepath.Join(Repository(), program)
	}
	return command
}

// Run runs helm with a file of values and returns its output.
func Run(values Values, args ...string) (string, error) {
	command := Command()
	raw, err := sigsyaml.Marshal(values)
	if err != nil {
		return "", fmt.Errorf("encode values: %w", err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(command[0], append(append(command[1:], args...), "--values", "-")...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(raw), &stdout, &stderr
	switch err := cmd.Run(); {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("%w: run `make chart`, or `make local` first", err)
	case err != nil:
		return "", fmt.Errorf("helm %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Objects returns the objects of a YAML stream.
func Objects(raw []byte) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	var objects []*unstructured.Unstructured
	for {
		u := &unstructured.Unstructured{}
		switch err := decoder.Decode(&u.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("decode: %w", err)
		case len(u.Object) > 0:
			objects = append(objects, u)
		}
	}
}

// ReadValues reads a file of values.
func ReadValues(file string) (Values, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read values: %w", err)
	}
	values := Values{}
	if err := sigsyaml.UnmarshalStrict(raw, &values); err != nil {
		return nil, fmt.Errorf("read values of %s: %w", file, err)
	}
	return values, nil
}
