// Package config holds the flags of the nodepool-ingress.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/leader"
	"fairlead.dev/pkg/run"
	"fairlead.dev/services/nodepool-ingress/internal/informers"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
	"fairlead.dev/services/nodepool-ingress/internal/profile"
)

// Config holds all flags.
type Config struct {
	run.Options

	Policy Policy
}

// Policy holds the flags that affect plans: the policy of package plan, and the texts of its ranges.
type Policy struct {
	plan.Policy

	HostPorts        []string
	ExternalIPRanges []string
	BalancerIPRanges []string
}

// Default returns the defaults of all flags.
func Default() *Config {
	c := &Config{
		Options: run.DefaultOptions(),
		Policy: Policy{
			Policy: plan.Policy{
				Install:        profile.Install{ClusterRolePrefix: "fairlead-nodepool-ingress"},
				DefaultProfile: v1alpha1.ProfileTraefik, Profiles: v1alpha1.Profiles(), LabelKeys: []string{v1alpha1.LabelNodePool},
				Exposures: []string{
					v1alpha1.ExposureNodePort, v1alpha1.ExposureLoadBalancer, v1alpha1.ExposureHostPort, v1alpha1.ExposureClusterIP,
				},
			},
			HostPorts: []string{"80", "443", "8080", "8443"},
		},
	}
	for _, p := range v1alpha1.Profiles() {
		c.Policy.AllowedImages = append(c.Policy.AllowedImages, profile.ImageRepositories(p)...)
	}
	slices.Sort(c.Policy.AllowedImages)
	c.Policy.AllowedImages = slices.Compact(c.Policy.AllowedImages)
	return c
}

// AddFlags binds all flags.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	c.Options.AddFlags(fs, "Number of YurtIngresses to reconcile concurrently.",
		"Longest delay between attempts to reconcile a YurtIngress after errors.")
	c.Policy.AddFlags(fs)
}

