package inventory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const gpuDriver = "gpu.example.com"

// slice returns a slice of a pool of one slice, with devices of a product.
func slice(node, product string, devices int) *DeviceSlice {
	s := &DeviceSlice{Driver: gpuDriver, Pool: node, Generation: 1, Count: 1, Node: node}
	for n := range devices {
		s.Devices = append(s.Devices, Device{Name: fmt.Sprint("gpu-", n), Attributes: []string{AttributeText(gpuDriver, "product", product), AttributeText(gpuDriver, "type", `"gpu"`)}})
	}
	return s
}

// claiming returns an Input with a variant whose pods claim two devices. Nodes a and b have a slice each.
func claiming(slices ...*DeviceSlice) *Input {
	return &Input{
		Nodes: []*Node{{Name: "a", Ready: true}, {Name: "b", Ready: true, Labels: map[string]string{"gpu": "b"}}, {Name: "c"}},
		Variants: []Variant{{
			Namespace: "ns", Shape: Shape{Cards: 2, Pods: 1, Placement: Placements{{}}.Key()}, Replicas: 3,
			Devices: &DeviceRequest{Driver: gpuDriver, Attributes: []string{AttributeText(gpuDriver, "type", `"gpu"`)}},
		}},
		Devices: Devices{Slices: slices},
	}
}

func claim(node string, devices ...int) *DeviceClaim {
	c := &DeviceClaim{}
	for _, n := range devices {
		c.Devices = append(c.Devices, DeviceName{Driver: gpuDriver, Pool: node, Name: fmt.Sprint("gpu-", n)})
	}
	return c
}

func TestDevices(t *testing.T) {
	t.Parallel()
	in := claiming(slice("a", "H100", 8), slice("b", "A100", 4), slice("c", "A100", 4), slice("gone", "A100", 4))
	in.Devices.Claims = []*DeviceClaim{claim("a", 0, 1), claim("a", 1), claim("b", 7)}
	r := Build(in)
	assert.Equal(t, []snapshot.NodeSet{{Name: `nodes with devices of gpu.example.com with gpu.example.com/type="gpu"`, Resource: `devices of gpu.example.com with gpu.example.com/type="gpu"`, Nodes: 2, Free: []snapshot.FreeNodes{{Cards: 4, Nodes: 1}, {Cards: 6, Nodes: 1}}}}, r.Sets, "node c is not ready")

	in.Variants[0].Shape.Placement = Placements{{Selector: map[string]string{"gpu": "b"}}}.Key()
	assert.Equal(t, []snapshot.FreeNodes{{Cards: 4, Nodes: 1}}, Build(in).Sets[0].Free)
	in.Variants[0].Devices.Driver = "other"
	assert.Zero(t, Build(in).Sets[0].Nodes)
}

// TestPools: the newest generation of a pool counts, once all of its slices are there.
func TestPools(t *testing.T) {
	t.Parallel()
	older, newer, second := slice("a", "H100", 8), slice("a", "H100", 2), slice("a", "H100", 0)
	newer.Generation, second.Generation = 2, 2
	second.Devices = []Device{{Name: "gpu-9", Attributes: newer.Devices[0].Attributes, Node: "b"}}
	second.Node = ""
	free := func(slices ...*DeviceSlice) []snapshot.FreeNodes {
		return Build(claiming(slices...)).Sets[0].Free
	}
	assert.Equal(t, []snapshot.FreeNodes{{Cards: 8, Nodes: 1}}, free(older))
	assert.Equal(t, []snapshot.FreeNodes{{Cards: 2, Nodes: 1}}, free(older, newer))
	assert.Equal(t, []snapshot.FreeNodes{{Cards: 2, Nodes: 1}}, free(newer, older), "in any order")
	newer.Count, second.Count = 2, 2
	assert.Empty(t, free(older, newer), "a slice of the new generation is missing")
	assert.Equal(t, []snapshot.FreeNodes{{Cards: 1, Nodes: 1}, {Cards: 2, Nodes: 1}}, free(older, newer, second), "a device has a node of its own")
}

// TestKindsOfDevices: two requests can match the same devices.
func TestKindsOfDevices(t *testing.T) {
	t.Parallel()
	in := claiming(slice("a", "H100", 8), slice("b", "A100", 4))
	request := func(r *DeviceRequest) {
		v := in.Variants[0]
		v.Devices = r
		in.Variants = append(in.Variants, v)
	}
	request(&DeviceRequest{Driver: gpuDriver, Attributes: []string{AttributeText(gpuDriver, "product", "H100")}})
	request(&DeviceRequest{Driver: gpuDriver, Attributes: []string{AttributeText(gpuDriver, "product", "A100")}})
	request(&DeviceRequest{Driver: gpuDriver, Attributes: []string{AttributeText(gpuDriver, "type", `"gpu"`)}})
	r := Build(in)
	require.Len(t, r.Sets, 3)
	assert.Equal(t, r.Uses[0].Set, r.Uses[3].Set)
	assert.Equal(t, []int{1, 2}, r.Sets[0].Overlaps)
	assert.Equal(t, []int{0}, r.Sets[1].Overlaps)
	assert.Empty(t, r.Sets[0].Within)
	assert.Empty(t, r.Sets[1].Within, "its places are not those of other devices")
}

func TestPodsWithClaims(t *testing.T) {
	t.Parallel()
	in := claiming(slice("a", "H100", 8))
	in.Pods = []Pod{{Node: "a", Claims: true}, {Node: "a", Claims: true, Terminating: true}, {Node: "a"}, {Node: "a", Claims: true, Variant: -1}}
	assert.EqualValues(t, 2, Build(in).Uses[0].Placed)
}

func TestHostileDevices(t *testing.T) {
	t.Parallel()
	broken := slice("a", "H100", 2)
	broken.Invalid = true
	in := claiming(broken, slice("b", "A100", 4))
	assert.Equal(t, snapshot.InventoryInvalid, Build(in).Uses[0].Problem.Reason)
	in.Variants[0].Shape.Placement = Placements{{Selector: map[string]string{"gpu": "b"}}}.Key()
	assert.Nil(t, Build(in).Uses[0].Problem, "it cannot use the node")
	assert.Equal(t, snapshot.InventoryInvalid, Build(claiming(slice("a", "H100", MaxNodeCards+1))).Uses[0].Problem.Reason)

	in = claiming(slice("a", "H100", 8))
	for n := range maxDeviceKinds {
		v := in.Variants[0]
		v.Namespace, v.Devices = fmt.Sprint(n), &DeviceRequest{Driver: fmt.Sprint(n)}
		in.Variants = append(in.Variants, v)
	}
	assert.Equal(t, snapshot.LimitExceeded, Build(in).Uses[maxDeviceKinds].Problem.Reason)
	assert.Nil(t, Build(in).Uses[0].Problem)
}
