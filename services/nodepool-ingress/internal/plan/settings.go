package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/services/nodepool-ingress/internal/profile"
)

// Settings is a specification after defaulting.
type Settings struct {
	Profile  string
	Image    string // empty: that of the profile
	Replicas int32
	LabelKey string
	Strategy v1alpha1.UpdateStrategy

	// Problems keep all pools from changing.
	Problems []Problem
	// Notes name the fields that have no effect.
	Notes []string
}

// problems collects problems.
type problems []Problem

func (p *problems) addProblem(reason, format string, args ...any) {
	*p = append(*p, *profile.NewProblem(reason, format, args...))
}

func (p *problems) addInvalid(format string, args ...any) {
	p.addProblem(v1alpha1.ReasonInvalid, format, args...)
}

func (p *problems) addForbidden(format string, args ...any) {
	p.addProblem(v1alpha1.ReasonNotAllowed, format, args...)
}

// ResolveSettings returns the settings of a YurtIngress.
func ResolveSettings(spec *v1alpha1.YurtIngressSpec, policy *Policy) Settings {
	var found problems
	s := Settings{
		Profile:  cmp.Or(spec.Profile, policy.DefaultProfile),
		LabelKey: cmp.Or(slices.Concat([]string{spec.PoolLabelKey}, policy.LabelKeys)...),
		Image:    resolveAlias(&found, "ingress_controller_image", "ingressControllerImage", spec.Image, spec.ImageCamel),
		Replicas: resolveReplicas(&found, spec),
		Strategy: resolveStrategy(&found, spec.UpdateStrategy),
	}
	certGen := resolveAlias(&found, "ingress_webhook_certgen_image", "ingressWebhookCertGenImage", spec.CertGenImage,
		spec.CertGenImageCamel)
	if certGen != "" {
		s.Notes = append(s.Notes, "ingress_webhook_certgen_image has no effect: pools have no admission webhooks")
	}
	if slices.Contains(legacyImages, s.Image) && s.Profile != v1alpha1.ProfileIngressNGINX {
		s.Notes = append(s.Notes,
			fmt.Sprintf("ingress_controller_image %s has no effect: it is the default of OpenYurt's operator, and not "+
				"an image of profile %s", s.Image, s.Profile))
		s.Image = ""
	}
	checkProfile(&found, s.Profile, policy)
	if !slices.Contains(policy.LabelKeys, s.LabelKey) {
		found.addForbidden("poolLabelKey %s is not allowed: --pool-label-keys of the operator has %s",
			quoteInput(s.LabelKey), strings.Join(policy.LabelKeys, ", "))
	}
	if s.Image != "" {
		checkImage(&found, policy, s.Image, s.Profile)
	}
	checkOptionalFields(&found, spec, &s, policy)
	s.Problems = found
	return s
}

// checkProfile checks the profile. A profile that the administrator has not enabled has no ClusterRoles: its pool would lose its class
// before the API server refuses the bindings.
func checkProfile(found *problems, name string, policy *Policy) {
	switch {
	case !slices.Contains(v1alpha1.Profiles(), name):
		found.addInvalid("profile %s is not one of %s", quoteInput(name), strings.Join(v1alpha1.Profiles(), ", "))
	case !slices.Contains(policy.Profiles, name):
		found.addForbidden("profile %s is not allowed: --allowed-profiles of the operator has %s", name,
			strings.Join(policy.Profiles, ", "))
	}
}

// resolveAlias returns the value of a field with two names.
func resolveAlias(found *problems, snake, camel, a, b string) string {
	if a != "" && b != "" && a != b {
		found.addProblem(v1alpha1.ReasonFieldConflict, "%s is %s and %s is %s: set only one of them", snake, quoteInput(a), camel,
			quoteInput(b))
	}
	return cmp.Or(a, b)
}

func resolveReplicas(found *problems, spec *v1alpha1.YurtIngressSpec) int32 {
	a, b := spec.Replicas, spec.ReplicasCamel
	if a != nil && b != nil && *a != *b {
		found.addProblem(v1alpha1.ReasonFieldConflict,
			"ingress_controller_replicas_per_pool is %d and ingressControllerReplicasPerPool is %d: set only one of them", *a, *b)
	}
	count := cmp.Or(a, b)
	if count == nil {
		return 1
	}
	checkReplicas(found, "ingress_controller_replicas_per_pool", *count)
	return *count
}

func checkReplicas(found *problems, name string, count int32) {
	if count < 0 || count > maxReplicas {
		found.addInvalid("%s %d is not between 0 and %d", name, count, maxReplicas)
	}
}

func resolveStrategy(found *problems, given *v1alpha1.UpdateStrategy) v1alpha1.UpdateStrategy {
	s := v1alpha1.UpdateStrategy{}
	if given != nil {
		s = *given
	}
	s.MaxUnavailablePools = cmp.Or(s.MaxUnavailablePools, defaultMaxPending)
	s.ProgressDeadlineSeconds = cmp.Or(s.ProgressDeadlineSeconds, defaultDeadline)
	if s.MaxUnavailablePools < 1 {
		found.addInvalid("updateStrategy.maxUnavailablePools %d is less than 1", s.MaxUnavailablePools)
	}
	if s.ProgressDeadlineSeconds < minDeadline || s.ProgressDeadlineSeconds > maxDeadline {
		found.addInvalid("updateStrategy.progressDeadlineSeconds %d is not between %d and %d", s.ProgressDeadlineSeconds,
			minDeadline, maxDeadline)
	}
	return s
}

