package inventory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// TestKindsOfANamespace: the variants of one namespace leave kinds of devices for those of others.
func TestKindsOfANamespace(t *testing.T) {
	t.Parallel()
	in := claiming(slice("a", "H100", 8))
	victim := in.Variants[0]
	in.Variants = nil
	for n := range maxDeviceKinds {
		in.Variants = append(in.Variants, Variant{
			Namespace: "hostile", Shape: Shape{Cards: 1, Pods: 1}, Devices: &DeviceRequest{Driver: gpuDriver, Attributes: []string{fmt.Sprint("n=", n)}},
		})
	}
	in.Variants = append(in.Variants, victim)
	r := Build(in)
	assert.Nil(t, r.Uses[maxDeviceKinds].Problem)
	assert.Equal(t, snapshot.LimitExceeded, r.Uses[maxDeviceKinds-1].Problem.Reason)
}

// TestManyFlavors: a pod template with few words about nodes can get any number of flavors.
func TestManyFlavors(t *testing.T) {
	t.Parallel()
	in := waiting(Kueue{})
	q := &QuotaOwner{Name: "q"}
	for n := range 256 {
		name := fmt.Sprint("flavor-", n)
		labels := map[string]string{"cloud.example.com/accelerator": "nvidia-h100-80gb", "cloud.example.com/nodepool": name, "topology.kubernetes.io/zone": fmt.Sprint("zone-", n%3)}
		in.Kueue.Flavors = append(in.Kueue.Flavors, &Flavor{Name: name, Labels: labels})
		q.Quotas = append(q.Quotas, FlavorQuota{Flavor: name, Nominal: 8})
		if n < 2 {
			in.Nodes[n].Labels = labels
		}
	}
	in.Kueue.ClusterQueues = []*QuotaOwner{q}
	r := Build(in)
	assert.Nil(t, r.Uses[0].Problem)
	assert.Len(t, r.Uses[0].Quotas, 256)
	assert.Equal(t, 2, r.Sets[0].Nodes)
}