// AddFlags binds the flags that affect plans.
func (p *Policy) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.Install.Namespace, "namespace", p.Install.Namespace,
		"Namespace of the ingress controllers and of custom manifests. Empty: the namespace of the pod.")
	fs.StringVar(&p.ClassPrefix, "ingress-class-prefix", p.ClassPrefix,
		"Text before the name of a pool in the name of its IngressClass. Changing it changes the classes of all pools.")
	fs.StringVar(&p.Install.ClusterRolePrefix, "cluster-role-prefix", p.Install.ClusterRolePrefix,
		"First part of the names of the ClusterRoles for ingress controllers: PREFIX:PROFILE. They must exist: "+
			"the program may not create roles.")
	fs.StringVar(&p.DefaultProfile, "default-profile", p.DefaultProfile,
		"Profile of a YurtIngress without spec.profile: "+strings.Join(v1alpha1.Profiles(), ", ")+".")
	fs.StringSliceVar(&p.Profiles, "allowed-profiles", p.Profiles, "Profiles that a YurtIngress may use. Each needs its ClusterRoles.")
	fs.StringToStringVar(&p.Install.Images, "images", p.Install.Images,
		"Images of profiles, as profile=image, that replace the built-in ones.")
	fs.StringSliceVar(&p.AllowedImages, "allowed-images", p.AllowedImages,
		"Repositories of images that a YurtIngress may name. An entry that ends with a slash permits all repositories below it. "+
			"Empty: none.")
	fs.StringSliceVar(&p.LabelKeys, "pool-label-keys", p.LabelKeys,
		"Keys of node labels that a YurtIngress may use to select the nodes of a pool. The first is the default.")
	fs.StringSliceVar(&p.Exposures, "allowed-exposures", p.Exposures,
		"Types of exposure that a YurtIngress may ask for: "+strings.Join(exposures, ", ")+". --external-ip-ranges decides on ExternalIPs.")
	fs.StringSliceVar(&p.HostPorts, "allowed-host-ports", p.HostPorts,
		"Ports of nodes, or ranges such as 8000-8999, that the exposures HostPort and HostNetwork may have. A host port takes connections "+
			"before programs of the node do.")
	fs.StringSliceVar(&p.ExternalIPRanges, "external-ip-ranges", p.ExternalIPRanges,
		"CIDR ranges of the addresses that a YurtIngress may have as externalIPs. A Service with an external IP receives the traffic that "+
			"any node sends to that address.")
	fs.StringSliceVar(&p.BalancerClasses, "allowed-load-balancer-classes", p.BalancerClasses,
		"Classes of load balancers that a YurtIngress may name. Without a name, a pool has the load balancer of the cluster.")
	fs.StringSliceVar(&p.BalancerIPRanges, "load-balancer-ip-ranges", p.BalancerIPRanges,
		"CIDR ranges of the addresses that a YurtIngress may request from a load balancer. MetalLB and kube-vip can announce any address "+
			"that they are asked for.")
	fs.StringVar(&p.Install.CacheImage, "cache-image", p.Install.CacheImage,
		"Image of the edge-cache. Empty: a YurtIngress with a cache sidecar must name it.")
	fs.StringVar(&p.Install.CacheUpstream, "cache-upstream-server", p.Install.CacheUpstream,
		"URL of the API server for the edge-cache. Empty: the address that the kubelet gives to every container, which on a node of "+
			"OpenYurt is that of Yurthub.")
	fs.StringSliceVar(&p.Install.CustomClusterRoles, "custom-cluster-roles", p.Install.CustomClusterRoles,
		"Names of the ClusterRoles that a custom manifest may bind. The program needs the permission to bind them.")
	fs.StringSliceVar(&p.Install.PullSecrets, "image-pull-secrets", p.Install.PullSecrets,
		"Names of Secrets in the namespace, with which nodes pull the images.")
	fs.StringVar(&p.Install.PriorityClass, "priority-class", p.Install.PriorityClass, "PriorityClass of the ingress controllers.")
}

// Complete sets the defaults that depend on the environment. Outside a cluster, Validate demands the flag.
func (p *Policy) Complete() { p.Install.Namespace = cmp.Or(p.Install.Namespace, leader.PodNamespace()) }

// Validate returns an error for each flag with an invalid value.
func (c *Config) Validate() error {
	return errors.Join(c.Options.Validate(), c.Policy.Validate())
}

// Validate returns an error for each flag with an invalid value.
func (p *Policy) Validate() error {
	return errors.Join(append(p.validateNames(), p.validateLimits()...)...)
}

// validateNames checks the flags that name objects.
func (p *Policy) validateNames() []error {
	var errs []error
	check := func(flag, value string, problems []string) {
		if value != "" && len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--%s %q: %s", flag, value, problems[0]))
		}
	}
	if p.Install.Namespace == "" {
		errs = append(errs, errors.New("--namespace is required outside a cluster"))
	}
	check("namespace", p.Install.Namespace, validation.IsDNS1123Label(p.Install.Namespace))
	check("ingress-class-prefix", p.ClassPrefix, validation.IsDNS1123Subdomain(p.ClassPrefix+"x"))
	if len(p.ClassPrefix) > maxClassPrefix {
		errs = append(errs, fmt.Errorf("--ingress-class-prefix %q is longer than %d characters", p.ClassPrefix, maxClassPrefix))
	}
	if p.Install.ClusterRolePrefix == "" {
		errs = append(errs, errors.New("--cluster-role-prefix is empty"))
	}
	check("priority-class", p.Install.PriorityClass, validation.IsDNS1123Subdomain(p.Install.PriorityClass))
	for _, name := range p.Install.PullSecrets {
		check("image-pull-secrets", name, validation.IsDNS1123Subdomain(name))
	}
	if u, err := url.Parse(p.Install.CacheUpstream); p.Install.CacheUpstream != "" &&
		(err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "") {
		errs = append(errs, fmt.Errorf("--cache-upstream-server %q is not a URL of the form https://HOST:PORT", p.Install.CacheUpstream))
	}
	return errs
}

