package stack

import "os"

// RegistryEnv names the registry, as host/path, from which a cluster pulls the images of the tests: `make e2e-push` pushes
// them. Without it they are in the store of the cluster.
const RegistryEnv = "REGISTRY"

// Registry returns the registry of the tests' images.
func Registry() string {
	if r := os.Getenv(RegistryEnv); r != "" {
		return r
	}
	return "docker.io/fairlead"
}

// image returns the reference of an image of the tests.
func image(name, tag string) string { return Registry() + "/" + name + ":" + tag }

// imageValues returns the helm values of an image of the tests.
func imageValues(name, tag string) []string {
	return []string{"--set", "image.registry=" + Registry(), "--set", "image.repository=" + name, "--set", "image.tag=" + tag}
}
