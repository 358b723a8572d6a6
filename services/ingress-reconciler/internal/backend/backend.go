// Package backend finds the Services that OME creates for the components of an InferenceService, and selects their API ports.
//
// A component's Service has the name that OME derives from the InferenceService, a component label, and the InferenceService
// as its controller. None of these criteria is sufficient alone. OME 1.3 gives the same labels and controller to the Services of
// single revisions, which routes must not use. Names are ambiguous: a Service of InferenceService "a-engine" can have a name that
// InferenceService "a" could also use.
package backend

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// Labels of a component's Service, and of its pods. With spec.replicaRefs (OME 1.3) the value of LabelService on pods is the name of
// the InferenceReplica.
const (
	LabelService   = "ome.io/inferenceservice"
	LabelComponent = "component"
)

// AnnotationScheme is the annotation of a Service with which Traefik chooses the protocol. OME copies annotations of an
// InferenceService to its Services.
const AnnotationScheme = "traefik.ingress.kubernetes.io/service.serversscheme"

var (
	// ErrNotFound means that OME has not created a Service for the component yet.
	ErrNotFound = errors.New("the Service does not exist")
	// ErrForeign means that the InferenceService does not control the Service with the component's name.
	ErrForeign = errors.New("the InferenceService does not control the Service of that name")
	// ErrNoPort means that the Service has no TCP port.
	ErrNoPort = errors.New("the Service has no TCP port")
	// ErrNoSelector means that the Service has no pod selector.
	ErrNoSelector = errors.New("the Service has no selector")
)

// Service is the Service of a component, with its API port.
type Service struct {
	Name        string
	Port        int32
	PortName    string // empty: the port has no name
	AppProtocol string // empty: not set
	GRPC        bool   // the port speaks only gRPC
	Scheme      string // that Traefik uses for the Service: the value of AnnotationScheme
	TargetPort  Port   // port of the pods
}

// Port is a container port: a number, or a name if the number is 0.
type Port struct {
	Number int32
	Name   string
}

const (
	maxName  = 63 // characters of a Service's name and of a DNS label
	hashSize = 8
)

// TruncateName shortens a name that is longer than a DNS label as OME does: the first 8 characters of the SHA-256 of the whole
// name (a leading digit becomes "a"), a dash, and the last 54 characters of the name. OME uses this for the names of Services,
// and for .Name in hosts.
func TruncateName(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := []byte(hex.EncodeToString(sum[:])[:hashSize])
	if '0' <= hash[0] && hash[0] <= '9' {
		hash[0] = 'a' // the name of a Service starts with a letter
	}
	return string(hash) + "-" + name[len(name)-(maxName-hashSize-1):]
}

// ServiceName returns the name that OME gives the Service of a component.
func ServiceName(service string, r isvc.Role) string { return TruncateName(service + "-" + string(r)) }

// FindService returns the Service of a component among the Services of its namespace: the one with OME's name, or else the only
// candidate.
func FindService(services []*corev1.Service, owner *isvc.Service, r isvc.Role) (Service, error) {
	s, err := findServiceObject(services, owner, r)
	if err != nil {
		return Service{}, err
	}
	return apiPort(s)
}

func findServiceObject(services []*corev1.Service, owner *isvc.Service, r isvc.Role) (*corev1.Service, error) {
	name := ServiceName(owner.Name, r)
	candidates, foreign := componentServices(services, owner, r)
	named := slices.IndexFunc(candidates, func(s *corev1.Service) bool { return s.Name == name })
	switch {
	case named >= 0:
		return candidates[named], nil
	case len(candidates) == 1:
		return candidates[0], nil
	case len(candidates) > 1:
		return nil, fmt.Errorf("%s %s: %w, and %d other Services match the component", r, name, ErrNotFound, len(candidates))
	case foreign:
		return nil, fmt.Errorf("%s %s: %w", r, name, ErrForeign)
	}
	return nil, fmt.Errorf("%s %s: %w", r, name, ErrNotFound)
}

// componentServices returns the Services that can be the Service of a component. taken reports whether a Service with the component's name
// has another owner.
func componentServices(services []*corev1.Service, owner *isvc.Service, r isvc.Role) (found []*corev1.Service, foreign bool) {
	name := ServiceName(owner.Name, r)
	for _, s := range services {
		switch {
		case s.Namespace != owner.Namespace || s.DeletionTimestamp != nil:
		case !metav1.IsControlledBy(s, &metav1.ObjectMeta{UID: owner.UID}):
			foreign = foreign || s.Name == name
		case s.Labels[LabelComponent] == string(r) && !isHeadless(s) && !isRevisionService(s, name):
			found = append(found, s)
		}
	}
	return found, foreign
}

// isHeadless reports whether a Service has no cluster IP.
func isHeadless(s *corev1.Service) bool {
	return s.Spec.ClusterIP == corev1.ClusterIPNone || strings.HasSuffix(s.Name, "-headless")
}

