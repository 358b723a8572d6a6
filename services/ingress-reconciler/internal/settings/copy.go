package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// Which labels and annotations of an InferenceService its objects get.
//
// A tenant writes them, and data planes, DNS and certificate controllers and deployment tools act on them. So keys are copied
// from a list: by default the labels without a prefix, which Kubernetes leaves to users, and annotations that concern nothing
// but the tenant's own paths and pods. An administrator may list others. An item of a list is
//
//	a key, as in example.com/team
//	prefix/*, for all keys with that prefix
//	*, for all keys without a prefix
//
// Some keys are never copied, whatever a list says: those of OME and of this service, and those by which tools know their own
// objects. A copy of the latter would make the tool prune the object.

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

// defaultCopyFallbackAnnotations are annotations of load balancers that concern nothing but connections to the Service: how
// long one may be idle. Responses of models pause for longer than the defaults, which are 60 s to 300 s.
var defaultCopyFallbackAnnotations = []string{
	"service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout",
	"service.beta.kubernetes.io/azure-load-balancer-tcp-idle-timeout",
	"service.beta.kubernetes.io/oci-load-balancer-connection-idle-timeout",
}

// Limits of what is copied to the objects of one service, all labels and annotations together. A service can have hundreds of
// objects, and an InferenceService may have 256 KiB of annotations. Real ones copy fewer than ten keys of less than 1 KiB;
// half of these limits would do for them, too, and twice as much would let a hundred routes take 3 MiB of the API server.
const (
	maxCopiedKeys  = 64
	maxCopiedBytes = 16 << 10
)

// Copied is what the objects of a service get of its labels and annotations.
type Copied struct {
	Labels              map[string]string // of every object
	Annotations         map[string]string // of routes
	FallbackAnnotations map[string]string // of the fallback Service
}

// copyFrom takes the labels and annotations that are copied. Over a limit it takes none of them, and says why in CopyProblem.
func (s *Settings) copyFrom(service *isvc.Service, v *Values) {
	labels, annotations := defaultCopyLabels, defaultCopyAnnotations
	if v.CopyLabels != nil {
		labels = *v.CopyLabels
	}
	if v.CopyAnnotations != nil {
		annotations = *v.CopyAnnotations
	}
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
		s.CopyProblem = fmt.Sprintf("%d labels and annotations with %d bytes are to be copied, more than %d or %d bytes: none is copied; remove some",
			keys, bytes, maxCopiedKeys, maxCopiedBytes)
		return
	}
	s.Copied = c
}

// selectKeys returns the entries whose keys are in a list, nil if there is none.
func selectKeys(all map[string]string, list []string) map[string]string {
	listed := make(map[string]bool, len(list))
	for _, item := range list {
		listed[item] = true
	}
	var selected map[string]string
	for key, value := range all {
		if (listed[key] || listed[wildcardOf(key)]) && !neverCopied(key) {
			if selected == nil {
				selected = map[string]string{}
			}
			selected[key] = value
		}
	}
	return selected
}

// wildcardOf returns the item that stands for all keys with the prefix of a key.
func wildcardOf(key string) string {
	if prefix, _, found := strings.Cut(key, "/"); found {
		return prefix + "/*"
	}
	return "*"
}

// toolPrefixes are of the keys by which tools know their own objects.
var toolPrefixes = []string{
	"app.kubernetes.io", "addonmanager.kubernetes.io", "kubectl.kubernetes.io", "helm.sh", "meta.helm.sh", "argocd.argoproj.io",
	"kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io", "fleet.cattle.io", "objectset.rio.cattle.io", "kapp.k14s.io", "config.k8s.io",
}

// neverCopied reports whether a key, or an item for all keys with a prefix, is of OME, of this service, or of a tool.
func neverCopied(key string) bool {
	prefix, _, found := strings.Cut(key, "/")
	return key == "component" || Reserved(key) || found && (prefix == "networking.knative.dev" || slices.Contains(toolPrefixes, prefix))
}

// annotationClass is the older form of spec.ingressClassName; the API server refuses an Ingress with both.
const annotationClass = "kubernetes.io/ingress.class"

// computed returns, by key, what to set instead of each annotation that this service computes: a copy would have no effect.
func computed() map[string]string {
	keys := map[string]string{annotationClass: "ingressClassName"}
	for _, c := range ingressclass.Controllers() {
		for _, key := range c.ComputedAnnotations() {
			keys[key] = "defaultRouteTimeoutSeconds, maxRequestBodySize, bufferBodies or annotations"
		}
	}
	return keys
}

// validateCopyAnnotations refuses items that would have no effect.
func validateCopyAnnotations(path string, items []string) error {
	if len(items) == 0 {
		return nil
	}
	instead := computed()
	return validateCopied(path, items, func(item string) string {
		if setting, found := instead[item]; found {
			return "this service sets it: use " + setting
		}
		return ""
	})
}

func validateCopyLabels(path string, items []string) error {
	return validateCopied(path, items, func(string) string { return "" })
}

// validateCopied refuses items that are no keys, that are never copied, or that a check has a problem with.
func validateCopied(path string, items []string, check func(item string) string) error {
	var errs []error
	for i, item := range items {
		problem := check(item)
		sample := strings.ToLower(item)
		if item == "*" || strings.HasSuffix(item, "/*") {
			sample = strings.TrimSuffix(sample, "*") + "any"
		}
		if problems := validation.IsQualifiedName(sample); len(problems) > 0 {
			problem = "want a key, prefix/* or *: " + problems[0]
		}
		if neverCopied(item) {
			problem = "it is never copied: OME, this service or a deployment tool would act on the copy"
		}
		if problem != "" {
			errs = append(errs, fmt.Errorf("%s[%d] %q: %s", path, i, item, problem))
		}
	}
	return errors.Join(errs...)
}

// validateRemoved refuses the list of a key of earlier releases. To ignore it would copy what it kept from being copied.
func validateRemoved(path string, list []string) error {
	if list != nil {
		return fmt.Errorf("%sannotationPrefixes is no longer a key: list keys in %scopyAnnotations, or prefix/* for all keys with a prefix", path, path)
	}
	return nil
}

// FallbackAnnotations returns the annotations of the fallback Service: the administrator's win over copied ones.
func (s *Settings) FallbackAnnotations() map[string]string {
	if s.Fallback == nil {
		return nil
	}
	return merged(s.Copied.FallbackAnnotations, s.Fallback.Annotations)
}

// merged returns one map of several. Of values of one key the last one wins.
func merged(all ...map[string]string) map[string]string {
	var out map[string]string
	for _, m := range all {
		if out == nil && len(m) > 0 {
			out = map[string]string{}
		}
		maps.Copy(out, m)
	}
	return out
}
