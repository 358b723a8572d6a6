// Package ingressreconciler_test checks what only charts/ingress-reconciler has: roles by kind, what its schema refuses, its notes,
// that its alerts fire, and that its documents keep up with the program. Package family_test checks what all charts
// have in common.
package ingressreconciler_test

import (
	"maps"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/helm"
)

var (
	repository = helm.Repository()
	chart      = filepath.Join(repository, "charts", "ingress-reconciler")
)

func TestNotes(t *testing.T) {
	t.Parallel()
	domain := helm.Values{"ingressDomain": "llm.example.com"}
	with := func(key string, value any) helm.Values {
		config := maps.Clone(domain)
		config[key] = value
		return config
	}
	for _, tt := range []struct {
		name string
		give helm.Values
		want string // of the warning; empty: none
	}{
		{name: "nothing is configured", want: "sets no ingressDomain"},
		{name: "domain", give: helm.Values{"config": domain}},
		{name: "configured as a text", give: helm.Values{"config": "ingressDomain: llm.example.com"}},
		{name: "existing ConfigMap", give: helm.Values{"configMap": helm.Values{"name": "routes"}}},
		{name: "fallback without the kind", give: helm.Values{"config": with("fallbackService", helm.Values{"enabled": true})}, want: "kinds does not contain services"},
		{name: "fallback", give: helm.Values{"config": with("fallbackService", helm.Values{"enabled": true}), "kinds": []string{"httproutes", "services"}}},
		{name: "strategy without the kind", give: helm.Values{"config": with("strategy", "ingress"), "kinds": []string{"httproutes"}}, want: "kinds does not contain ingresses"},
		{name: "several that write", give: helm.Values{"config": domain, "leaderElection": helm.Values{"enabled": false}}, want: "2 replicas without leader election"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			notes, err := helm.Notes(chart, tt.give)
			require.NoError(t, err)
			assert.Contains(t, notes, "kubectl get inferenceservices -A")
			if tt.want == "" {
				assert.NotContains(t, notes, "WARNING")
				return
			}
			assert.Contains(t, notes, tt.want)
		})
	}
}
