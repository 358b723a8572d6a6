// Package conformance compiles the conformance suite of the Gateway API Inference Extension, with its own manifests, into a test
// binary. The binary becomes an image: see image.sh.
package conformance

import (
	"testing"

	"sigs.k8s.io/gateway-api-inference-extension/conformance"
)

// TestConformance runs the suite with the options of its flags.
func TestConformance(t *testing.T) { conformance.RunConformance(t) }
