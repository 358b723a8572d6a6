package ome

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
)

// configuration is the part of OME's ConfigMap that the emulator uses. Keys are not case-sensitive.
type configuration struct {
	IngressGateway         string  `json:"ingressGateway"`
	IngressService         string  `json:"ingressService"`
	IngressDomain          string  `json:"ingressDomain"`
	IngressClassName       *string `json:"ingressClassName"`
	DomainTemplate         string  `json:"domainTemplate"`
	PathTemplate           string  `json:"pathTemplate"`
	URLScheme              string  `json:"urlScheme"`
	DisableIngressCreation bool    `json:"disableIngressCreation"`
	EnableGatewayAPI       bool    `json:"enableGatewayAPI"`

	// Release 1.3. These fields affect only HTTPRoutes, which are not emulated.
	OMEIngressGatewayClass   string                `json:"omeIngressGatewayClass"`
	PerISVCSubdomain         bool                  `json:"perISVCSubdomain"`
	SharedHostPrefix         string                `json:"sharedHostPrefix"`
	DefaultRouteTimeout      *int64                `json:"defaultRouteTimeoutSeconds"`
	AdditionalGateways       []gateway             `json:"additionalIngressGateways"`
	NamespaceGateways        map[string]namespaced `json:"namespaceIngressGateways"`
	ConsistentHashHeaders    []string              `json:"consistentHashHeaders"`
	AdditionalIngressDomains []string              `json:"additionalIngressDomains"`
}

type gateway struct {
	OMEIngressGateway string `json:"omeIngressGateway"`
	IngressDomain     string `json:"ingressDomain"`
	Class             string `json:"class"`
}

type namespaced struct {
	Primary    gateway   `json:"primary"`
	Additional []gateway `json:"additional"`
}

// parseConfig parses the ConfigMap like OME: values must be JSON, and the gateways are required even if OME does not use them.
// Release 1.3 does not support Knative, and validates the class of its Gateway.
func parseConfig(data map[string]string, r Release) (configuration, error) {
	c := configuration{}
	if err := json.Unmarshal([]byte(data["ingress"]), &c); err != nil {
		return c, fmt.Errorf("parse ingress: %w", err)
	}
	if err := checkDeploy(data["deploy"], r); err != nil {
		return c, err
	}
	if errs := validation.IsDNS1123Label(c.OMEIngressGatewayClass); r == Release13 && c.OMEIngressGatewayClass != "" && len(errs) > 0 {
		return c, fmt.Errorf("ingress has omeIngressGatewayClass %q: %s", c.OMEIngressGatewayClass, errs[0])
	}
	if c.IngressGateway == "" || c.IngressService == "" {
		return c, errors.New("ingress has no ingressGateway or no ingressService: set both")
	}
	if c.PathTemplate != "" {
		if _, err := template.New("path").Parse(c.PathTemplate); err != nil {
			return c, fmt.Errorf("parse pathTemplate: %w", err)
		}
		if c.IngressDomain == "" {
			return c, errors.New("ingress has a pathTemplate and no ingressDomain: set both or none")
		}
	}
	c.complete()
	return c, nil
}

func checkDeploy(text string, r Release) error {
	deploy := struct {
		DefaultDeploymentMode string `json:"defaultDeploymentMode"`
	}{}
	if err := json.Unmarshal([]byte(text), &deploy); err != nil {
		return fmt.Errorf("parse deploy: %w", err)
	}
	if m := mode(deploy.DefaultDeploymentMode); m != modeRaw && (m != modeServerless || r == Release13) {
		return fmt.Errorf("deploy has defaultDeploymentMode %q, want %s", m,
			map[Release]string{Release12: "Serverless or RawDeployment", Release13: "RawDeployment"}[r])
	}
	return nil
}

// complete fills in defaults.
func (c *configuration) complete() {
	if c.IngressDomain == "" {
		c.IngressDomain = "example.com"
	}
	if c.DomainTemplate == "" {
		c.DomainTemplate = "{{ .Name }}.{{ .Namespace }}.{{ .IngressDomain }}"
	}
	if c.URLScheme == "" {
		c.URLScheme = "http"
	}
}

// of returns the configuration of one service, with its annotations.
func (c configuration) of(s *inferenceService) configuration {
	for annotation, value := range map[string]*string{
		annotationTemplate: &c.DomainTemplate, annotationDomain: &c.IngressDomain, annotationScheme: &c.URLScheme,
	} {
		if text := s.Annotations[annotation]; text != "" {
			*value = text
		}
	}
	if text, ok := s.Annotations[annotationDisable]; ok {
		c.DisableIngressCreation = text == "true"
	}
	return c
}

// host renders the host name of a service or of one of its components. It truncates names like those of Services.
func (c configuration) host(s *inferenceService, name string) (string, error) {
	name = truncate(name)
	t, err := template.New("domain").Parse(c.DomainTemplate)
	if err != nil {
		return "", fmt.Errorf("parse domain template: %w", err)
	}
	var text strings.Builder
	err = t.Execute(&text, map[string]any{
		"Name": name, "Namespace": s.Namespace, "IngressDomain": c.IngressDomain, "Labels": s.Labels, "Annotations": s.Annotations,
	})
	if err != nil {
		return "", fmt.Errorf("render domain template: %w", err)
	}
	if errs := validation.IsFullyQualifiedDomainName(field.NewPath("host"), text.String()); len(errs) > 0 {
		return "", fmt.Errorf("render domain template: %w", errs.ToAggregate())
	}
	return text.String(), nil
}

// configReader reads the ConfigMap. OME does not watch it: release 1.2 reads it in each reconcile, and release 1.3 caches it for
// ttl. In both releases a change affects a settled service only in its next reconcile, or after a restart.
type configReader struct {
	store     *store
	namespace string
	release   Release
	ttl       time.Duration // 0: no cache
	clock     clock.PassiveClock

	mu   sync.Mutex
	read time.Time
	last configuration
}

func (r *configReader) get(ctx context.Context) (configuration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.read.IsZero() && r.clock.Since(r.read) < r.ttl {
		return r.last, nil
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: ConfigName}}
	found, err := r.store.get(ctx, configMaps, object)
	if err == nil && !found {
		err = fmt.Errorf("ConfigMap %s/%s does not exist", r.namespace, ConfigName)
	}
	if err != nil {
		return configuration{}, fmt.Errorf("read configuration: %w", err)
	}
	c, err := parseConfig(object.Data, r.release)
	if err != nil {
		return configuration{}, fmt.Errorf("read configuration: %w", err)
	}
	r.last, r.read = c, r.clock.Now()
	return c, nil
}
