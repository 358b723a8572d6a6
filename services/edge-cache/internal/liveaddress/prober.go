package liveaddress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

const (
	// dialTimeout is the time for a connection to a pod of the same node, which takes microseconds unless the node is busy after its boot.
	dialTimeout = 250 * time.Millisecond
	// maxConnections is the number of connections at a time. A range of 256 addresses without answers takes 256/64 × dialTimeout = 1 s for
	// each port.
	maxConnections = 64
	// maxAddresses bounds the range: a node has 256 addresses for pods by default, and 1024 with the largest documented setups.
	maxAddresses = 1024
	// maxPorts bounds the ports of all dead pods together, and maxPods the pods that are known. Others write slices.
	maxPorts = 16
	maxPods  = 1024
	// confirmations is the number of rounds in a row in which an address is dead before another one is looked for.
	confirmations = 2
	// settledRounds is the number of rounds after which a guess stays for as long as its address answers. The pods of a node start within
	// seconds of each other, so doubts come early; a pod that starts later must not end a Service.
	settledRounds = 5
)

// ProberParams are the parts of a Prober.
type ProberParams struct {
	// Node is the node of this process.
	Node string
	// Online reports whether the API server answers: then slices are right, or will be soon.
	Online func() bool
	// Dial is that of a net.Dialer if it is nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Prober guesses the addresses that the pods of a node got in a reboot without the cloud, where the container runtime cannot be asked. Its
// methods are safe for concurrent use.
//
// Input: EndpointSlices with the endpoints of the pool, the addresses that the node gives to pods, and whether the API server answers.
// Output: pods whose address is dead, with the address at which something else listens on all their ports.
//
// A port does not identify a pod, so the guess is narrow. An address counts for a pod only if
//
//   - the API server does not answer, the pod's own address does not either, and it did not at the last round
//   - the address belongs to the node, answers on all TCP ports of the pod, and no other endpoint has it
//   - all dead pods whose ports answer there belong to the same Services: a port that two Services use decides nothing
//   - no more addresses answer than pods of these Services are dead: one more means that something else listens there
//
// An address that had no doubt for some rounds stays for as long as it answers.
//
// A pod without a Service that listens on the same ports before the right pod does is not told apart. So all pods of such a node must trust
// each other.
type Prober struct {
	params ProberParams

	mu         sync.Mutex
	ranges     []netip.Prefix
	slices     map[string][]endpoint // endpoints of the node by slice
	deadRounds map[string]int        // rounds in a row in which a pod's address was dead, by UID
	guesses    map[string]guess      // by UID
}

// guess is the address at which a pod is looked for now, and for how many rounds it has been.
type guess struct {
	address netip.Addr
	rounds  int
}

// endpoint is an endpoint of the node that names a pod.
type endpoint struct {
	uid, namespace, service string
	address                 netip.Addr
	ports                   []int
}

// NewProber returns a Prober that knows no slices.
func NewProber(p ProberParams) *Prober {
	if p.Dial == nil {
		p.Dial = (&net.Dialer{}).DialContext
	}
	return &Prober{params: p, slices: map[string][]endpoint{}, deadRounds: map[string]int{}, guesses: map[string]guess{}}
}

// SetNode takes the Node of this process, which has the ranges of its pods.
func (p *Prober) SetNode(n *corev1.Node) {
	if n.Name != p.params.Node {
		return
	}
	var ranges []netip.Prefix
	for _, text := range n.Spec.PodCIDRs {
		if r, err := netip.ParsePrefix(text); err == nil && r.Addr().Is4() { // a range of IPv6 is too large to scan
			ranges = append(ranges, r.Masked())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ranges = ranges
}

// ObserveSlice takes a slice as the API server has it.
func (p *Prober) ObserveSlice(key string, s *discoveryv1.EndpointSlice) {
	ports, usable := portsOf(s)
	var endpoints []endpoint
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if !usable || s.AddressType != discoveryv1.AddressTypeIPv4 || e.NodeName == nil || *e.NodeName != p.params.Node ||
			len(e.Addresses) == 0 {
			continue
		}
		if e.TargetRef == nil || e.TargetRef.Kind != "Pod" || e.TargetRef.UID == "" {
			continue
		}
		if address, err := netip.ParseAddr(e.Addresses[0]); err == nil {
			endpoints = append(endpoints, endpoint{
				uid: string(e.TargetRef.UID), namespace: s.Namespace, service: s.Labels[discoveryv1.LabelServiceName], address: address,
				ports: ports,
			})
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(endpoints) == 0 {
		delete(p.slices, key)
		return
	}
	p.slices[key] = endpoints
}

// ForgetSlice forgets a slice.
func (p *Prober) ForgetSlice(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.slices, key)
}

// portsOf returns the TCP ports of a slice. A slice with a port that cannot be probed is not usable: the others would say less about the
// pod.
func portsOf(s *discoveryv1.EndpointSlice) (ports []int, usable bool) {
	for _, port := range s.Ports {
		if port.Port == nil || port.Protocol != nil && *port.Protocol != corev1.ProtocolTCP {
			return nil, false
		}
		ports = append(ports, int(*port.Port))
	}
	slices.Sort(ports)
	return slices.Compact(ports), len(ports) > 0
}

// ListPods returns the dead pods for which there is an address, by UID. It forgets none while the API server answers, until a slice has
// another address.
func (p *Prober) ListPods(ctx context.Context) (map[string]Pod, error) {
	online := p.params.Online()
	pods, ranges := p.knownPods()
	if online && !p.hasGuesses() {
		return nil, nil
	}
	dead, taken := p.findDeadPods(pods, p.checkPods(ctx, pods))
	if len(dead) > 0 && !online {
		p.assignAddresses(dead, p.findCandidates(ctx, dead, ranges, taken))
	}
	return p.guessedPods(pods), ctx.Err()
}

// hasGuesses reports whether a pod has an address that was looked for. Otherwise the search begins anew.
func (p *Prober) hasGuesses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.guesses) > 0 {
		return true
	}
	clear(p.deadRounds)
	return false
}

// pod is what all slices say about a pod.
type pod struct {
	uid, namespace string
	address        netip.Addr
	ports          []int
	services       []string
}

// serviceIdentity is the same for pods whose requests may be exchanged.
func (p *pod) serviceIdentity() string { return fmt.Sprint(p.namespace, p.services, p.ports) }

// knownPods returns the pods of the ranges, sorted. A pod with two addresses in two slices is in a change, and left out.
func (p *Prober) knownPods() ([]*pod, []netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	byUID, changing := map[string]*pod{}, map[string]bool{}
	for _, endpoints := range p.slices {
		for i := range endpoints {
			e := &endpoints[i]
			known := byUID[e.uid]
			if known == nil {
				known = &pod{uid: e.uid, namespace: e.namespace, address: e.address}
				byUID[e.uid] = known
			}
			if known.namespace != e.namespace || known.address != e.address {
				changing[e.uid] = true
			}
			known.ports = append(known.ports, e.ports...)
			known.services = append(known.services, e.service)
		}
	}
	var pods []*pod
	for uid, known := range byUID {
		if changing[uid] || !inRanges(p.ranges, known.address) { // the network of the node has other addresses
			continue
		}
		slices.Sort(known.ports)
		slices.Sort(known.services)
		known.ports, known.services = slices.Compact(known.ports), slices.Compact(known.services)
		pods = append(pods, known)
	}
	slices.SortFunc(pods, func(a, b *pod) int { return strings.Compare(a.uid, b.uid) })
	return pods[:min(len(pods), maxPods)], p.ranges
}

func inRanges(ranges []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(address) })
}

