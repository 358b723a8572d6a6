package gatewayplan

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan/routing"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/plan"
	"fairlead.dev/services/backendset-syncer/internal/policy"
)

// Options of TLS of a listener, as oke-gateway-api has them.
const (
	optionCertificate = "oci.oraclecloud.com/certificate-ocid"
	optionProtocols   = "oci.oraclecloud.com/tls-protocols"
	optionCipherSuite = "oci.oraclecloud.com/cipher-suite-name"
)

// http2Suite is the cipher suite with which a listener serves HTTP/2.
const http2Suite = "oci-default-http2-ssl-cipher-suite-v1"

// Reasons that the Gateway API does not define.
const (
	reasonNotAllowed   = "NotAllowed"
	reasonUnsupported  = string(gatewayv1.RouteReasonUnsupportedValue)
	reasonCapacity     = routing.ReasonCapacity
	reasonHostConflict = "HostConflict"
	reasonRecordLost   = "RecordLost"
)

// Listener is a listener of a Gateway with what the load balancer needs for it.
type Listener struct {
	*gatewayv1.Listener

	gateway *ResolvedGateway
	key     string // of the record
	name    string // of the listener of the load balancer
	tls     *lblayout.TLS
	cert    *lblayout.Certificate

	// accepted, conflicted and resolved are the problems of the conditions Accepted, Conflicted and ResolvedRefs.
	accepted, conflicted, resolved plan.Problem
	kinds                          []gatewayv1.RouteGroupKind // supported
	routes                         []*routing.Route
	attached                       int32
	needs                          []lblayout.Ref // objects that make the listener programmed
}

func (l *Listener) lowerHostname() string {
	return strings.ToLower(gatewayapi.ListenerHostname(l.Listener))
}

// isValid reports whether the load balancer gets the listener.
func (l *Listener) isValid() bool { return !l.accepted.IsSet() && !l.conflicted.IsSet() }

// buildListeners checks the listeners of the Gateways of a load balancer, and decides which of them get their ports.
func (b *planBuilder) buildListeners() {
	for _, g := range b.Gateways {
		for i := range g.Spec.Listeners {
			l := &Listener{Listener: &g.Spec.Listeners[i], gateway: g}
			l.key = lbrecord.ListenerKey(l.Port, l.lowerHostname())
			b.checkListener(l)
			b.Listeners = append(b.Listeners, l)
		}
	}
	b.decideConflicts()
}

// checkListener checks a listener by itself.
func (b *planBuilder) checkListener(l *Listener) {
	l.checkKinds()
	switch l.Protocol {
	case gatewayv1.HTTPProtocolType:
		if l.TLS != nil {
			l.refuseValue("tls: protocol HTTP has no TLS")
		}
	case gatewayv1.HTTPSProtocolType:
		b.checkTLS(l)
	default:
		l.accepted = plan.NewProblem(gatewayv1.ListenerReasonUnsupportedProtocol, "protocol %.40s is not supported: use HTTP or HTTPS",
			l.Protocol)
	}
}

// refuseValue notes a value that the program does not support.
func (l *Listener) refuseValue(format string, args ...any) {
	l.accepted = plan.NewProblem(reasonUnsupported, format, args...)
}

// checkKinds decides which kinds of routes a listener supports.
func (l *Listener) checkKinds() {
	group := gatewayv1.Group(gatewayv1.GroupName)
	http := gatewayv1.RouteGroupKind{Group: &group, Kind: "HTTPRoute"}
	l.kinds = []gatewayv1.RouteGroupKind{http}
	if l.Protocol != gatewayv1.HTTPProtocolType && l.Protocol != gatewayv1.HTTPSProtocolType {
		l.kinds = []gatewayv1.RouteGroupKind{}
		return
	}
	if l.AllowedRoutes == nil || len(l.AllowedRoutes.Kinds) == 0 {
		return
	}
	l.kinds = []gatewayv1.RouteGroupKind{}
	if gatewayapi.AllowsHTTPRoutes(l.Listener) {
		l.kinds = append(l.kinds, http)
	}
	for _, k := range l.AllowedRoutes.Kinds {
		if k.Kind != http.Kind || ptr.Deref(k.Group, group) != group {
			l.resolved = plan.NewProblem(gatewayv1.ListenerReasonInvalidRouteKinds,
				"allowedRoutes.kinds: %.60s is not supported, HTTPRoute is", k.Kind)
		}
	}
}

