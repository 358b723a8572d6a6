package commands

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const statusWorld = `
{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: chat, namespace: models, labels: {team: a}}, status: {conditions: [
  {type: fairlead.dev/Exposed, status: "True", reason: Programmed, message: "http://chat.example.com/, https://b.example.com/ ` +
	`(header X-Model: chat);
    Gateway gateways/public: accepted (HTTPRoute chat-fairlead-1)"}]}}
---
{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: refused, namespace: a}, status: {conditions: [
  {type: fairlead.dev/Exposed, status: "False", reason: NoDomain, message: "no domain\e[2J is configured"}]}}
---
{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: fresh, namespace: models}}
---
{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: broken, namespace: models}, spec: 1}
---
{apiVersion: serving.kserve.io/v1beta1, kind: InferenceService, metadata: {name: kserve, namespace: models}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: chat-fairlead-2, namespace: models,
  labels: {fairlead.dev/managed-by: ingress-reconciler}, ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService,
  name: chat, uid: u, controller: true}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: chat-fairlead-1, namespace: models,
  labels: {fairlead.dev/managed-by: ingress-reconciler}, ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService,
  name: chat, uid: u, controller: true}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: chat, namespace: models,
  ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: u, controller: true}]}}
`

func TestStatus(t *testing.T) {
	t.Parallel()
	want := `NAMESPACE   NAME      EXPOSED   REASON       URLS                                                                  OBJECTS
a           refused   False     NoDomain     -                                                                     -
models      broken    -         -            -                                                                     -
models      chat      True      Programmed   http://chat.example.com/,https://b.example.com/ ` +
		`(header X-Model: chat)   HTTPRoute/chat-fairlead-1,HTTPRoute/chat-fairlead-2
models      fresh     -         -            -                                                                     -
`
	out, _, err := run(t, statusWorld, "status", "-f", "-")
	require.NoError(t, err)
	assert.Equal(t, compact(want), compact(out))

	api, kubeconfig := startAPIServer(t, []string{"ingresses"}, statusWorld)
	out, log, err := run(t, "", "status", kubeconfig)
	require.NoError(t, err)
	assert.Equal(t, compact(want), compact(out), "status prints the same for a cluster, with the permissions of the pod")
	assert.Equal(t, "ingresses.networking.k8s.io: skipped, because this user may not list them\n", log)
	assert.Equal(t, 7, api.count("GET"), "one list for each kind")

	out, _, err = run(t, statusWorld, "status", "-f", "-", "-o", "wide", "-n", "a")
	require.NoError(t, err)
	assert.Contains(t, out, "no domain?[2J is configured", "control characters are replaced")
	assert.NotContains(t, out, "chat")

	out, _, err = run(t, statusWorld, "status", "-f", "-", "-o", "wide", "broken")
	require.NoError(t, err)
	assert.Contains(t, out, "read InferenceService: spec is 1, want an object")

	out, _, err = run(t, statusWorld, "status", "-f", "-", "-o", "json", "-l", "team=a")
	require.NoError(t, err)
	var rows []statusRow
	require.NoError(t, json.Unmarshal([]byte(out), &rows))
	require.Len(t, rows, 1)
	assert.Equal(t, []string{"http://chat.example.com/", "https://b.example.com/ (header X-Model: chat)"}, rows[0].URLs)
	assert.Equal(t, "models/chat True", fmt.Sprintf("%s/%s %s", rows[0].Namespace, rows[0].Name, rows[0].Exposed))

	_, _, err = run(t, "", "status", "-f", "-", "-o", "yaml")
	require.EqualError(t, err, `--output "yaml" is not one of wide, json`)
	_, kubeconfig = startAPIServer(t, []string{"inferenceservices"}, statusWorld)
	_, _, err = run(t, "", "status", kubeconfig)
	require.ErrorContains(t, err, "list inferenceservices.ome.io")
}

// compact replaces the spaces between columns with a separator.
func compact(table string) string {
	return regexp.MustCompile(" {3,}").ReplaceAllString(table, " | ")
}