// checkPods returns which pods answer at their own addresses.
func (p *Prober) checkPods(ctx context.Context, pods []*pod) []bool {
	alive := make([]bool, len(pods))
	forEachParallel(len(pods), func(i int) { alive[i] = len(p.openPorts(ctx, pods[i].address, pods[i].ports)) == len(pods[i].ports) })
	return alive
}

// openPorts returns the ports on which an address accepts connections. An address that neither accepts nor refuses one is not in use.
func (p *Prober) openPorts(ctx context.Context, address netip.Addr, ports []int) []int {
	var open []int
	for _, port := range ports {
		limited, cancel := context.WithTimeout(ctx, dialTimeout)
		conn, err := p.params.Dial(limited, "tcp", net.JoinHostPort(address.String(), strconv.Itoa(port)))
		cancel()
		switch {
		case err == nil:
			_ = conn.Close()
			open = append(open, port)
		case !errors.Is(err, syscall.ECONNREFUSED):
			return open
		}
	}
	return open
}

// forEachParallel calls f for all numbers below n, some at a time.
func forEachParallel(n int, f func(i int)) {
	var group sync.WaitGroup
	slots := make(chan struct{}, maxConnections)
	for i := range n {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	group.Wait()
}

// findDeadPods returns the pods that are dead for long enough, and the addresses that endpoints have.
func (p *Prober) findDeadPods(pods []*pod, alive []bool) (dead []*pod, taken map[netip.Addr]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken = map[netip.Addr]bool{}
	rounds := map[string]int{}
	for i, known := range pods {
		taken[known.address] = true
		if alive[i] {
			delete(p.guesses, known.uid)
			continue
		}
		if rounds[known.uid] = p.deadRounds[known.uid] + 1; rounds[known.uid] >= confirmations {
			dead = append(dead, known)
		}
	}
	p.deadRounds = rounds
	return dead, taken
}

// candidate is an address with the ports on which it answers.
type candidate struct {
	address netip.Addr
	open    []int
}

// findCandidates returns the free addresses of the ranges that answer on a port of a dead pod. The first address of a range is the node's
// own.
func (p *Prober) findCandidates(ctx context.Context, dead []*pod, ranges []netip.Prefix, taken map[netip.Addr]bool) []candidate {
	var ports []int
	for _, d := range dead {
		ports = append(ports, d.ports...)
	}
	slices.Sort(ports)
	if ports = slices.Compact(ports); len(ports) > maxPorts {
		return nil
	}
	own := ownAddresses()
	var found []candidate
	for _, r := range ranges {
		address := r.Addr().Next().Next()
		for ; r.Contains(address) && r.Contains(address.Next()) && len(found) < maxAddresses; address = address.Next() {
			if !taken[address] && !own[address] {
				found = append(found, candidate{address: address})
			}
		}
	}
	forEachParallel(len(found), func(i int) { found[i].open = p.openPorts(ctx, found[i].address, ports) })
	return slices.DeleteFunc(found, func(c candidate) bool { return len(c.open) == 0 })
}

// ownAddresses returns the addresses of the pod of this process.
func ownAddresses() map[netip.Addr]bool {
	own := map[netip.Addr]bool{}
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			own[prefix.Addr().Unmap()] = true
		}
	}
	return own
}

// guessedPods returns the pods with an address, and forgets those that no slice has any longer.
func (p *Prober) guessedPods(pods []*pod) map[string]Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	result := map[string]Pod{}
	for _, known := range pods {
		if g, ok := p.guesses[known.uid]; ok {
			result[known.uid] = Pod{Namespace: known.namespace, Addresses: []netip.Addr{g.address}}
		}
	}
	for uid := range p.guesses {
		if _, still := result[uid]; !still {
			delete(p.guesses, uid)
		}
	}
	return result
}
