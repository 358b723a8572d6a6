package settings

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// This file selects the labels and annotations that objects copy from their InferenceService.
//
// Tenants write these labels and annotations, and data planes, DNS and certificate controllers and deployment tools act on them.
// Only listed keys are copied: by default labels without a prefix, which Kubernetes reserves for users, and annotations that affect
// only the tenant's own paths and pods. An administrator can list other keys. An item of a list is
//
//	a key, as in example.com/team
//	prefix/*, for all keys with that prefix
//	*, for all keys without a prefix
//
// Some keys are never copied, even if a list names them: keys of OME and of this controller, and keys that deployment tools use to
// identify their objects. A tool would prune an object with a copy of its key.

// defaultCopyLabels are all labels without a prefix.
var defaultCopyLabels = []string{"*"}

// defaultCopyAnnotations are the annotations that each controller declares safe.
var defaultCopyAnnotations = safeAnnotations()

func safeAnnotations() []string {
	var keys []string
	for _, c := range ingressclass.Controllers() {
		for _, safe := range c.Safe {
			keys = append(keys, safe.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// defaultCopyFallbackAnnotations are annotations of load balancers that set the idle timeout of connections and affect only the
// Service. Model responses can pause for longer than the defaults, which are 60 s to 300 s.
var defaultCopyFallbackAnnotations = []string{
	"service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout",
	"service.beta.kubernetes.io/azure-load-balancer-tcp-idle-timeout",
	"service.beta.kubernetes.io/oci-load-balancer-connection-idle-timeout",
}

// Limits of the labels and annotations, in total, that the objects of one service copy. A service can have hundreds of objects, and
// an InferenceService can have 256 KiB of annotations. Typical services copy fewer than ten keys with less than 1 KiB.
const (
	maxCopiedKeys  = 64
	maxCopiedBytes = 16 << 10
)

// Copied contains the labels and annotations that the objects of a service copy.
type Copied struct {
	Labels              map[string]string // of every object
	Annotations         map[string]string // of routes
	FallbackAnnotations map[string]string // of the fallback Service
}

// copyFrom selects the labels and annotations to copy. If they exceed a limit, it selects none and sets CopyProblem.
func (s *Settings) copyFrom(service *isvc.Service, v *Values) {
	labels, annotations := ptr.Deref(v.CopyLabels, defaultCopyLabels), ptr.Deref(v.CopyAnnotations, defaultCopyAnnotations)
	c := Copied{Labels: selectKeys(service.Labels, labels), Annotations: selectKeys(service.Annotations, annotations)}
	if s.Fallback != nil {
		c.FallbackAnnotations = selectKeys(service.Annotations, s.Fallback.CopyAnnotations)
	}
	keys, bytes := 0, 0
	for _, m := range []map[string]string{c.Labels, c.Annotations, c.FallbackAnnotations} {
		keys += len(m)
		for key, value := range m {
			bytes += len(key) + len(value)
		}
	}
	if keys > maxCopiedKeys || bytes > maxCopiedBytes {
		s.CopyProblem = fmt.Sprintf("%d labels and annotations with %d bytes are selected for copying, more than %d or %d bytes: none "+
			"is copied; remove some",
			keys, bytes, maxCopiedKeys, maxCopiedBytes)
		return
	}
	s.Copied = c
}

// selectKeys returns the entries whose keys are in a list, nil if no entry matches.
func selectKeys(entries map[string]string, list []string) map[string]string {
	listed := make(map[string]bool, len(list))
	for _, item := range list {
		listed[item] = true
	}
	var selected map[string]string
	for key, value := range entries {
		if (listed[key] || listed[wildcardOf(key)]) && !neverCopied(key) {
			if selected == nil {
				selected = map[string]string{}
			}
			selected[key] = value
		}
	}
	return selected
}

// wildcardOf returns the wildcard item that matches a key.
func wildcardOf(key string) string {
	if prefix, _, found := strings.Cut(key, "/"); found {
		return prefix + "/*"
	}
	return "*"
}

// toolPrefixes are the prefixes of keys that deployment tools use to identify their objects.
var toolPrefixes = []string{
	"app.kubernetes.io", "addonmanager.kubernetes.io", "kubectl.kubernetes.io", "helm.sh", "meta.helm.sh", "argocd.argoproj.io",
	"kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io", "fleet.cattle.io", "objectset.rio.cattle.io", "kapp.k14s.io", "config.k8s.io",
}

// neverCopied reports whether a key, or a wildcard item, belongs to OME, to this controller, or to a deployment tool.
func neverCopied(key string) bool {
	prefix, _, found := strings.Cut(key, "/")
	return key == "component" || IsReserved(key) || found && (prefix == "networking.knative.dev" || slices.Contains(toolPrefixes, prefix))
}

// computedAnnotations returns the annotations that this controller computes, with the settings to use instead. A copy would have no effect.
func computedAnnotations() map[string]string {
	keys := map[string]string{ingressclass.AnnotationClass: "ingressClassName"}
	for _, c := range ingressclass.Controllers() {
		for _, key := range c.ComputedAnnotations() {
			keys[key] = "defaultRouteTimeoutSeconds, maxRequestBodySize, bufferBodies or annotations"
		}
	}
	return keys
}

// FallbackAnnotations returns the annotations of the fallback Service. The administrator's annotations override copied ones.
func (s *Settings) FallbackAnnotations() map[string]string {
	if s.Fallback == nil {
		return nil
	}
	return MergeMaps(s.Copied.FallbackAnnotations, s.Fallback.Annotations)
}

// MergeMaps merges maps into a new one. Later maps override earlier ones.
func MergeMaps(sources ...map[string]string) map[string]string {
	var out map[string]string
	for _, m := range sources {
		if out == nil && len(m) > 0 {
			out = map[string]string{}
		}
		maps.Copy(out, m)
	}
	return out
}
