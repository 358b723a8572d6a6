package commands

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/dryrun"
)

const world = `
{apiVersion: apps.openyurt.io/v1alpha1, kind: YurtIngress, metadata: {name: edge, creationTimestamp: "2026-01-01T00:00:00Z"},
  spec: {ingress_webhook_certgen_image: x, pools: [{name: hangzhou}, {name: nowhere}]}}
---
{apiVersion: apps.openyurt.io/v1alpha1, kind: YurtIngress, metadata: {name: late, creationTimestamp: "2026-01-02T00:00:00Z"},
  spec: {pools: [{name: hangzhou}, {name: beijing}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n, labels: {apps.openyurt.io/nodepool: hangzhou}}, status: {conditions: [{type: Ready,
  status: "True"}]}}
---
{apiVersion: apps.openyurt.io/v1beta1, kind: NodePool, metadata: {name: beijing}}
`

func run(t *testing.T, in string, args ...string) (out, log string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := New(&stdout, &stderr)
	cmd.SetIn(strings.NewReader(in))
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func TestPlan(t *testing.T) {
	t.Parallel()
	out, log, err := run(t, world, "plan", "--namespace=fairlead", "-f", "-")
	require.ErrorIs(t, err, dryrun.ErrDiffers)
	assert.Equal(t, 2, strings.Count(out, "\nkind: Deployment\n"))
	assert.Contains(t, out, "name: hangzhou\n")
	assert.NotContains(t, out, "nowhere")
	assert.Contains(t, log, `YurtIngress edge: ingress_webhook_certgen_image has no effect`)
	assert.Contains(t, log, `YurtIngress edge pool "nowhere": not accepted: PoolNotFound`)
	assert.Contains(t, log, `YurtIngress late pool "hangzhou": not accepted: PoolConflict: YurtIngress edge has the pool`)
	assert.Contains(t, log, `YurtIngress late pool "beijing": IngressClass beijing would be created`)

	planned, _, err := run(t, world, "plan", "--namespace=fairlead", "-f", "-", "late")
	require.ErrorIs(t, err, dryrun.ErrDiffers)
	assert.Equal(t, 1, strings.Count(planned, "\nkind: Deployment\n"))
	diff, _, err := run(t, world+"---\n"+strings.ReplaceAll(out, "replicas: 1", "replicas: 4"), "plan", "--namespace=fairlead", "-f", "-",
		"--diff")
	require.ErrorIs(t, err, dryrun.ErrDiffers)
	assert.Contains(t, diff, "-  replicas: 4\n+  replicas: 1\n")

	_, _, err = run(t, world, "plan", "--namespace=fairlead", "-f", "-", "absent")
	require.ErrorContains(t, err, "does not exist")
	_, _, err = run(t, "", "plan", "--namespace=fairlead", "-f", "-")
	require.ErrorIs(t, err, dryrun.ErrNothingPlanned)
	_, _, err = run(t, world, "plan", "--namespace=fairlead", "-f", "-", "-o", "x")
	require.ErrorContains(t, err, "--output")
	_, _, err = run(t, world, "plan", "--namespace=fairlead", "-f", "-", "--default-profile=x")
	require.ErrorContains(t, err, "--default-profile")
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	out, _, err := run(t, "", "--version")
	require.NoError(t, err)
	assert.Contains(t, out, "nodepool-ingress ")
	out, _, err = run(t, "", "graph")
	require.NoError(t, err)
	assert.Contains(t, out, "digraph")
	_, _, err = run(t, "", "--workers=0")
	require.ErrorContains(t, err, "flags: ")
}
