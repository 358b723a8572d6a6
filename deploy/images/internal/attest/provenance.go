package attest

import (
	"encoding/json"
	"regexp"
)

// Types of the provenance: https://slsa.dev/spec/v1.0/provenance.
const (
	statementType = "https://in-toto.io/Statement/v1"
	PredicateType = "https://slsa.dev/provenance/v1"
	buildType     = "https://fairlead.dev/build/image/v1"
	builder       = "https://fairlead.dev/build/make"
)

// fullCommit matches a commit without uncommitted changes; with them it is <commit>-dirty.
var fullCommit = regexp.MustCompile(`^[0-9a-f]{40}$`)

type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     predicate  `json:"predicate"`
}

type predicate struct {
	BuildDefinition buildDefinition `json:"buildDefinition"`
	RunDetails      runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	BuildType            string             `json:"buildType"`
	ExternalParameters   externalParameters `json:"externalParameters"`
	InternalParameters   map[string]setting `json:"internalParameters"`
	ResolvedDependencies []resource         `json:"resolvedDependencies"`
}

type externalParameters struct {
	Image    string `json:"image"`
	Version  string `json:"version"`
	Source   string `json:"source"`
	Revision string `json:"revision"`
}

// setting contains the build settings of the program of a platform.
type setting struct {
	Go       string            `json:"go"`
	Package  string            `json:"package"`
	Settings map[string]string `json:"settings"`
}

type runDetails struct {
	Builder builderID `json:"builder"`
}

type builderID struct {
	ID string `json:"id"`
}

// Provenance returns a statement about the index and the images of all platforms. It is unsigned: the builder's claim, SLSA
// build level 1. It contains no times, so that the same build gives the same document.
func Provenance(b Build, index string, programs []Program) ([]byte, error) {
	s := statement{Type: statementType, PredicateType: PredicateType, Subject: []resource{subject(b.Name, index)}}
	compiled := map[string]setting{}
	for _, p := range programs {
		s.Subject = append(s.Subject, subject(b.Name+" "+p.Platform, p.Image))
		settings := map[string]string{}
		for _, kv := range p.Info.Settings {
			settings[kv.Key] = kv.Value
		}
		compiled[p.Platform] = setting{Go: p.Info.GoVersion, Package: p.Info.Path, Settings: settings}
	}
	source := resource{URI: "git+" + b.Source + "@" + b.Revision}
	if fullCommit.MatchString(b.Revision) {
		source.Digest = map[string]string{"gitCommit": b.Revision}
	}
	s.Predicate = predicate{
		BuildDefinition: buildDefinition{BuildType: buildType, InternalParameters: compiled, ResolvedDependencies: []resource{source},
			ExternalParameters: externalParameters{Image: b.Name, Version: b.Version, Source: b.Source, Revision: b.Revision}},
		RunDetails: runDetails{Builder: builderID{ID: builder}},
	}
	return json.Marshal(s)
}

func subject(name, sha256 string) resource {
	return resource{Name: name, Digest: map[string]string{"sha256": sha256}}
}
