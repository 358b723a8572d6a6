package stack

import (
	"context"
	_ "embed"
	"strings"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/pkg/kubetest/cluster"
)

//go:embed ome.yaml
var omeManifest string

// OMENamespace is the namespace of OME and its ConfigMap.
const OMENamespace = "ome"

// OME is the emulator of OME to install.
type OME struct {
	Release  ome.Release
	Tag      string   // of the images
	PodImage string   // name of the default image of the components' pods
	PodArgs  []string // their arguments
}

// EchoOME returns an OME of release 1.2. The pods of components are echo servers that answer with the names of their pods.
func EchoOME(tag string) OME {
	return OME{Release: ome.Release12, Tag: tag, PodImage: "echo", PodArgs: []string{"--port=8080"}}
}

// ModelOME returns an OME of release 1.3. The pods of components are simulated model servers.
func ModelOME(tag string, args ...string) OME {
	return OME{
		Release: ome.Release13, Tag: tag, PodImage: ServerImage, PodArgs: append([]string{"--port=8080", "--model=" + Model}, args...),
	}
}

// InstallOME installs the emulator of OME with the ConfigMap of the release, and waits until it is ready.
func InstallOME(ctx context.Context, c *cluster.Cluster, o OME) error {
	if _, err := c.Kubectl(ctx, "create", "namespace", OMENamespace); err != nil {
		return err
	}
	args := []string{
		"--release=" + string(o.Release), "--pod-image=" + image(o.PodImage, o.Tag), "--pod-args=" + strings.Join(o.PodArgs, ","),
	}
	deployment := strings.NewReplacer("IMAGE", image("ome", o.Tag), "ARGS", `"`+strings.Join(args, `", "`)+`"`).Replace(omeManifest)
	for _, manifest := range []string{ome.CRDs(o.Release), ome.Config(o.Release), deployment} {
		if err := c.Apply(ctx, manifest); err != nil {
			return err
		}
	}
	_, err := c.Kubectl(ctx, "-n", OMENamespace, "rollout", "status", "deployment/ome", WaitTimeout)
	return err
}
