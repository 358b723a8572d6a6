//go:build system

package flow

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typeddiscoveryv1 "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/utils/ptr"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/backendset-syncer/internal/config"
)

// rollOut describes a Deployment whose oldest pods are replaced, one after the other, and the load balancer.
type rollOut struct {
	replicas, surge, replaced int

	each  time.Duration // from one new pod that is ready to the next
	grace time.Duration // for which a pod terminates; long enough for some sync to show it
	batch time.Duration // between two syncs of the EndpointSlice controller
	work  time.Duration // of a work request
	stale time.Duration // age of reads of the load balancer
}

// A pod is old, or new: pod replicas+n is ready when the n-th oldest terminates.
func (o *rollOut) readyAt(pod int) time.Duration { return time.Duration(pod-o.replicas+1) * o.each }

// createdAt returns when the surge permits a pod.
func (o *rollOut) createdAt(pod int) time.Duration {
	return max(0, time.Duration(pod-o.replicas+1-o.surge)*o.each)
}

// length is the time until the last pod that is replaced is gone.
func (o *rollOut) length() time.Duration {
	return o.readyAt(o.replicas+o.replaced-1) + o.grace
}

// endpoints returns the endpoints of all pods some time after the begin.
func (o *rollOut) endpoints(after time.Duration) []discoveryv1.Endpoint {
	var all []discoveryv1.Endpoint
	for pod := range o.replicas + o.replaced {
		isNew := pod >= o.replicas
		ends := o.readyAt(o.replicas + pod)
		ready, terminating := !isNew || after >= o.readyAt(pod), pod < o.replaced && after >= ends
		if isNew && after < o.createdAt(pod) || terminating && after >= ends+o.grace {
			continue
		}
		all = append(all, discoveryv1.Endpoint{
			Addresses:  []string{addressOf(pod).Addr().String()},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready && !terminating), Serving: &ready, Terminating: &terminating},
			NodeName:   ptr.To(fmt.Sprintf("node-%d", pod%50)),
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: "models", Name: fmt.Sprintf("chat-%d", pod), UID: types.UID(fmt.Sprintf("uid-%d", pod)),
			},
		})
	}
	return all
}

func addressOf(pod int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(pod / 250), byte(pod%250 + 1)}), 8000)
}

// remaining returns the names of the backends of all pods that are not replaced, sorted.
func (o *rollOut) remaining() []string {
	var all []string
	for pod := o.replaced; pod < o.replicas+o.replaced; pod++ {
		all = append(all, addressOf(pod).String())
	}
	slices.Sort(all)
	return all
}

// slicer writes EndpointSlices as the EndpointSlice controller does: an endpoint stays in its slice, slices that change anyway take new
// endpoints, then one slice that has room for all of them, then new slices.
type slicer struct {
	t      *testing.T
	client typeddiscoveryv1.EndpointSliceInterface
	slices []*discoveryv1.EndpointSlice
	writes int
}

// maxInSlice is the default of the EndpointSlice controller.
const maxInSlice = 100

// sync writes the slices that differ.
func (s *slicer) sync(ctx context.Context, want []discoveryv1.Endpoint) {
	s.t.Helper()
	missing := map[string]discoveryv1.Endpoint{}
	for _, e := range want {
		missing[e.TargetRef.Name] = e
	}
	changed := map[*discoveryv1.EndpointSlice]bool{}
	for _, slice := range s.slices {
		var kept []discoveryv1.Endpoint
		for _, e := range slice.Endpoints {
			if now, found := missing[e.TargetRef.Name]; found {
				kept = append(kept, now)
				delete(missing, e.TargetRef.Name)
			}
		}
		changed[slice] = !apiequality.Semantic.DeepEqual(kept, slice.Endpoints)
		slice.Endpoints = kept
	}
	rest := slices.DeleteFunc(want, func(e discoveryv1.Endpoint) bool { _, found := missing[e.TargetRef.Name]; return !found })
	s.fill(rest, changed)
	s.write(ctx, changed)
}