// tlsProtocols are the protocols of TLS of the service.
var tlsProtocols = []string{"TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"}

// maxOption limits the values of TLS options.
const maxOption = 255

// checkTLS resolves the certificate and the options of a listener.
func (b *planBuilder) checkTLS(l *Listener) {
	t := cmp.Or(l.TLS, &gatewayv1.ListenerTLSConfig{})
	if ptr.Deref(t.Mode, gatewayv1.TLSModeTerminate) != gatewayv1.TLSModeTerminate {
		l.refuseValue("tls.mode %.40s: a listener terminates TLS", *t.Mode)
		return
	}
	l.tls = &lblayout.TLS{}
	for _, key := range slices.Sorted(maps.Keys(t.Options)) {
		value := strings.TrimSpace(string(t.Options[key]))
		if value == "" || len(value) > maxOption {
			l.refuseValue("tls.options: %.120s is empty or longer than %d characters", key, maxOption)
			continue
		}
		l.addOption(key, value)
	}
	b.resolveCertificate(l, t)
}

// addOption adds an option of TLS.
func (l *Listener) addOption(key gatewayv1.AnnotationKey, value string) {
	switch key {
	case optionCertificate:
		if l.tls.CertificateIDs = []string{value}; !policy.IsCertificate(value) {
			l.resolved = plan.NewProblem(gatewayv1.ListenerReasonInvalidCertificateRef, "tls.options: %s is not the OCID of a certificate",
				optionCertificate)
			l.tls.CertificateIDs = nil
		}
	case optionProtocols:
		for p := range strings.SplitSeq(value, ",") {
			p = strings.TrimSpace(p)
			if !slices.Contains(tlsProtocols, p) || slices.Contains(l.tls.Protocols, p) {
				l.refuseValue("tls.options: %s: %.40q is not one of %s, or is listed twice", key, p, strings.Join(tlsProtocols, ", "))
			}
			l.tls.Protocols = append(l.tls.Protocols, p)
		}
	case optionCipherSuite:
		l.tls.CipherSuite = value
	default:
		l.refuseValue("tls.options: unknown option %.120s", key)
	}
}

// resolveCertificate resolves the certificate of a listener. Without a valid one, the listener keeps that which it has.
func (b *planBuilder) resolveCertificate(l *Listener, t *gatewayv1.ListenerTLSConfig) {
	problem := l.resolved
	if problem.Reason != string(gatewayv1.ListenerReasonInvalidCertificateRef) {
		problem = b.findCertificate(l, t)
	}
	if problem.IsSet() {
		l.resolved, l.tls.KeepCertificate = problem, true
	}
}

