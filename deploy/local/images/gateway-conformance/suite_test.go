// Package gatewayconformance compiles the conformance suite of the Gateway API, with its own manifests, into a test binary: see
// deploy/local/e2e/cmd/gateway-conformance.
package gatewayconformance

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

// TestConformance runs the suite with the options of its flags.
func TestConformance(t *testing.T) { conformance.RunConformance(t) }