// fill distributes new endpoints.
func (s *slicer) fill(rest []discoveryv1.Endpoint, changed map[*discoveryv1.EndpointSlice]bool) {
	fullest := slices.SortedFunc(slices.Values(s.slices),
		func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(len(b.Endpoints), len(a.Endpoints)) })
	put := func(to *discoveryv1.EndpointSlice) {
		n := min(len(rest), maxInSlice-len(to.Endpoints))
		to.Endpoints, rest = append(to.Endpoints, rest[:n]...), rest[n:]
		changed[to] = changed[to] || n > 0
	}
	for _, slice := range fullest {
		if changed[slice] && len(slice.Endpoints) > 0 { // an empty one is deleted
			put(slice)
		}
	}
	for len(rest) > 0 {
		i := slices.IndexFunc(fullest, func(slice *discoveryv1.EndpointSlice) bool {
			return !changed[slice] && len(slice.Endpoints)+len(rest) <= maxInSlice
		})
		if i >= 0 {
			put(fullest[i])
			continue
		}
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "chat-", Namespace: "models", Labels: map[string]string{
				discoveryv1.LabelServiceName: "chat", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
			}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{
				{Name: ptr.To("http"), Port: ptr.To[int32](8000), Protocol: ptr.To(corev1.ProtocolTCP)},
			},
		}
		s.slices = append(s.slices, slice)
		put(slice)
	}
}

// write creates, updates and deletes slices.
func (s *slicer) write(ctx context.Context, changed map[*discoveryv1.EndpointSlice]bool) {
	s.t.Helper()
	var left []*discoveryv1.EndpointSlice
	for _, slice := range s.slices {
		if !changed[slice] {
			left = append(left, slice)
			continue
		}
		s.writes++
		var written *discoveryv1.EndpointSlice
		var err error
		switch {
		case slice.ResourceVersion == "":
			written, err = s.client.Create(ctx, slice, metav1.CreateOptions{})
		case len(slice.Endpoints) == 0:
			err = s.client.Delete(ctx, slice.Name, metav1.DeleteOptions{})
		default:
			written, err = s.client.Update(ctx, slice, metav1.UpdateOptions{})
		}
		require.NoError(s.t, err)
		if written != nil {
			left = append(left, written)
		}
	}
	s.slices = left
}

// backendsOf returns the names of the active backends of a set, sorted, and the number of those that drain.
func (r *rig) backendsOf(id, set string) (active []string, draining int) {
	for _, b := range r.emulator.Current(id).BackendSets[set].Backends {
		if b.Drain {
			draining++
			continue
		}
		active = append(active, b.Name)
	}
	slices.Sort(active)
	return active, draining
}

// TestRollOut replaces more pods than a Deployment has, in many events. One write for each work request follows them.
func TestRollOut(t *testing.T) {
	t.Parallel()
	o := rollOut{
		replicas: 400, surge: 40, replaced: 1000, each: 10 * time.Millisecond, grace: 3 * time.Second, batch: 200 * time.Millisecond,
		work: 3 * time.Second, stale: time.Second,
	}
	r := newRig(t)
	id := r.balancer("rollout", "chat")
	modes := r.emulator.Modes()
	modes.Latency, modes.LatencyTail, modes.Stale = ocilb.Duration(o.work), ocilb.Duration(o.work), ocilb.Duration(o.stale)
	r.emulator.SetModes(modes)
	r.configure("loadBalancers: [{id: " + id + "}]")
	r.apply("apiVersion: v1\nkind: Service\nmetadata: {name: chat, namespace: models}\nspec: {ports: [{name: http, port: 80, targetPort: " +
		"8000}]}\n")
	s := &slicer{t: t, client: r.kube.DiscoveryV1().EndpointSlices("models")}
	s.sync(t.Context(), o.endpoints(-time.Second))
	r.start(func(c *config.Config) { c.OCI.Rate = config.Default().OCI.Rate })
	r.bind("models", "chat", id, "chat")
	r.reason("models", "chat", "Synced")

	r.emulator.ForgetCalls()
	before := s.writes
	for after := time.Duration(0); after < o.length()+o.batch; after += o.batch {
		s.sync(t.Context(), o.endpoints(after))
		time.Sleep(o.batch)
	}
	want := o.remaining()
	require.Eventually(t, func() bool {
		active, draining := r.backendsOf(id, "chat")
		return draining == 0 && slices.Equal(want, active)
	}, kubetest.Patience, tick, "%s", lazy(func() string {
		active, draining := r.backendsOf(id, "chat")
		return fmt.Sprintf("the set has %d active and %d draining backends", len(active), draining)
	}))
	r.reason("models", "chat", "Synced")

	writes, last := 0, time.Time{}
	for _, c := range r.emulator.Calls() {
		assert.Empty(t, c.Code, "%s %s", c.Operation, c.Path)
		if c.Write() {
			assert.GreaterOrEqual(t, c.At.Sub(last), o.work,
				"a write waits for the work request of the one before: all events of this time are one write")
			writes, last = writes+1, c.At
		}
	}
	t.Logf("%d pods: %d writes of slices, %d writes of the set", o.replaced, s.writes-before, writes)
	assert.Less(t, writes, s.writes-before)
}