// isRevisionService reports whether a Service belongs to one revision in OME 1.3. A truncated name lacks "-rev-", but the Service has the
// label.
func isRevisionService(s *corev1.Service, name string) bool {
	return s.Name != name && (s.Labels[labelRevision] != "" || strings.Contains(s.Name, "-rev-"))
}

// apiPort selects the API port among the TCP ports:
//
//  1. ports with names for other purposes (metrics, health, ...) are ignored, unless no other port exists, then ports for gRPC;
//  2. the port named http, then http1, then h2c;
//  3. the first port whose name starts with "http-";
//  4. the first port whose appProtocol is HTTP;
//  5. the first port, as OME selects it.
func apiPort(s *corev1.Service) (Service, error) {
	var ports, grpc, auxiliary []corev1.ServicePort
	for _, p := range s.Spec.Ports {
		switch {
		case p.Protocol != "" && p.Protocol != corev1.ProtocolTCP:
		case isAuxiliary(p.Name):
			auxiliary = append(auxiliary, p)
		case isGRPC(&p):
			grpc = append(grpc, p)
		default:
			ports = append(ports, p)
		}
	}
	for _, others := range [][]corev1.ServicePort{grpc, auxiliary} {
		if len(ports) == 0 {
			ports = others
		}
	}
	if len(ports) == 0 {
		return Service{}, fmt.Errorf("%s: %w", s.Name, ErrNoPort)
	}
	p := ports[0]
	preferences := []func(corev1.ServicePort) bool{
		hasPortName("http"), hasPortName("http1"), hasPortName("h2c"), hasHTTPPrefix, speaksHTTP,
	}
	for _, fits := range preferences {
		if i := slices.IndexFunc(ports, fits); i >= 0 {
			p = ports[i]
			break
		}
	}
	return Service{
		Name: s.Name, Port: p.Port, PortName: p.Name, TargetPort: targetPort(&p), GRPC: isGRPC(&p), Scheme: s.Annotations[AnnotationScheme],
		AppProtocol: ptr.Deref(p.AppProtocol, ""),
	}, nil
}

// auxiliary are words in names of ports that do not serve the API.
var auxiliary = []string{"admin", "dashboard", "debug", "health", "healthz", "probe", "prom", "status"}

// isAuxiliary reports whether the name of a port indicates a purpose other than the API.
func isAuxiliary(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "metric") || strings.Contains(name, "prometheus") ||
		slices.ContainsFunc(strings.Split(name, "-"), func(word string) bool { return slices.Contains(auxiliary, word) })
}

// isGRPC reports whether a port speaks only gRPC: by a word of its name, as grpc1 of OME's runtimes, or by its appProtocol. A server of
// gRPC answers no other HTTP request. kubernetes.io/h2c alone is HTTP/2, which REST servers speak, too. grpc-web and grpc-gateway are
// HTTP/1.1 in front of gRPC.
func isGRPC(p *corev1.ServicePort) bool {
	if p.AppProtocol != nil && !slices.Contains([]string{"kubernetes.io/h2c", "h2c", "http2", "tcp"}, strings.ToLower(*p.AppProtocol)) {
		return slices.Contains([]string{"grpc", "kubernetes.io/grpc"}, strings.ToLower(*p.AppProtocol))
	}
	words := strings.Split(strings.ToLower(p.Name), "-")
	return !slices.ContainsFunc(words, func(word string) bool {
		return slices.Contains([]string{"web", "gateway", "rest"}, word) || strings.HasPrefix(word, "http")
	}) &&
		slices.ContainsFunc(words, func(word string) bool { return strings.TrimRight(word, "0123456789") == "grpc" })
}

// SpeaksHTTP2 reports whether the appProtocol tells data planes to speak HTTP/2 without TLS, which gRPC needs.
func (s *Service) SpeaksHTTP2() bool {
	return slices.Contains([]string{"grpc", "kubernetes.io/grpc", "kubernetes.io/h2c", "h2c", "http2"}, strings.ToLower(s.AppProtocol))
}

// targetPort returns the container port, which defaults to the port of the Service.
func targetPort(p *corev1.ServicePort) Port {
	if p.TargetPort.Type == intstr.String && p.TargetPort.StrVal != "" {
		return Port{Name: p.TargetPort.StrVal}
	}
	return Port{Number: cmp.Or(p.TargetPort.IntVal, p.Port)}
}

func hasPortName(name string) func(corev1.ServicePort) bool {
	return func(p corev1.ServicePort) bool { return p.Name == name }
}

func hasHTTPPrefix(p corev1.ServicePort) bool { return strings.HasPrefix(p.Name, "http-") }

func speaksHTTP(p corev1.ServicePort) bool {
	return slices.Contains([]string{"http", "kubernetes.io/h2c", "h2c", "http2"}, strings.ToLower(ptr.Deref(p.AppProtocol, "")))
}
