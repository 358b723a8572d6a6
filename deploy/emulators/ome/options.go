package ome

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// Release is a release of OME.
type Release string

// Emulated releases.
const (
	Release12 Release = "1.2"
	Release13 Release = "1.3"
)

// Releases are all emulated releases.
var Releases = []Release{Release12, Release13}

// Role is the role of a component.
type Role string

// Roles of components.
const (
	Engine  Role = "engine"
	Decoder Role = "decoder"
	Router  Role = "router"
)

// roles are all roles in the order in which OME reconciles them.
var roles = []Role{Engine, Decoder, Router}

// Options configure the emulator.
type Options struct {
	Release       Release
	Namespace     string        // of OME's ConfigMap
	ClusterDomain string        // of Services
	ConfigTTL     time.Duration // time for which release 1.3 caches the ConfigMap
	Runtime       []Role        // components that the serving runtime adds to every service in release 1.3

	// PodImage is the image of containers without an image. If it is set, components have Deployments, and the status of the
	// Deployments determines readiness. If it is empty, there are no pods, and AnnotationReady determines readiness.
	PodImage string
	PodArgs  []string // of containers without arguments
}

// DefaultOptions returns the defaults of OME 1.2, without pods.
func DefaultOptions() Options {
	return Options{Release: Release12, Namespace: "ome", ClusterDomain: "cluster.local", ConfigTTL: 30 * time.Second}
}

// AddFlags binds the options to flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar((*string)(&o.Release), "release", string(o.Release), "Release of OME to emulate: 1.2 or 1.3.")
	fs.StringVar(&o.Namespace, "config-namespace", o.Namespace, "Namespace of the ConfigMap "+ConfigName+".")
	fs.StringVar(&o.ClusterDomain, "cluster-domain", o.ClusterDomain, "Domain of Services.")
	fs.DurationVar(&o.ConfigTTL, "config-ttl", o.ConfigTTL, "Time for which release 1.3 caches the ConfigMap.")
	fs.StringVar(&o.PodImage, "pod-image", o.PodImage, "Image of containers without an image. If empty, there are no pods.")
	fs.StringSliceVar(&o.PodArgs, "pod-args", o.PodArgs, "Arguments of containers without arguments, comma-separated.")
	fs.Var((*roleList)(&o.Runtime), "runtime-components", "Components that the serving runtime adds to every service in release 1.3, comma-separated.")
}

// Validate returns an error with all invalid options.
func (o *Options) Validate() error {
	var errs []error
	if o.Release != Release12 && o.Release != Release13 {
		errs = append(errs, fmt.Errorf("--release %q is unknown: give %s or %s", o.Release, Release12, Release13))
	}
	if o.Namespace == "" || o.ClusterDomain == "" {
		errs = append(errs, errors.New("--config-namespace or --cluster-domain is empty: give both, or omit the flags"))
	}
	if o.ConfigTTL < 0 {
		errs = append(errs, fmt.Errorf("--config-ttl %s is negative: give 0s or more", o.ConfigTTL))
	}
	if len(o.PodArgs) > 0 && o.PodImage == "" {
		errs = append(errs, errors.New("--pod-args has no effect without --pod-image: give both"))
	}
	if len(o.Runtime) > 0 && o.Release == Release12 {
		errs = append(errs, fmt.Errorf("--runtime-components requires --release %s", Release13))
	}
	return errors.Join(errs...)
}

// roleList is a list of roles that implements pflag.Value.
type roleList []Role

// Set implements pflag.Value.
func (l *roleList) Set(s string) error {
	parsed, err := parseRoles(s)
	*l = parsed
	return err
}

// String implements pflag.Value.
func (l *roleList) String() string { return joinRoles(*l) }

// Type implements pflag.Value.
func (*roleList) Type() string { return "roles" }