// checkImage reports an image that the policy does not allow, or that belongs to another profile.
func checkImage(found *problems, policy *Policy, image, profileName string) {
	if err := policy.checkAllowedImage(image); err != nil {
		found.addForbidden("%v", err)
		return
	}
	repo, err := imageRepository(image)
	if err != nil {
		return // allowed has reported it
	}
	for _, other := range v1alpha1.Profiles() {
		if other != profileName && slices.Contains(profile.ImageRepositories(other), repo) &&
			!slices.Contains(profile.ImageRepositories(profileName), repo) {
			found.addInvalid("image %s is of profile %s, and the profile is %s: remove the image, or set the profile",
				quoteInput(image), other, profileName)
			return
		}
	}
}

// checkOptionalFields checks the fields without defaults.
func checkOptionalFields(found *problems, spec *v1alpha1.YurtIngressSpec, s *Settings, policy *Policy) {
	if len(spec.Pools) > MaxPools {
		found.addProblem(v1alpha1.ReasonLimitExceeded, "%d pools are more than %d: use several YurtIngresses", len(spec.Pools), MaxPools)
	}
	if !slices.Contains([]string{"", v1alpha1.SpreadPreferred, v1alpha1.SpreadRequired, v1alpha1.SpreadNone}, spec.Spread) {
		found.addInvalid("spread %s is not one of Preferred, Required, None", quoteInput(spec.Spread))
	}
	checkTolerations(found, spec.Tolerations)
	if r := spec.Resources; r != nil {
		checkAmounts(found, "requests", r.Requests)
		checkAmounts(found, "limits", r.Limits)
	}
	switch {
	case s.Profile == v1alpha1.ProfileCustom && spec.CustomManifest == nil:
		found.addProblem(v1alpha1.ReasonInvalidManifest, "profile custom needs customManifest")
	case s.Profile != v1alpha1.ProfileCustom && spec.CustomManifest != nil:
		found.addInvalid("customManifest needs profile custom, and the profile is %s", s.Profile)
	case spec.CustomManifest != nil:
		if problems := validation.IsDNS1123Subdomain(spec.CustomManifest.ConfigMap); len(problems) > 0 {
			found.addInvalid("customManifest.configMap %s: %s", quoteInput(spec.CustomManifest.ConfigMap), problems[0])
		}
	}
	if cache := spec.CacheSidecar; cache != nil {
		checkCache(found, cache, policy)
	}
}

func checkCache(found *problems, cache *v1alpha1.CacheSidecar, policy *Policy) {
	switch {
	case cache.Image != "" && !cache.Enabled:
		found.addInvalid("cacheSidecar.image needs cacheSidecar.enabled")
	case cache.Image != "":
		if err := policy.checkAllowedImage(cache.Image); err != nil {
			found.addForbidden("cacheSidecar: %v", err)
		}
	case cache.Enabled && policy.Install.CacheImage == "":
		found.addInvalid("cacheSidecar needs an image: set --cache-image of the operator, or cacheSidecar.image")
	}
}

func checkTolerations(found *problems, tolerations []corev1.Toleration) {
	if len(tolerations) > maxTolerations {
		found.addProblem(v1alpha1.ReasonLimitExceeded, "%d tolerations are more than %d", len(tolerations), maxTolerations)
		return
	}
	for i := range tolerations {
		t := &tolerations[i]
		if t.Key != "" {
			if list := metav1validation.ValidateLabelName(t.Key, field.NewPath("key")); len(list) > 0 {
				found.addInvalid("tolerations[%d].key %s: %s", i, quoteInput(t.Key), list[0].Detail)
			}
		}
		if problems := validation.IsValidLabelValue(t.Value); len(problems) > 0 {
			found.addInvalid("tolerations[%d].value %s: %s", i, quoteInput(t.Value), problems[0])
		}
	}
}

func checkAmounts(found *problems, name string, a *v1alpha1.ResourceAmounts) {
	if a != nil && (a.CPU != nil && a.CPU.Sign() < 0 || a.Memory != nil && a.Memory.Sign() < 0) {
		found.addInvalid("resources.%s has a negative amount", name)
	}
}

// poolSettings returns the input of package profile for a pool.
func (s *Settings) poolSettings(spec *v1alpha1.YurtIngressSpec, p *v1alpha1.IngressPool, policy *Policy) (profile.Pool, []Problem) {
	var found problems
	if problems := validation.IsValidLabelValue(p.Name); len(problems) > 0 || p.Name == "" {
		found.addInvalid("pool %s: the name must be a value of a node label with at most 63 characters, "+
			"otherwise no node can be in the pool", quoteInput(p.Name))
	} else if problems := validation.IsDNS1123Subdomain(policy.ClassName(p.Name)); len(problems) > 0 {
		found.addInvalid("pool %s: the name cannot be that of an IngressClass: %s", quoteInput(p.Name), problems[0])
	}
	pool := profile.Pool{
		Name: p.Name, LabelKey: s.LabelKey, Class: policy.ClassName(p.Name), Profile: s.Profile, Image: s.Image, Replicas: s.Replicas,
		Tolerations: spec.Tolerations, Spread: cmp.Or(spec.Spread, v1alpha1.SpreadPreferred), Resources: spec.Resources,
		ProgressDeadline: s.Strategy.ProgressDeadlineSeconds,
	}
	if p.Replicas != nil {
		checkReplicas(&found, "replicas", *p.Replicas)
		pool.Replicas = *p.Replicas
	}
	if p.Image != "" {
		checkImage(&found, policy, p.Image, s.Profile)
		pool.Image = p.Image
	}
	if c := spec.CacheSidecar; c != nil && c.Enabled {
		pool.Cache = &profile.Cache{Image: c.Image}
	}
	pool.Addresses = resolveAddresses(&found, p)
	pool.Exposure = resolveExposure(&found, cmp.Or(p.Exposure, spec.Exposure), pool.Addresses, policy)
	return pool, found
}
