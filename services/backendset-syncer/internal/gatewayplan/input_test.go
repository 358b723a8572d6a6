package gatewayplan

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/backendset-syncer/internal/policy"
)

// changing returns a configuration that changes with each read: the last document stays.
func changing(documents []*policy.Document) policy.Source {
	return func() (*policy.Document, string) {
		document := documents[0]
		if len(documents) > 1 {
			documents = documents[1:]
		}
		return document, ""
	}
}

// TestConfigurationThatChangesDuringAPlan plans with one document: not with the limits of one, and the pod ranges and certificates of
// another.
func TestConfigurationThatChangesDuringAPlan(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config += permitted
	r.gateway("web", "", "", "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}",
		"{name: tls, port: 443, protocol: HTTPS, tls: {options: {oci.oraclecloud.com/certificate-ocid: ocid1.certificate.oc1..a}}}")
	r.gateway("second", "", "", "{name: http, port: 81, protocol: HTTP}")
	r.service("models", "chat", 1, 2, 3)
	r.route("models", "chat", "hostnames: [chat.example.com], "+toChat)
	want := r.plan()
	require.Len(t, want.Layout.Listeners, 3)
	_, chat := setOf(t, want, "chat.example.com")
	require.Len(t, chat.Wanted.Endpoints, 3)

	before, err := policy.Parse([]byte(r.config))
	require.NoError(t, err)
	after, err := policy.Parse([]byte("podRanges: [10.9.0.0/16]"))
	require.NoError(t, err)
	for reads := 1; reads <= 8; reads++ {
		documents := make([]*policy.Document, 0, reads+1)
		for range reads {
			documents = append(documents, before)
		}
		got := r.planWith(r.plannerWith(changing(append(documents, after))))
		assert.Equal(t, want.Version, got.Version, "after %d reads", reads)
		assert.Equal(t, want.Sets, got.Sets, "after %d reads", reads)
	}
}
