package liveaddress

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// TestProbedAddressAfterAReboot has no container runtime to ask. Clients see the new address of a pod within 10 s, and until the API server
// has it.
func TestProbedAddressAfterAReboot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var online atomic.Bool
		var listening atomic.Value
		online.Store(true)
		listening.Store("10.1.0.5:80")
		w := newWorld(t, nil)
		w.replacer = New(Params{NodeName: "edge-1", Prober: NewProber(ProberParams{
			Node: "edge-1", Online: online.Load,
			Dial: func(_ context.Context, _, address string) (net.Conn, error) {
				if address != listening.Load() {
					time.Sleep(time.Millisecond)
					return nil, syscall.ECONNREFUSED
				}
				a, b := net.Pipe()
				_ = b.Close()
				return a, nil
			},
		})})
		w.replacer.SetNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.1.0.0/24"}},
		})
		set := func(address string) {
			endpoint := func(uid, node, address string) discoveryv1.Endpoint {
				return discoveryv1.Endpoint{
					Addresses: []string{address}, NodeName: &node, TargetRef: &corev1.ObjectReference{Kind: "Pod", UID: types.UID(uid)},
				}
			}
			w.store.Lock()
			defer w.store.Unlock()
			w.slices["web"] = &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, AddressType: discoveryv1.AddressTypeIPv4,
				Ports:     []discoveryv1.EndpointPort{{Port: ptr.To(int32(80))}},
				Endpoints: []discoveryv1.Endpoint{endpoint("a", "edge-1", address), endpoint("elsewhere", "edge-2", "10.2.0.9")},
			}
			w.show("web")
		}
		set("10.1.0.5")
		w.start()
		settle()
		w.requireShown("web", "10.1.0.5", "10.2.0.9")

		online.Store(false)
		listening.Store("10.1.0.77:80")
		time.Sleep(10 * time.Second)
		w.requireShown("web", "10.1.0.77", "10.2.0.9")
		require.Equal(t, 1, w.replacer.ReplacedAddresses())
		require.Equal(t, 1, w.changed())

		online.Store(true)
		time.Sleep(time.Minute)
		w.requireShown("web", "10.1.0.77", "10.2.0.9")
		set("10.1.0.77")
		settle()
		w.requireShown("web", "10.1.0.77", "10.2.0.9")
		require.Zero(t, w.replacer.ReplacedAddresses())
		require.Equal(t, 1, w.changed())
		w.replacer.ForgetSlice("web")
	})
}
