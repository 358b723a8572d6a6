package semantics

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// conformance is a file in testdata/conformance.
type conformance struct {
	Entrances []string `json:"entrances"`
	Objects   string   `json:"objects"`
	Requests  []struct {
		Host   string            `json:"host"`
		Path   string            `json:"path"`
		Method string            `json:"method"`
		Header map[string]string `json:"header"`
		Want   string            `json:"want"`
	} `json:"requests"`
}

// conformancePlanes are the objects that the whole-system test installs with the data planes.
const conformancePlanes = `
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: gateways, name: public}, spec: {gatewayClassName: envoy,
  listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: traefik, name: traefik}, spec: {gatewayClassName: traefik,
  listeners: [{name: web, port: 8000, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]}}
---
{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: traefik}, spec: {controller: traefik.io/ingress-controller}}
---
{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: nginx}, spec: {controller: k8s.io/ingress-nginx}}`

// TestConformance compares answers with the cases that subtest conformance of the whole-system test sends to real data planes.
func TestConformance(t *testing.T) {
	t.Parallel()
	entrances := map[string]Entrance{
		"envoy":           {Gateway: types.NamespacedName{Namespace: "gateways", Name: "public"}},
		"traefik-gateway": {Gateway: types.NamespacedName{Namespace: "traefik", Name: "traefik"}},
		"traefik-class":   {IngressClass: "traefik"},
		"nginx-class":     {IngressClass: "nginx"},
	}
	files, err := filepath.Glob("testdata/conformance/*.yaml")
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var c conformance
		require.NoError(t, yaml.UnmarshalStrict(text, &c))
		f := world(t, conformancePlanes, c.Objects)
		for _, name := range c.Entrances {
			for _, r := range c.Requests {
				request := Request{Entrance: entrances[name], Host: r.Host, Path: r.Path, Method: r.Method, Header: r.Header}
				got, err := f.AnswerRequest(request)
				ask(t, f, request)
				if r.Want == "404" {
					require.ErrorIs(t, err, ErrNoRoute, "%s %s%s", name, r.Host, r.Path)
					continue
				}
				require.NoError(t, err, "%s %s%s", name, r.Host, r.Path)
				assert.Equal(t, r.Want, got.Backend.Name+" "+got.Path, "%s %s%s %v", name, r.Host, r.Path, r.Header)
			}
		}
	}
}
