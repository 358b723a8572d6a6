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
		{name: "no folder", give: `{images: /i}`, want: "dir: name the folder"},
		{name: "no images", give: `{dir: /d}`, want: "images: name the image store"},
		{name: "nodes without the rest", give: `{dir: /d, controlPlaneOnly: true, nodes: [{}]}`, want: "nodes: a cluster that is its control plane only has none"},
		{name: "a node's name", give: `{dir: /d, images: /i, nodes: [{name: Node_1}]}`, want: `nodes: "Node_1" is not a name`},
		{name: "two nodes of one name", give: `{dir: /d, images: /i, nodes: [{name: a}, {name: a}]}`, want: `nodes: two are called "a"`},
		{name: "too many pods", give: `{dir: /d, images: /i, nodes: [{pods: 251}]}`, want: "node-1 wants 251 pods"},
		{name: "the API server's address", give: `{dir: /d, images: /i, apiAddress: "8080"}`, want: `apiAddress: "8080" is not host:port`},
		{name: "a published target", give: `{dir: /d, images: /i, publish: [{host: "127.0.0.1:0", target: web}]}`, want: `publish: "web" is not host:port`},
		{name: "an unknown component", give: `{dir: /d, images: /i, args: {kube-proxy: [--x]}}`, want: `args: no component is called "kube-proxy"`},
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
