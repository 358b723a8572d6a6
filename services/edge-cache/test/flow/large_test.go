//go:build long

package flow

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// size is the size of a cluster.
type size struct {
	slices, endpoints, nodes, pool int

	slow int // watches that are hardly read
}

// fill creates nodes and slices.
func (w *world) fill(n size) {
	w.t.Helper()
	w.parallel(n.nodes, func(ctx context.Context, i int) error {
		pool := "cloud"
		if i < n.pool {
			pool = "edge"
		}
		_, err := w.direct.CoreV1().Nodes().Create(ctx,
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{poolKey: pool}}},
			metav1.CreateOptions{})
		return err
	})
	w.parallel(n.slices, func(ctx context.Context, i int) error {
		_, err := w.direct.DiscoveryV1().EndpointSlices("default").Create(ctx, n.slice(i, 0), metav1.CreateOptions{})
		return err
	})
}

// rollOut replaces every pod of every slice.
func (w *world) rollOut(n size) {
	w.t.Helper()
	w.parallel(n.slices, func(ctx context.Context, i int) error {
		_, err := w.direct.DiscoveryV1().EndpointSlices("default").Update(ctx, n.slice(i, 1), metav1.UpdateOptions{})
		return err
	})
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d.example.internal", i) }

// slice returns a slice whose endpoints look like those of real pods: spread over all nodes, with addresses of their nodes, random names
// and random UIDs.
func (n size) slice(i int, generation uint64) *discoveryv1.EndpointSlice {
	r := rand.New(rand.NewPCG(uint64(i), generation))
	s := slice("default", fmt.Sprintf("service-%d", i), fmt.Sprintf("service-%d-abcde", i))
	for range n.endpoints {
		node := r.IntN(n.nodes)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", node>>8, node&255, 2+r.IntN(250))},
			Conditions: discoveryv1.EndpointConditions{Ready: pointer(true), Serving: pointer(true), Terminating: pointer(false)},
			NodeName:   pointer(nodeName(node)), Zone: pointer("zone-a"),
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: "default", Name: fmt.Sprintf("service-%d-7c9d8f6b5%d-%s", i, i%10, randomName(r)),
				UID: types.UID(fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", r.Uint32(), r.IntN(1<<16), r.IntN(1<<12), 0x8000|r.IntN(1<<14),
					r.Uint64N(1<<48))),
			},
		})
	}
	return s
}

// randomName returns the random part of the name of a pod.
func randomName(r *rand.Rand) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	name := make([]byte, 5)
	for i := range name {
		name[i] = letters[r.IntN(len(letters))]
	}
	return string(name)
}

func (w *world) parallel(n int, do func(ctx context.Context, i int) error) {
	w.t.Helper()
	var all sync.WaitGroup
	next, failed := make(chan int), make(chan error, n)
	for range 16 {
		all.Go(func() {
			for i := range next {
				if err := do(w.t.Context(), i); err != nil {
					failed <- err
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	close(failed)
	require.NoError(w.t, <-failed)
}
