package clusterapi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestConfig_Complete(t *testing.T) {
	t.Parallel()
	c := Config{Dir: "state", Images: "images", Nodes: []Node{{}, {Name: "gpu", Zone: "z", Pods: 10}}}
	require.NoError(t, c.Complete())
	assert.True(t, len(c.Dir) > len("state") && c.Dir[0] == '/', c.Dir)
	assert.Equal(t, "127.0.0.1:0", c.APIAddress)
	assert.Equal(t, Node{Name: "node-1", Zone: "zone-1", CPUs: 64, MemoryGiB: 256, Pods: 250}, c.Nodes[0])
	assert.Equal(t, Node{Name: "gpu", Zone: "z", CPUs: 64, MemoryGiB: 256, Pods: 10}, c.Nodes[1])
	assert.EqualValues(t, 300, *c.Timings.TolerationSeconds)

	one := Config{Dir: "/d", Images: "/i"}
	require.NoError(t, one.Complete())
	assert.Len(t, one.Nodes, 1)
	none := Config{Dir: "/d", ControlPlaneOnly: true}
	require.NoError(t, none.Complete())
	assert.Empty(t, none.Nodes)
}

func TestConfig_ValidateNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give, want string
	}{
		{name: "no dir", give: `{images: /i}`, want: "dir: required"},
		{name: "no images", give: `{dir: /d}`, want: "images: required"},
		{name: "nodes with controlPlaneOnly", give: `{dir: /d, controlPlaneOnly: true, nodes: [{}]}`, want: "nodes: must be empty if controlPlaneOnly is true"},
		{name: "invalid node name", give: `{dir: /d, images: /i, nodes: [{name: Node_1}]}`, want: `nodes: invalid name "Node_1"`},
		{name: "duplicate node name", give: `{dir: /d, images: /i, nodes: [{name: a}, {name: a}]}`, want: `nodes: duplicate name "a"`},
		{name: "too many pods", give: `{dir: /d, images: /i, nodes: [{pods: 251}]}`, want: "node-1: pods is 251, must be 1 to 250"},
		{name: "invalid API address", give: `{dir: /d, images: /i, apiAddress: "8080"}`, want: `apiAddress: "8080" is not host:port`},
		{name: "invalid publish target", give: `{dir: /d, images: /i, publish: [{host: "127.0.0.1:0", target: web}]}`, want: `publish: "web" is not host:port`},
		{name: "unknown component", give: `{dir: /d, images: /i, args: {kube-dns: [--x]}}`, want: `args: unknown component "kube-dns"`},
		{name: "Yurthub without a pool", give: `{dir: /d, images: /i, nodes: [{yurthub: /y}]}`, want: "node-1: yurthub needs the label apps.openyurt.io/nodepool"},
		{name: "unknown service proxy", give: `{dir: /d, images: /i, serviceProxy: iptables}`, want: `serviceProxy: unknown proxy "iptables": use kube-proxy or userspace`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var c Config
			require.NoError(t, yaml.UnmarshalStrict([]byte(tt.give), &c))
			assert.ErrorContains(t, c.Complete(), tt.want)
		})
	}
}

func TestConfig_ValidateNamesAllThatIsWrongAtOnce(t *testing.T) {
	t.Parallel()
	err := (&Config{APIAddress: "x", Args: map[string][]string{"b": nil, "a": nil}}).Validate()
	for _, want := range []string{"dir:", "images:", "apiAddress:", `"a"`, `"b"`} {
		assert.ErrorContains(t, err, want)
	}
}
