package inventory

import (
	"cmp"
	"slices"
	"strings"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// maxDeviceKinds is the most different requests of devices of all variants. Usual clusters have one for each product.
const maxDeviceKinds = 64

// Devices is what the objects of dynamic resource allocation say.
type Devices struct {
	Slices []*DeviceSlice
	Claims []*DeviceClaim
}

// DeviceSlice is a ResourceSlice.
type DeviceSlice struct {
	Driver, Pool string
	Generation   int64
	// Count is the number of slices of the pool in this generation.
	Count int64
	// Node is the node of all devices. Empty: devices have nodes of their own, or none.
	Node    string
	Devices []Device
	// Invalid reports that not all devices could be read.
	Invalid bool
}

// Device is a device that one node alone can use, all of it. Others are not among those of a DeviceSlice.
type Device struct {
	Name string
	Node string // empty: that of the slice
	// Attributes are texts as AttributeText returns them.
	Attributes []string
}

// AttributeText returns an attribute of a device with its value.
func AttributeText(domain, name, value string) string { return domain + "/" + name + "=" + value }

// DeviceClaim is a ResourceClaim that has devices.
type DeviceClaim struct{ Devices []DeviceName }

// DeviceName identifies a device.
type DeviceName struct{ Driver, Pool, Name string }

// DeviceRequest is the devices that a pod requests, as far as a driver and attributes say which. All must be on one node.
type DeviceRequest struct {
	Driver     string
	Attributes []string // as AttributeText returns them, in their order
}

// String names the devices.
func (r *DeviceRequest) String() string {
	name := "devices of " + r.Driver
	if len(r.Attributes) > 0 {
		name += " with " + strings.Join(r.Attributes, " and ")
	}
	return name
}

func (r *DeviceRequest) matchesDevice(driver string, d *Device) bool {
	return r.Driver == driver && !slices.ContainsFunc(r.Attributes, func(a string) bool { return !slices.Contains(d.Attributes, a) })
}

// poolName identifies a pool.
type poolName struct{ driver, pool string }

// devices counts the devices of nodes.
type devices struct {
	current []*DeviceSlice // those of the newest generation of complete pools
	taken   map[DeviceName]bool
	kinds   []deviceKind
	byName  map[string]int // kinds by the text of their request
}

// deviceKind is the devices that a request matches.
type deviceKind struct {
	request     *DeviceRequest
	allocatable []int64 // by node
	free        []int64 // by node
}

func newDevices(in *Devices) *devices {
	d := &devices{taken: map[DeviceName]bool{}, byName: map[string]int{}}
	newest, number := map[poolName]int64{}, map[poolName]int64{}
	for _, s := range in.Slices {
		at := poolName{s.Driver, s.Pool}
		if generation, known := newest[at]; !known || s.Generation > generation {
			newest[at], number[at] = s.Generation, 0
		}
		if s.Generation == newest[at] {
			number[at]++
		}
	}
	for _, s := range in.Slices {
		if at := (poolName{s.Driver, s.Pool}); s.Generation == newest[at] && number[at] == s.Count {
			d.current = append(d.current, s)
		}
	}
	for _, c := range in.Claims {
		for _, name := range c.Devices {
			d.taken[name] = true
		}
	}
	return d
}

// kindOf returns the position of the devices of a request: that of the next kind if nothing has requested them before.
func (d *devices) kindOf(r *DeviceRequest) int {
	if at, known := d.byName[r.String()]; known {
		return at
	}
	return len(d.kinds)
}

// addKind adds the devices of a request, unless they are known. It returns a problem if there are too many kinds of requests.
func (d *devices) addKind(r *DeviceRequest, position map[string]int) *snapshot.Problem {
	switch at := d.kindOf(r); {
	case at < len(d.kinds):
		return nil
	case at == maxDeviceKinds:
		return snapshot.NewProblem(snapshot.LimitExceeded,
			"all variants together request more than %d different kinds of devices: use the same DeviceClass in several claims", maxDeviceKinds)
	}
	kind := deviceKind{request: r, allocatable: make([]int64, len(position)), free: make([]int64, len(position))}
	for _, s := range d.current {
		kind.addSlice(s, d.taken, position)
	}
	d.byName[r.String()] = len(d.kinds)
	d.kinds = append(d.kinds, kind)
	return nil
}

// addSlice adds the devices of a slice.
func (k *deviceKind) addSlice(s *DeviceSlice, taken map[DeviceName]bool, position map[string]int) {
	if n, known := position[s.Node]; known && s.Invalid && s.Driver == k.request.Driver {
		k.allocatable[n], k.free[n] = Unreadable, Unreadable
	}
	for i := range s.Devices {
		device := &s.Devices[i]
		n, known := position[cmp.Or(device.Node, s.Node)]
		if !known || k.free[n] == Unreadable || !k.request.matchesDevice(s.Driver, device) {
			continue
		}
		k.allocatable[n]++
		if !taken[DeviceName{s.Driver, s.Pool, device.Name}] {
			k.free[n]++
		}
		if k.allocatable[n] > MaxNodeCards {
			k.allocatable[n], k.free[n] = Unreadable, Unreadable
		}
	}
}

// cardsOf returns the cards of a resource that a node has, and those that are free.
func (b *builder) cardsOf(node, resource int) (allocatable, free int64) {
	if resource < len(Resources) {
		return b.nodes[node].Allocatable[resource], b.free[node][resource]
	}
	kind := &b.devices.kinds[resource-len(Resources)]
	return kind.allocatable[node], kind.free[node]
}

func (b *builder) nameOf(resource int) string {
	if resource < len(Resources) {
		return Resources[resource]
	}
	return b.devices.kinds[resource-len(Resources)].request.String()
}

// canShare reports whether two resources can have a card in common: several kinds of devices can match a device.
func (b *builder) canShare(resource, other int) bool {
	if resource < len(Resources) || other < len(Resources) {
		return resource == other
	}
	return b.devices.kinds[resource-len(Resources)].request.Driver == b.devices.kinds[other-len(Resources)].request.Driver
}