// validateLimits checks the flags that limit the values of a YurtIngress.
func (p *Policy) validateLimits() []error {
	errs := []error{
		checkAllowed("allowed-profiles", v1alpha1.Profiles(), p.Profiles...), checkAllowed("default-profile", p.Profiles, p.DefaultProfile),
		checkAllowed("allowed-exposures", exposures, p.Exposures...),
	}
	for name := range p.Install.Images {
		errs = append(errs, checkAllowed("images", v1alpha1.Profiles(), name))
	}
	if len(p.LabelKeys) == 0 {
		errs = append(errs, errors.New("--pool-label-keys is empty"))
	}
	for _, key := range p.LabelKeys {
		if list := metav1validation.ValidateLabelName(key, field.NewPath("key")); len(list) > 0 {
			errs = append(errs, fmt.Errorf("--pool-label-keys %q: %s", key, list[0].Detail))
		}
	}
	for _, class := range p.BalancerClasses {
		if problems := validation.IsQualifiedName(class); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--allowed-load-balancer-classes %q: %s", class, problems[0]))
		}
	}
	_, err := p.parseRanges()
	return append(errs, err)
}

// maxClassPrefix keeps the names of classes, with the longest name of a pool, within the limit of the API, 253, and that of the labels with
// which some ingress controllers mark things by their class.
const maxClassPrefix = 63

// exposures are the types that a flag allows. Ranges allow the type ExternalIPs.
var exposures = slices.DeleteFunc(v1alpha1.Exposures(), func(e string) bool { return e == v1alpha1.ExposureExternalIPs })

// parsePortRange parses a port or a range of ports.
func parsePortRange(text string) (plan.PortRange, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if errA != nil || errB != nil || a < 1 || b < a {
		return plan.PortRange{}, fmt.Errorf("%q is neither a port nor a range of ports", text)
	}
	return plan.PortRange{First: int32(a), Last: int32(b)}, nil
}

func checkAllowed(flag string, allowed []string, values ...string) error {
	for _, v := range values {
		if !slices.Contains(allowed, v) {
			return fmt.Errorf("--%s: %q is not one of %s", flag, v, strings.Join(allowed, ", "))
		}
	}
	return nil
}

// PlanPolicy returns the policy of package plan. Call it after Validate.
func (p *Policy) PlanPolicy() plan.Policy {
	policy, _ := p.parseRanges()
	policy.Install.Images = profile.DefaultImages()
	maps.Copy(policy.Install.Images, p.Install.Images)
	return policy
}

// parseRanges returns the policy with its ranges, and an error for each range that is invalid.
func (p *Policy) parseRanges() (plan.Policy, error) {
	policy := p.Policy
	var errs []error
	for _, text := range p.HostPorts {
		r, err := parsePortRange(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--allowed-host-ports: %w", err))
		}
		policy.HostPorts = append(policy.HostPorts, r)
	}
	parse := func(flag string, texts []string) (prefixes []netip.Prefix) {
		for _, text := range texts {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
			}
			prefixes = append(prefixes, prefix.Masked())
		}
		return prefixes
	}
	policy.ExternalIPRanges = parse("external-ip-ranges", p.ExternalIPRanges)
	policy.BalancerIPRanges = parse("load-balancer-ip-ranges", p.BalancerIPRanges)
	return policy, errors.Join(errs...)
}

// InformerOptions returns the options of package informers.
func (p *Policy) InformerOptions() informers.Options {
	return informers.Options{
		Namespace: p.Install.Namespace, LabelKeys: p.LabelKeys, Traefik: slices.Contains(p.Profiles, v1alpha1.ProfileTraefik),
	}
}
