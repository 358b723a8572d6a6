// Package crd checks that the CRD of a cluster has all fields of VariantAutoscaling. The API server drops fields that a CRD does not have
// without an error, and Helm never upgrades CRDs: a cluster that has had a released workload variant autoscaler keeps its CRD, with fewer
// fields, and with defaults that hide which fields a user wrote.
//
// The CRD itself says what it has. Without permission to read it, the OpenAPI document of the API server does, which every authenticated
// client may read.
package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"fairlead.dev/pkg/apis/llmd/v1alpha1"
)

const (
	// Name is the name of the CRD.
	Name = "variantautoscalings.llmd.ai"
	// Remedy is the command that replaces the CRD of a cluster. It is run in the folder of the charts, of the installed version.
	Remedy = "kubectl apply --server-side --force-conflicts -f charts/variant-autoscaler/crds/llmd.ai_variantautoscalings.yaml"

	crdPath     = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + Name
	openAPIPath = "/openapi/v3/apis/llmd.ai/v1alpha1"
	statusPath  = "/apis/llmd.ai/v1alpha1/namespaces/{namespace}/variantautoscalings/{name}/status"
	// statusSubresource is in Missing if status is not a subresource: writes of a status find nothing then.
	statusSubresource = "the subresource status"
)

// unneeded are fields that are only kept readable for other programs.
var unneeded = []string{
	"status.currentAlloc.accelerator", "status.currentAlloc.maxBatch", "status.currentAlloc.variantCost", "status.currentAlloc.itlAverage",
	"status.currentAlloc.ttftAverage", "status.currentAlloc.load",
}

// ownPackage has the types whose fields are compared.
var ownPackage = reflect.TypeFor[v1alpha1.VariantAutoscaling]().PkgPath()

// State is what the CRD of a cluster is like.
type State struct {
	// Installed reports whether the cluster has the CRD, and serves v1alpha1.
	Installed bool
	// Missing are the fields that the API server drops, without the fields in them.
	Missing []string
	// Defaults are the fields of the spec that the API server sets if a user does not.
	Defaults []string
}

// AsError returns nil for a CRD that can be used, or an error that names what is wrong with it and the remedy.
func (s *State) AsError() error {
	if !s.Installed {
		return fmt.Errorf("the cluster does not have the CRD %s: run `%s`", Name, Remedy)
	}
	var faults []string
	if len(s.Missing) > 0 {
		faults = append(faults, "lacks "+strings.Join(s.Missing, ", "))
	}
	if len(s.Defaults) > 0 {
		faults = append(faults, "sets defaults of "+strings.Join(s.Defaults, ", "))
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("the CRD %s is of another version: it %s. Helm does not upgrade CRDs: run `%s`", Name, strings.Join(faults, ", and "), Remedy)
}

// Checker reads the CRD of a cluster.
type Checker struct {
	client rest.Interface
}

// New returns a Checker. Any client of the API server's root will do, such as the RESTClient of a discovery client.
func New(client rest.Interface) *Checker {
	return &Checker{client: client}
}

// Check reads the CRD. The service needs no permission for it, and uses the one to get the CRD if it has it.
func (c *Checker) Check(ctx context.Context) (State, error) {
	text, err := c.client.Get().AbsPath(crdPath).Do(ctx).Raw()
	switch {
	case apierrors.IsNotFound(err):
		return State{}, nil
	case apierrors.IsForbidden(err):
		return c.checkOpenAPI(ctx)
	case err != nil:
		return State{}, fmt.Errorf("get CRD %s: %w", Name, err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Name   string `json:"name"`
				Served bool   `json:"served"`
				Schema struct {
					Schema node `json:"openAPIV3Schema"`
				} `json:"schema"`
				Subresources struct {
					Status *struct{} `json:"status"`
				} `json:"subresources"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(text, &crd); err != nil {
		return State{}, fmt.Errorf("decode CRD %s: %w", Name, err)
	}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Name == v1alpha1.SchemeGroupVersion.Version && v.Served {
			state := stateOf(&v.Schema.Schema)
			if v.Subresources.Status == nil {
				state.Missing = append(state.Missing, statusSubresource)
			}
			return state, nil
		}
	}
	return State{}, nil
}

func (c *Checker) checkOpenAPI(ctx context.Context) (State, error) {
	text, err := c.client.Get().AbsPath(openAPIPath).SetHeader("Accept", "application/json").Do(ctx).Raw()
	switch {
	case apierrors.IsNotFound(err):
		return State{}, nil
	case err != nil:
		return State{}, fmt.Errorf("get OpenAPI document of %s: %w", v1alpha1.SchemeGroupVersion, err)
	}
	var document struct {
		Paths      map[string]json.RawMessage `json:"paths"`
		Components struct {
			Schemas map[string]struct {
				node
				Kinds []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return State{}, fmt.Errorf("decode OpenAPI document of %s: %w", v1alpha1.SchemeGroupVersion, err)
	}
	kind := metav1.GroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("VariantAutoscaling"))
	for _, s := range document.Components.Schemas {
		if slices.Contains(s.Kinds, kind) {
			state := stateOf(&s.node)
			if _, ok := document.Paths[statusPath]; !ok {
				state.Missing = append(state.Missing, statusSubresource)
			}
			return state, nil
		}
	}
	return State{}, errors.New("the OpenAPI document of " + v1alpha1.SchemeGroupVersion.String() + " has no VariantAutoscaling yet")
}

// node is the part of a schema that decides which fields the API server keeps.
type node struct {
	Properties map[string]*node `json:"properties"`
	Items      *node            `json:"items"`
	Default    json.RawMessage  `json:"default"`
	Preserve   bool             `json:"x-kubernetes-preserve-unknown-fields"`
}

// stateOf compares a schema with the Go type, so that a new field cannot be forgotten here.
func stateOf(schema *node) State {
	s := State{Installed: true}
	for _, part := range []struct {
		name string
		kind reflect.Type
	}{{"spec", reflect.TypeFor[v1alpha1.VariantAutoscalingSpec]()}, {"status", reflect.TypeFor[v1alpha1.VariantAutoscalingStatus]()}} {
		s.addDifferences(part.name, part.kind, schema.Properties[part.name])
	}
	return s
}

// addDifferences adds the fields of a Go type that a schema lacks, and the defaults of the schema.
func (s *State) addDifferences(path string, kind reflect.Type, schema *node) {
	if slices.Contains(unneeded, path) {
		return
	}
	if schema == nil {
		s.Missing = append(s.Missing, path)
		return
	}
	if schema.Default != nil {
		s.Defaults = append(s.Defaults, path)
	}
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	if kind.Kind() == reflect.Slice && schema.Items != nil {
		kind, schema = kind.Elem(), schema.Items
	}
	// Types of Kubernetes, such as Condition, are the same in every CRD. Unknown fields can be kept.
	if kind.Kind() != reflect.Struct || kind.PkgPath() != ownPackage || schema.Preserve {
		return
	}
	for i := range kind.NumField() {
		f := kind.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		s.addDifferences(path+"."+name, f.Type, schema.Properties[name])
	}
}
