package decision

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/testlane"
	"fairlead.dev/services/variant-autoscaler/internal/inventory"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const deviceDriver = "gpu.example.com"

// deviceCluster is nodes whose devices have attributes, devices that others claimed, and variants whose pods claim devices. It has the
// rules of the scheduler, but takes pods in any order, and gives each any devices that match, of any node.
type deviceCluster struct {
	*rand.Rand

	nodes    []*inventory.Node
	slices   []*inventory.DeviceSlice
	others   []*inventory.DeviceClaim
	free     map[inventory.DeviceName]bool
	variants []*deviceTenant
}

// deviceTenant is a variant of which each pod claims devices.
type deviceTenant struct {
	devices  int64
	request  *inventory.DeviceRequest
	replicas int
	claims   []*inventory.DeviceClaim // of the pods that have a node
}

func newDeviceCluster(r *rand.Rand) *deviceCluster {
	c := &deviceCluster{Rand: r, free: map[inventory.DeviceName]bool{}}
	for n := range 20 {
		node := fmt.Sprint(n)
		c.nodes = append(c.nodes, &inventory.Node{Name: node, Ready: r.IntN(10) > 0})
		parts := 1 + r.IntN(2)
		older := &inventory.DeviceSlice{Driver: deviceDriver, Pool: node, Generation: 1, Count: 1, Node: node, Devices: c.devices(0, 64)}
		c.slices = append(c.slices, older)
		complete := r.IntN(8) > 0 // a slice of a pool that a driver publishes right now is missing
		for part := range parts {
			s := &inventory.DeviceSlice{Driver: deviceDriver, Pool: node, Generation: 2, Count: int64(parts), Node: node, Devices: c.devices(part*8, 8)}
			if !complete {
				s.Count++
			}
			c.slices = append(c.slices, s)
			for _, d := range s.Devices {
				c.free[inventory.DeviceName{Driver: deviceDriver, Pool: node, Name: d.Name}] = complete
			}
		}
	}
	byName := func(a, b inventory.DeviceName) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
	}
	for _, name := range slices.SortedFunc(maps.Keys(c.free), byName) {
		if r.IntN(3) == 0 {
			c.free[name] = false
			c.others = append(c.others, &inventory.DeviceClaim{Devices: []inventory.DeviceName{name}})
		}
	}
	for range 8 {
		v := &deviceTenant{devices: []int64{1, 2, 3, 4}[r.IntN(4)], request: &inventory.DeviceRequest{Driver: deviceDriver}}
		if r.IntN(2) == 0 {
			v.request.Attributes = []string{c.product()}
		}
		c.variants = append(c.variants, v)
	}
	return c
}

func (c *deviceCluster) product() string {
	return inventory.AttributeText(deviceDriver, "product", fmt.Sprint(c.IntN(2)))
}

func (c *deviceCluster) devices(first, number int) []inventory.Device {
	var all []inventory.Device
	for n := range number {
		all = append(all, inventory.Device{Name: fmt.Sprint("gpu-", first+n), Attributes: []string{c.product()}})
	}
	return all
}

// schedule gives pods that have no node their devices, and returns how many found none.
func (c *deviceCluster) schedule() (pending int) {
	var queue []*deviceTenant
	for _, v := range c.variants {
		for range v.replicas - len(v.claims) {
			queue = append(queue, v)
		}
	}
	c.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
	for _, v := range queue {
		pending++
		for _, n := range c.Perm(len(c.nodes)) {
			matching := c.matching(v, n)
			if !c.nodes[n].Ready || int64(len(matching)) < v.devices {
				continue
			}
			c.Shuffle(len(matching), func(i, j int) { matching[i], matching[j] = matching[j], matching[i] })
			claim := &inventory.DeviceClaim{Devices: matching[:v.devices]}
			for _, name := range claim.Devices {
				c.free[name] = false
			}
			v.claims = append(v.claims, claim)
			pending--
			break
		}
	}
	return pending
}

// matching returns the free devices of a node that a variant can have.
func (c *deviceCluster) matching(v *deviceTenant, node int) []inventory.DeviceName {
	var all []inventory.DeviceName
	for _, s := range c.slices {
		for _, d := range s.Devices {
			name := inventory.DeviceName{Driver: deviceDriver, Pool: s.Pool, Name: d.Name}
			matches := len(v.request.Attributes) == 0 || slices.Contains(d.Attributes, v.request.Attributes[0])
			if s.Generation == 2 && s.Node == c.nodes[node].Name && matches && c.free[name] {
				all = append(all, name)
			}
		}
	}
	return all
}

func (c *deviceCluster) scale(v *deviceTenant, replicas int) {
	for v.replicas = replicas; len(v.claims) > replicas; {
		i := c.IntN(len(v.claims))
		for _, name := range v.claims[i].Devices {
			c.free[name] = true
		}
		v.claims = slices.Delete(v.claims, i, i+1)
	}
}

// snapshot returns what a pass sees of the cluster under loads.
func (c *deviceCluster) snapshot(loads []int64) *snapshot.Snapshot {
	in := &inventory.Input{Nodes: c.nodes, Devices: inventory.Devices{Slices: c.slices, Claims: slices.Clone(c.others)}}
	for i, v := range c.variants {
		for _, claim := range v.claims {
			in.Devices.Claims = append(in.Devices.Claims, claim)
			in.Pods = append(in.Pods, inventory.Pod{Node: claim.Devices[0].Pool, Claims: true, Variant: i})
		}
		in.Variants = append(in.Variants, inventory.Variant{
			Replicas: int64(v.replicas), Shape: inventory.Shape{Cards: v.devices, Pods: 1, Placement: inventory.Placements{{}}.Key()}, Devices: v.request,
		})
	}
	result := inventory.Build(in)
	s := &snapshot.Snapshot{Time: noon, Settings: snapshot.Settings{Split: "capacity"}}
	for _, set := range result.Sets {
		built := snapshot.NodeSet{Nodes: set.Nodes, Within: set.Within, Overlaps: set.Overlaps}
		built.Free = append(built.Free, set.Free...)
		s.Nodes = append(s.Nodes, built)
	}
	for i, v := range c.variants {
		g := one(load(loads[i])).Groups[0]
		g.Model, g.Priority = fmt.Sprint(i), 1+i%2
		built := g.Variants[i%2]
		built.Name, built.Max, built.Now, built.Ready = fmt.Sprint(i), 100, v.replicas, len(v.claims)
		built.Pods = &snapshot.Pods{Set: result.Uses[i].Set, Cards: v.devices, Count: 1, Placed: result.Uses[i].Placed}
		g.Variants = []snapshot.Variant{built}
		s.Groups = append(s.Groups, g)
	}
	return s
}

// TestNoPodLacksDevices: whatever devices the scheduler gives to pods, each replica that a decision adds finds a node with its devices.
func TestNoPodLacksDevices(t *testing.T) {
	t.Parallel()
	added := 0
	for seed := range uint64(testlane.Repetitions(20, 2000)) {
		c := newDeviceCluster(rand.New(rand.NewPCG(seed, 5)))
		loads := make([]int64, len(c.variants))
		for pass := range 4 {
			for i := range loads {
				if pass%2 == 0 {
					loads[i] = c.Int64N(200)
				}
			}
			d, err := Decide(c.snapshot(loads))
			require.NoError(t, err)
			for i, v := range c.variants {
				desired := d.Groups[i].Variants[0].Desired
				added += max(desired-v.replicas, 0)
				c.scale(v, desired)
			}
			require.Zero(t, c.schedule(), "seed %d, pass %d", seed, pass)
		}
	}
	assert.Greater(t, added, 200)
}