// findCertificate finds the certificate of a listener, or its problem.
func (b *planBuilder) findCertificate(l *Listener, t *gatewayv1.ListenerTLSConfig) plan.Problem {
	switch n := len(t.CertificateRefs) + len(l.tls.CertificateIDs); {
	case n == 0:
		return plan.NewProblem(gatewayv1.ListenerReasonInvalidCertificateRef,
			"no certificate: set tls.certificateRefs, or the option %s", optionCertificate)
	case n > 1:
		return plan.NewProblem(gatewayv1.ListenerReasonInvalidCertificateRef,
			"a listener of a load balancer has one certificate: use a listener for each hostname")
	case len(t.CertificateRefs) == 0:
		if namespace := l.gateway.Namespace; !b.Document.PermitCertificate(namespace, l.tls.CertificateIDs[0]) {
			return plan.NewProblem(gatewayv1.ListenerReasonRefNotPermitted,
				"tls.options: the configuration does not permit Gateways of namespace %s to use this certificate: ask the administrator "+
					"to add its OCID to namespaces.%[1]s.certificates", namespace)
		}
		return plan.Problem{}
	}
	ref := &t.CertificateRefs[0]
	if ptr.Deref(ref.Group, "") != "" || ptr.Deref(ref.Kind, "Secret") != "Secret" {
		return plan.NewProblem(gatewayv1.ListenerReasonInvalidCertificateRef,
			"certificateRefs[0]: %.60s is not supported, Secret is", ptr.Deref(ref.Kind, ""))
	}
	name := cache.ObjectName{Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(l.gateway.Namespace))), Name: string(ref.Name)}
	from := reference{group: gatewayv1.GroupName, kind: "Gateway", namespace: l.gateway.Namespace}
	if !b.permitsReference(from, reference{kind: "Secret", namespace: name.Namespace, name: name.Name}) {
		return plan.NewProblem(gatewayv1.ListenerReasonRefNotPermitted, "certificateRefs[0]: no ReferenceGrant in namespace %s permits it",
			name.Namespace)
	}
	c, err := b.loadCertificate(name)
	if err != nil {
		return plan.NewProblem(gatewayv1.ListenerReasonInvalidCertificateRef, "certificateRefs[0]: %v", err)
	}
	l.cert, l.tls.Certificate = c, c.Name
	return plan.Problem{}
}

// maxCertificate limits the size of a certificate chain with its key.
const maxCertificate = 64 << 10

// loadCertificate returns the certificate of a Secret. Its name follows from its content.
func (b *planBuilder) loadCertificate(name cache.ObjectName) (*lblayout.Certificate, error) {
	s := informers.FindObject[corev1.Secret](b.planner.caches.Secrets, name)
	if s == nil {
		return nil, fmt.Errorf("no Secret %s of type %s, or no permission to read it", name, corev1.SecretTypeTLS)
	}
	public, private := s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]
	if len(public)+len(private) > maxCertificate {
		return nil, fmt.Errorf("Secret %s has more than %d bytes", name, maxCertificate) //nolint:staticcheck // a kind
	}
	if _, err := tls.X509KeyPair(public, private); err != nil {
		return nil, fmt.Errorf("Secret %s: %w", name, err) //nolint:staticcheck // a kind
	}
	key := CertificateKeyOf(s)
	certificate := &lblayout.Certificate{
		Name: b.nameOf(lbrecord.Certificate, key, name.Namespace+"-"+name.Name), Public: string(public), Private: string(private),
	}
	b.keys[lblayout.Ref{Kind: lbrecord.Certificate, Name: certificate.Name}] = key
	return certificate, nil
}

// fingerprintLength is the length of the hash of a certificate, in hexadecimal characters.
const fingerprintLength = 16

// CertificateKeyOf returns the key of the certificate of a Secret.
func CertificateKeyOf(s *corev1.Secret) string {
	sum := sha256.Sum256(slices.Concat(s.Data[corev1.TLSCertKey], []byte{0}, s.Data[corev1.TLSPrivateKeyKey]))
	return lbrecord.CertificateKey(s.Namespace, s.Name, hex.EncodeToString(sum[:])[:fingerprintLength])
}

// nameOf returns the recorded name of an object, or the one that follows from its key.
func (b *planBuilder) nameOf(kind lbrecord.Kind, key, readable string) string {
	if o := b.before.FindByKey(kind, key); o != nil {
		return o.Name
	}
	return routing.NameFor(key, readable)
}

// listenerName returns the name of the load balancer's listener.
func (b *planBuilder) listenerName(l *Listener) string {
	return b.nameOf(lbrecord.Listener, l.key, l.gateway.Name+"-"+string(l.Name))
}

// ListenerName returns the name that a listener has without a record.
func ListenerName(g *gatewayv1.Gateway, l *gatewayv1.Listener) string {
	key := lbrecord.ListenerKey(l.Port, string(ptr.Deref(l.Hostname, "")))
	return routing.NameFor(key, g.Name+"-"+string(l.Name))
}

