package svcproxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
)

const (
	// zone is the cluster's domain.
	zone = "cluster.local."
	// recordTTL is how long an answer may be kept, in seconds.
	recordTTL = 5
	// maxAliases ends a chain of external names that leads into itself.
	maxAliases = 8
)

// DNS answers for the cluster's domain as the Kubernetes DNS specification 1.1.0 has it: A and SRV records of services,
// headless ones and their endpoints, and A records of pods by dashed address. There is nothing beyond the cluster.
type DNS struct{ directory *Directory }

// NewDNS returns a name server for the directory's services.
func NewDNS(d *Directory) *DNS { return &DNS{directory: d} }

// Run serves on addr by UDP and TCP until ctx ends.
func (d *DNS) Run(ctx context.Context, addr string) error {
	pc, err := net.ListenPacket("udp4", addr)
	if err != nil {
		return fmt.Errorf("listen for DNS: %w", err)
	}
	ln, err := net.Listen("tcp4", addr)
	if err != nil {
		pc.Close()
		return fmt.Errorf("listen for DNS: %w", err)
	}
	return d.serve(ctx, pc, ln)
}

// serve answers queries until ctx ends, and closes both.
func (d *DNS) serve(ctx context.Context, pc net.PacketConn, ln net.Listener) (err error) {
	udp, tcp := &dns.Server{PacketConn: pc, Handler: d}, &dns.Server{Listener: ln, Handler: d}
	ended := make(chan error, 2)
	go func() { ended <- udp.ActivateAndServe() }()
	go func() { ended <- tcp.ActivateAndServe() }()
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	pc.Close()
	ln.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}

// ServeDNS answers one query.
func (d *DNS) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	m := d.answer(q)
	if _, ok := w.RemoteAddr().(*net.UDPAddr); ok {
		size := dns.MinMsgSize
		if opt := q.IsEdns0(); opt != nil {
			size = int(opt.UDPSize())
		}
		m.Truncate(size)
	}
	_ = w.WriteMsg(m) // the client asks again
}

func (d *DNS) answer(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q)
	m.Authoritative, m.RecursionAvailable, m.Compress = true, true, true
	if opt := q.IsEdns0(); opt != nil {
		m.SetEdns0(dns.DefaultMsgSize, false)
	}
	if len(q.Question) != 1 {
		m.Rcode = dns.RcodeFormatError
		return m
	}
	answer, extra, found := d.resolve(q.Question[0])
	if !found {
		m.Rcode = dns.RcodeNameError
		return m
	}
	m.Answer, m.Extra = answer, append(m.Extra, extra...)
	return m
}

// resolve returns what answers a question, and whether the name exists at all. An alias comes before what it leads to,
// which may be beyond the cluster.
func (d *DNS) resolve(q dns.Question) (answer, extra []dns.RR, found bool) {
	owner := q.Name // as it was asked, capitals and all
	for range maxAliases {
		records, further, ok := d.find(strings.ToLower(owner))
		if !ok {
			break
		}
		found = true
		matching, alias := match(records, q.Qtype, owner)
		if len(matching) > 0 {
			extra = append(extra, further...)
		}
		answer = append(answer, matching...)
		if alias == "" || q.Qtype == dns.TypeCNAME {
			break
		}
		owner = alias
	}
	return answer, extra, found
}

// match picks the records of a type, in any order, and the alias that stands for every type.
func match(records []dns.RR, kind uint16, owner string) (matching []dns.RR, alias string) {
	for _, rr := range records {
		cname, isAlias := rr.(*dns.CNAME)
		if isAlias {
			alias = cname.Target
		}
		if isAlias || rr.Header().Rrtype == kind || kind == dns.TypeANY {
			rr.Header().Name = owner
			matching = append(matching, rr)
		}
	}
	rand.Shuffle(len(matching), func(i, j int) { matching[i], matching[j] = matching[j], matching[i] })
	return matching, alias
}

