// Package schema validates objects as the API server would: with the OpenAPI schemas of Kubernetes' own kinds in a minor version,
// and with those of CRDs. Validation is strict: an unknown field is an error, where the API server drops it. It does not evaluate CEL
// rules.
//
// `make chart` fetches the schemas and names their folder in the environment variable SCHEMAS.
package schema

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	sigsyaml "sigs.k8s.io/yaml"

	"fairlead.dev/deploy/charts/internal/helm"
)

// Where the compiler finds the schemas of Kubernetes, and in them those of the metadata of an object.
const (
	definitions = "schemas:///kubernetes.json"
	objectMeta  = definitions + "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
)

// Validator validates objects of one minor version of Kubernetes.
type Validator struct {
	compiler *jsonschema.Compiler
	places   map[schema.GroupVersionKind]string // of schemas
}

// New returns a Validator for a minor version of Kubernetes, such as 1.37, and for all CRDs.
func New(kubernetes string) (*Validator, error) {
	folder, err := folder()
	if err != nil {
		return nil, err
	}
	v := &Validator{compiler: jsonschema.NewCompiler(), places: map[schema.GroupVersionKind]string{}}
	if err := v.addKubernetes(filepath.Join(folder, "kubernetes.zip"), kubernetes); err != nil {
		return nil, fmt.Errorf("schemas of Kubernetes %s: %w", kubernetes, err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%s has no CRDs: delete it and run `make chart`", folder))
	}
	for _, file := range files {
		if err := v.addCRD(file); err != nil {
			return nil, fmt.Errorf("schema of CRD %s: %w", filepath.Base(file), err)
		}
	}
	return v, nil
}

// folder returns the folder of the schemas.
func folder() (string, error) {
	if folder := os.Getenv("SCHEMAS"); folder != "" {
		return folder, nil
	}
	found, err := filepath.Glob(filepath.Join(helm.Repository(), "bin", "cache", "schemas-*"))
	if err != nil || len(found) == 0 {
		return "", errors.Join(err, errors.New("no schemas: run `make chart`"))
	}
	return found[len(found)-1], nil
}

// Validate returns an error that lists what is wrong with an object.
func (v *Validator) Validate(o *unstructured.Unstructured) error {
	kind := o.GroupVersionKind()
	place, found := v.places[kind]
	if !found {
		return fmt.Errorf("no schema for %s", kind)
	}
	compiled, err := v.compiler.Compile(place)
	if err != nil {
		return fmt.Errorf("compile the schema of %s: %w", kind, err)
	}
	raw, err := o.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encode %s: %w", o.GetName(), err)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	if err != nil {
		return fmt.Errorf("decode %s: %w", o.GetName(), err)
	}
	if err := compiled.Validate(document); err != nil {
		return fmt.Errorf("%s %s: %w", kind.Kind, o.GetName(), err)
	}
	return nil
}

// addKubernetes adds the definitions of a version, which one file in the archive has.
func (v *Validator) addKubernetes(archive, version string) error {
	r, err := zip.OpenReader(archive)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer r.Close()
	raw, err := fs.ReadFile(r, "kubernetes_validate/kubernetes-json-schema/v"+version+".0-local-strict/_definitions.json")
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	var file struct {
		Definitions map[string]struct {
			Kinds []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	for name, definition := range file.Definitions {
		for _, kind := range definition.Kinds {
			v.places[kind] = definitions + "#/$defs/" + name
		}
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	delete(document.(map[string]any), "$id") // a path, which would replace the name here
	return v.compiler.AddResource(definitions, document)
}

// addCRD adds the schemas of a CRD.
func (v *Validator) addCRD(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd struct {
		Spec struct {
			Group    string
			Names    struct{ Kind string }
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema map[string]any }
			}
		}
	}
	if err := sigsyaml.Unmarshal(raw, &crd); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	for _, version := range crd.Spec.Versions {
		kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
		place := "schemas:///" + kind.Group + "/" + kind.Version + "/" + kind.Kind + ".json"
		document := version.Schema.OpenAPIV3Schema
		forbidUnknownFields(document)
		document["properties"].(map[string]any)["metadata"] = map[string]any{"$ref": objectMeta}
		if err := v.compiler.AddResource(place, document); err != nil {
			return err
		}
		v.places[kind] = place
	}
	return nil
}

// forbidUnknownFields closes the objects of a schema whose fields it lists. It leaves alternatives alone, which repeat some fields.
func forbidUnknownFields(s map[string]any) {
	properties, lists := s["properties"].(map[string]any)
	if _, says := s["additionalProperties"]; lists && !says && s["x-kubernetes-preserve-unknown-fields"] != true {
		s["additionalProperties"] = false
	}
	for _, property := range properties {
		forbidUnknownFields(property.(map[string]any))
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if below, ok := s[key].(map[string]any); ok {
			forbidUnknownFields(below)
		}
	}
}
