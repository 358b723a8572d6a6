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

// configuration is the part of OME's ConfigMap that matters here. Go's decoder takes the keys in any case.
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
}

// parseConfig reads the ConfigMap as strictly and as loosely as OME does: JSON only, and the gateways are required even if
// nothing uses them.
func parseConfig(data map[string]string) (configuration, error) {
	c := configuration{}
	if err := json.Unmarshal([]byte(data["ingress"]), &c); err != nil {
		return c, fmt.Errorf("parse ingress: %w", err)
	}
	deploy := struct {
		DefaultDeploymentMode string `json:"defaultDeploymentMode"`
	}{}
	if err := json.Unmarshal([]byte(data["deploy"]), &deploy); err != nil {
		return c, fmt.Errorf("parse deploy: %w", err)
	}
	if m := mode(deploy.DefaultDeploymentMode); m != modeRaw && m != modeServerless {
		return c, fmt.Errorf("deploy has defaultDeploymentMode %q, want %s or %s", m, modeServerless, modeRaw)
	}
	if c.IngressGateway == "" || c.IngressService == "" {
		return c, errors.New("ingress has no ingressGateway or no ingressService")
	}
	if c.PathTemplate != "" {
		if _, err := template.New("path").Parse(c.PathTemplate); err != nil {
			return c, fmt.Errorf("parse pathTemplate: %w", err)
		}
		if c.IngressDomain == "" {
			return c, errors.New("ingress has a pathTemplate and no ingressDomain")
		}
	}
	c.complete()
	return c, nil
}

// complete fills in what was left out.
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

// of returns what holds for one service, by its annotations.
func (c configuration) of(s *inferenceService) configuration {
	for annotation, value := range map[string]*string{
		annotationTemplate: &c.DomainTemplate, annotationDomain: &c.IngressDomain, annotationScheme: &c.URLScheme,
	} {
		if said := s.Annotations[annotation]; said != "" {
			*value = said
		}
	}
	if said, ok := s.Annotations[annotationDisable]; ok {
		c.DisableIngressCreation = said == "true"
	}
	return c
}

// host renders the host name of a service or of one of its components.
func (c configuration) host(s *inferenceService, name string) (string, error) {
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

// configReader reads the ConfigMap. No release watches it: 1.2 reads it with each reconcile, and 1.3 goes by what it has
// read for some time. In both, what has settled learns of a change only when something else happens to it, or by a restart.
type configReader struct {
	store     *store
	namespace string
	ttl       time.Duration // 0: reads each time
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
		err = fmt.Errorf("there is no ConfigMap %s/%s", r.namespace, ConfigName)
	}
	if err != nil {
		return configuration{}, fmt.Errorf("read configuration: %w", err)
	}
	c, err := parseConfig(object.Data)
	if err != nil {
		return configuration{}, fmt.Errorf("read configuration: %w", err)
	}
	r.last, r.read = c, r.clock.Now()
	return c, nil
}