// find returns the records of a name, and whether the name exists at all.
func (d *DNS) find(name string) (records, extra []dns.RR, found bool) {
	rest, ok := strings.CutSuffix(name, "."+zone)
	if !ok {
		return nil, nil, false
	}
	labels := strings.Split(rest, ".")
	n := len(labels)
	switch kind := labels[n-1]; {
	case kind == "pod" && n == 3:
		return podRecords(labels[0])
	case kind != "svc" || n < 3:
		return nil, nil, false
	}
	svc, err := d.directory.services.Services(labels[n-2]).Get(labels[n-3])
	if err != nil {
		return nil, nil, false
	}
	switch rest := labels[:n-3]; {
	case len(rest) == 0:
		return d.addresses(svc, "")
	case len(rest) == 1:
		return d.addresses(svc, rest[0])
	case len(rest) == 2 && strings.HasPrefix(rest[0], "_") && strings.HasPrefix(rest[1], "_"):
		return d.ports(svc, rest[0][1:], rest[1][1:])
	}
	return nil, nil, false
}

func podRecords(dashed string) (records, extra []dns.RR, found bool) {
	ip, err := netip.ParseAddr(strings.ReplaceAll(dashed, "-", "."))
	if err != nil || !ip.Is4() {
		return nil, nil, false
	}
	return []dns.RR{a("", ip.String())}, nil, true
}

// addresses are the A records of a service, or of one endpoint of a headless one.
func (d *DNS) addresses(svc *corev1.Service, host string) (records, extra []dns.RR, found bool) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return []dns.RR{&dns.CNAME{Hdr: header("", dns.TypeCNAME), Target: dns.Fqdn(svc.Spec.ExternalName)}}, nil, host == ""
	}
	if !headless(svc) {
		return []dns.RR{a("", svc.Spec.ClusterIP)}, nil, host == ""
	}
	for _, e := range d.published(svc) {
		if host == "" || host == e.host() {
			records = append(records, a("", e.ip))
		}
	}
	return records, nil, host == "" || len(records) > 0
}

// published are the endpoints of a headless service that its name leads to, each once: for a while one may be in two
// slices.
func (d *DNS) published(svc *corev1.Service) []endpoint {
	var out []endpoint
	for _, e := range d.directory.endpoints(svc.Namespace, svc.Name) {
		known := func(o endpoint) bool { return o.ip == e.ip && o.host() == e.host() }
		if (e.ready || svc.Spec.PublishNotReadyAddresses) && !slices.ContainsFunc(out, known) {
			out = append(out, e)
		}
	}
	return out
}

// host is the endpoint's own label below its service.
func (e *endpoint) host() string {
	if e.hostname != "" {
		return e.hostname
	}
	return strings.ReplaceAll(e.ip, ".", "-")
}

// ports are the SRV records of a named port, with the addresses they lead to.
func (d *DNS) ports(svc *corev1.Service, port, protocol string) (records, extra []dns.RR, found bool) {
	domain := fmt.Sprintf("%s.%s.svc.%s", svc.Name, svc.Namespace, zone)
	for _, p := range svc.Spec.Ports {
		if p.Name != port || !strings.EqualFold(string(p.Protocol), protocol) {
			continue
		}
		if !headless(svc) {
			return []dns.RR{srv(domain, p.Port)}, []dns.RR{a(domain, svc.Spec.ClusterIP)}, true
		}
		for _, e := range d.published(svc) {
			number, ok := e.ports[port]
			if !ok {
				continue
			}
			target := e.host() + "." + domain
			records, extra = append(records, srv(target, number)), append(extra, a(target, e.ip))
		}
		return records, extra, true
	}
	return nil, nil, false
}

func header(name string, kind uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: recordTTL}
}

func a(name, ip string) dns.RR { return &dns.A{Hdr: header(name, dns.TypeA), A: net.ParseIP(ip)} }

func srv(target string, port int32) dns.RR {
	return &dns.SRV{Hdr: header("", dns.TypeSRV), Priority: 0, Weight: 100, Port: uint16(port), Target: target}
}