// decideConflicts decides which listeners get their ports. The incumbent of a port and hostname comes first, then the listener of the
// older Gateway.
func (b *planBuilder) decideConflicts() {
	order := slices.Clone(b.Listeners)
	rank := func(l *Listener) int {
		if o := b.before.FindByKey(lbrecord.Listener, l.key); o != nil && o.Owner == l.gateway.gatewayName().String() {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(order, func(x, y *Listener) int { return cmp.Compare(rank(x), rank(y)) })
	var taken []*Listener
	for _, l := range order {
		if l.accepted.IsSet() {
			continue
		}
		for _, other := range taken {
			if other.Port == l.Port && !l.conflicted.IsSet() {
				l.conflicted = l.conflictWith(other)
			}
		}
		if l.conflicted.IsSet() {
			continue
		}
		if l.accepted = b.portProblem(l); l.accepted.IsSet() {
			continue
		}
		if limit := l.gateway.Limits.Listeners; len(taken)+b.foreignListeners() >= limit {
			l.accepted = plan.NewProblem(reasonCapacity,
				"the load balancer has %d listeners already: raise the limit or use another load balancer", limit)
			continue
		}
		taken = append(taken, l)
	}
}

// conflictWith returns why two listeners cannot have the same port.
func (l *Listener) conflictWith(other *Listener) plan.Problem {
	owner := "a listener of another Gateway"
	if other.gateway.gatewayName() == l.gateway.gatewayName() {
		owner = "listener " + string(other.Name)
	}
	switch {
	case other.Protocol != l.Protocol:
		return plan.NewProblem(gatewayv1.ListenerReasonProtocolConflict, "%s has port %d with another protocol", owner, l.Port)
	case other.lowerHostname() == l.lowerHostname():
		return plan.NewProblem(gatewayv1.ListenerReasonHostnameConflict, "%s has port %d with the same hostname", owner, l.Port)
	case l.tls != nil && (l.layoutProtocol() != other.layoutProtocol() || !lblayout.SameNames(l.tls.Protocols, other.tls.Protocols)):
		return plan.NewProblem(gatewayv1.ListenerReasonProtocolConflict,
			"%s has port %d with other tls.options: listeners of a port need the same protocols of TLS", owner, l.Port)
	}
	return plan.Problem{}
}

// layoutProtocol returns the protocol of the listener of the load balancer.
func (l *Listener) layoutProtocol() string {
	if l.tls != nil && l.tls.CipherSuite == http2Suite {
		return lblayout.ProtocolHTTP2
	}
	return lblayout.ProtocolHTTP
}

// foreignListeners returns the number of listeners of others.
func (b *planBuilder) foreignListeners() int {
	n := 0
	for name := range b.Live.Listeners {
		if !b.before.HasObject(lbrecord.Listener, name) {
			n++
		}
	}
	return n
}

// portProblem returns why a listener of others, or of a frozen Gateway, has the port.
func (b *planBuilder) portProblem(l *Listener) plan.Problem {
	for name, other := range b.Live.Listeners {
		if other.Port != int(l.Port) || b.before.HasObject(lbrecord.Listener, name) && !b.frozenListeners[name] {
			continue
		}
		hosts := []string{}
		for _, h := range other.Hostnames {
			hosts = append(hosts, strings.ToLower(b.Live.Hostnames[h].Hostname))
		}
		if b.listenerName(l) == name {
			continue // of a frozen Gateway that had the same port and hostname, or the record was lost
		}
		same := len(hosts) == 0 && l.lowerHostname() == "" || slices.Contains(hosts, l.lowerHostname())
		if same || other.Protocol != l.layoutProtocol() || (other.TLS == nil) != (l.tls == nil) {
			return plan.NewProblem(gatewayv1.ListenerReasonPortUnavailable, "the load balancer has a listener of another client on port %d",
				l.Port)
		}
	}
	return plan.Problem{}
}
