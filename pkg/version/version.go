// Package version returns the version and commit of the running build. A release sets both at link time; other builds use the
// build info of the Go toolchain, or "unknown".
package version

import (
	"cmp"
	"runtime/debug"
)

const unknown = "unknown"

// Set by -ldflags "-X fairlead.dev/pkg/version.version=v1.2.3 -X fairlead.dev/pkg/version.commit=abc".
var (
	version string
	commit  string
)

// String returns the version, such as v1.2.3 or (devel).
func String() string {
	info, _ := debug.ReadBuildInfo()
	return resolveVersion(version, info)
}

// Commit returns the git commit of the build.
func Commit() string {
	info, _ := debug.ReadBuildInfo()
	return resolveCommit(commit, info)
}

func resolveVersion(linked string, info *debug.BuildInfo) string {
	if linked != "" || info == nil {
		return cmp.Or(linked, unknown)
	}
	return cmp.Or(info.Main.Version, unknown)
}

func resolveCommit(linked string, info *debug.BuildInfo) string {
	if linked != "" || info == nil {
		return cmp.Or(linked, unknown)
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return cmp.Or(setting.Value, unknown)
		}
	}
	return unknown
}
