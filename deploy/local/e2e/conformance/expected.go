package conformance

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"
)

//go:embed expected.yaml
var expectedFile []byte

// Expectations are the expected results of all tests of the suite.
type Expectations struct {
	Pass []string `json:"pass"`
	// Fail has the tests that must fail. A test that passes nevertheless is a difference, so the list stays true.
	Fail []Exception `json:"fail"`
	// Unstable has the tests that may fail.
	Unstable []Exception `json:"unstable"`
	// Skip has the tests that do not run.
	Skip []Exception `json:"skip"`
	// Features are the extended features that the suite checks, beside those of the core.
	Features []string `json:"features,omitempty"`
	// Unsupported has the reason for each extended feature that is not supported.
	Unsupported map[string]string `json:"unsupported,omitempty"`
}

// Exception is a test that need not pass.
type Exception struct {
	Test string `json:"test"`
	// Subtest is the path of the only subtest that fails, with everything below it. If it is empty, any part of the test can fail.
	Subtest string `json:"subtest,omitempty"`
	Reason  string `json:"reason"`
}

// Expected returns the expectations for the suite of the Gateway API Inference Extension.
func Expected() (*Expectations, error) { return parseExpectations(expectedFile) }

// ExpectedOfGateways returns the expectations for the suite of the Gateway API.
func ExpectedOfGateways() (*Expectations, error) {
	text, err := gatewayFiles.ReadFile("gateway.yaml")
	if err != nil {
		return nil, fmt.Errorf("read expected results: %w", err)
	}
	return parseExpectations(text)
}

func parseExpectations(text []byte) (*Expectations, error) {
	var e Expectations
	if err := yaml.UnmarshalStrict(text, &e); err != nil {
		return nil, fmt.Errorf("parse expected results: %w", err)
	}
	names := slices.Clone(e.Pass)
	for _, x := range slices.Concat(e.Fail, e.Unstable, e.Skip) {
		if x.Reason == "" {
			return nil, fmt.Errorf("parse expected results: test %q has no reason", x.Test)
		}
		names = append(names, x.Test)
	}
	slices.Sort(names)
	for i, name := range names {
		switch {
		case name == "":
			return nil, errors.New("parse expected results: a test has no name")
		case i > 0 && names[i-1] == name:
			return nil, fmt.Errorf("parse expected results: test %q is listed twice", name)
		}
	}
	return &e, nil
}

// Only returns the expectations of one test.
func (e *Expectations) Only(test string) *Expectations {
	other := func(x Exception) bool { return x.Test != test }
	return &Expectations{
		Pass:     slices.DeleteFunc(slices.Clone(e.Pass), func(name string) bool { return name != test }),
		Fail:     slices.DeleteFunc(slices.Clone(e.Fail), other),
		Unstable: slices.DeleteFunc(slices.Clone(e.Unstable), other),
		Features: e.Features, Unsupported: e.Unsupported,
	}
}

// Skips reports whether a test does not run.
func (e *Expectations) Skips(test string) bool {
	return slices.ContainsFunc(e.Skip, func(x Exception) bool { return x.Test == test })
}
