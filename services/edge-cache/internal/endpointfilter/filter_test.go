package endpointfilter

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"fairlead.dev/services/edge-cache/internal/wire"
)

const nodeCount = 5

func randomNode(r *rand.Rand) *string {
	switch n := r.IntN(nodeCount + 2); n {
	case nodeCount:
		return nil
	case nodeCount + 1:
		return new(string)
	default:
		name := "n" + strconv.Itoa(n)
		return &name
	}
}

// randomMeta is now and then that of the API server's own endpoints.
func randomMeta(r *rand.Rand) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "ns", Name: "s" + strconv.Itoa(r.IntN(9)), ResourceVersion: "7"}
	if r.IntN(4) == 0 {
		m.Namespace = "default"
	}
	if r.IntN(4) == 0 {
		m.Name = "kubernetes"
	}
	if r.IntN(2) == 0 {
		m.Labels = map[string]string{discoveryv1.LabelServiceName: []string{"svc", "kubernetes"}[r.IntN(2)], "other": "x"}
	}
	return m
}

func randomSlice(r *rand.Rand) *discoveryv1.EndpointSlice {
	families := []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN}
	s := &discoveryv1.EndpointSlice{ObjectMeta: randomMeta(r), AddressType: families[r.IntN(3)]}
	for i := range r.IntN(30) {
		e := discoveryv1.Endpoint{Addresses: []string{"a" + strconv.Itoa(i)}, NodeName: randomNode(r)}
		if r.IntN(2) == 0 {
			yes, no := true, false
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
		}
		if r.IntN(2) == 0 {
			zone := "z"
			e.Zone, e.Hints = &zone, &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
			e.DeprecatedTopology = map[string]string{"topology": zone}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	if r.IntN(2) == 0 {
		port := int32(80)
		s.Ports = []discoveryv1.EndpointPort{{Port: &port}}
	}
	return s
}

func randomEndpoints(r *rand.Rand) *corev1.Endpoints { //nolint:staticcheck // one controller reads Endpoints
	e := &corev1.Endpoints{ObjectMeta: randomMeta(r)} //nolint:staticcheck // as above
	addresses := func() (all []corev1.EndpointAddress) {
		for i := range r.IntN(6) {
			all = append(all, corev1.EndpointAddress{IP: "10.0.0." + strconv.Itoa(i), NodeName: randomNode(r)})
		}
		return all
	}
	for range r.IntN(4) {
		e.Subsets = append(e.Subsets, corev1.EndpointSubset{ //nolint:staticcheck // as above
			Addresses: addresses(), NotReadyAddresses: addresses(), Ports: []corev1.EndpointPort{{Port: 80}},
		})
	}
	return e
}

func randomParams(r *rand.Rand) Params {
	p := Params{Members: sets.New[string](), Unlocated: []Unlocated{KeepUnlocated, DropUnlocated}[r.IntN(2)]}
	for i := range nodeCount {
		if r.IntN(2) == 0 {
			p.Members["n"+strconv.Itoa(i)] = struct{}{}
		}
	}
	return p
}

// oracle decides on typed endpoints.
type oracle struct {
	Params
	all           bool
	nodes         []uint32
	kept, dropped int
}

func (o *oracle) drop(node *string) bool {
	in := o.Unlocated == KeepUnlocated
	if node != nil && *node != "" {
		o.nodes = append(o.nodes, HashNode(*node))
		_, in = o.Members[*node]
	}
	if in || o.all {
		o.kept++
		return false
	}
	o.dropped++
	return true
}

func (o *oracle) equals(t *testing.T, object []byte, got Result) {
	t.Helper()
	slices.Sort(o.nodes)
	require.Equal(t, object, got.Object)
	require.ElementsMatch(t, slices.Compact(o.nodes), got.Nodes)
	require.True(t, slices.IsSorted(got.Nodes))
	require.Equal(t, [2]int{o.kept, o.dropped}, [2]int{got.Kept, got.Dropped})
}

// FuzzFilterEqualsTheTypedOne compares the result, byte for byte, with decoding, filtering and encoding by the typed API.
func FuzzFilterEqualsTheTypedOne(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := randomParams(r)

		s := randomSlice(r)
		give, err := s.Marshal()
		require.NoError(t, err)
		before := bytes.Clone(give)
		got, err := FilterSlice(give, p)
		require.NoError(t, err)
		require.Equal(t, before, give, "the input changed")
		o := &oracle{Params: p, all: s.Namespace == "default" && s.Labels[discoveryv1.LabelServiceName] == "kubernetes"}
		s.Endpoints = slices.DeleteFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return o.drop(e.NodeName) })
		want, err := s.Marshal()
		require.NoError(t, err)
		o.equals(t, want, got)

		e := randomEndpoints(r)
		give, err = e.Marshal()
		require.NoError(t, err)
		before = bytes.Clone(give)
		got, err = FilterEndpoints(give, p)
		require.NoError(t, err)
		require.Equal(t, before, give, "the input changed")
		o = &oracle{Params: p, all: e.Namespace == "default" && e.Name == "kubernetes"}
		outside := func(a corev1.EndpointAddress) bool { return o.drop(a.NodeName) }
		for i := range e.Subsets {
			b := &e.Subsets[i]
			b.Addresses, b.NotReadyAddresses = slices.DeleteFunc(b.Addresses, outside), slices.DeleteFunc(b.NotReadyAddresses, outside)
		}
		e.Subsets = slices.DeleteFunc(e.Subsets, func(b corev1.EndpointSubset) bool { //nolint:staticcheck // one controller reads Endpoints
			return len(b.Addresses)+len(b.NotReadyAddresses) == 0
		})
		want, err = e.Marshal()
		require.NoError(t, err)
		o.equals(t, want, got)
	})
}

// FuzzHostileObjects feeds what a hostile API server may send.
func FuzzHostileObjects(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 5 {
		raw, err := randomSlice(r).Marshal()
		require.NoError(f, err)
		f.Add(raw)
		raw, err = randomEndpoints(r).Marshal()
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Add([]byte{0x0a, 0x03, 0x0a, 0x01, 'a', 0x10, 0x01, 0x12, 0x02, 0x32})
	f.Fuzz(func(t *testing.T, give []byte) {
		before := bytes.Clone(give)
		p := Params{Members: sets.New("n0"), Unlocated: KeepUnlocated}
		for _, filter := range []func([]byte, Params) (Result, error){FilterSlice, FilterEndpoints} {
			got, err := filter(give, p)
			if err != nil {
				continue
			}
			require.LessOrEqual(t, len(got.Object), len(give))
			require.LessOrEqual(t, len(got.Nodes), got.Kept+got.Dropped)
			meta, err := wire.ParseMeta(wire.Protobuf, give)
			require.NoError(t, err)
			again, err := wire.ParseMeta(wire.Protobuf, got.Object)
			require.NoError(t, err)
			require.Equal(t, meta, again)
		}
		require.Equal(t, before, give, "the input changed")
	})
}
