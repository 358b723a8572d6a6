// Package backend finds the Services that OME makes for the components of an InferenceService, and their ports.
//
// A component's Service has a name that follows from the service's, labels, and the InferenceService as its controller. The
// labels alone are not enough: OME 1.3 gives them to Services of one revision, too, and to headless ones, which a route must
// not point at. Nor is the name: InferenceService "a-engine" makes Services that "a" could have made.
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

	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// Labels of a component's Service.
const (
	LabelService   = "ome.io/inferenceservice" // the InferenceService, or others that share its pods: its controller counts
	LabelComponent = "component"               // its role
)

var (
	// ErrNotFound means that OME has made no Service for the component yet.
	ErrNotFound = errors.New("there is no Service")
	// ErrForeign means that somebody else's Service has the name.
	ErrForeign = errors.New("the Service of that name belongs to somebody else")
	// ErrNoPort means that there is a Service without a port for TCP.
	ErrNoPort = errors.New("the Service has no TCP port")
)

// A Service is where requests for a component go.
type Service struct {
	Name        string
	Port        int32
	PortName    string // empty if it has none
	AppProtocol string // empty if it says none
	TargetPort  Port   // of its pods
}

// Port is a port of pods: by number, or by name if that is 0.
type Port struct {
	Number int32
	Name   string
}

const (
	maxName  = 63 // of a Service
	hashSize = 8
)

// Name returns the name that OME gives the Service of a component. One that is too long is cut from the front, and begins
// with a hash of all of it.
func Name(service string, r isvc.Role) string {
	name := service + "-" + string(r)
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := []byte(hex.EncodeToString(sum[:])[:hashSize])
	if '0' <= hash[0] && hash[0] <= '9' {
		hash[0] = 'a' // names of Services begin with a letter
	}
	return string(hash) + "-" + name[len(name)-(maxName-hashSize-1):]
}

// Find returns the Service of a component among the Services of its namespace: that of OME's name, or else the only one that
// could be.
func Find(services []*corev1.Service, of *isvc.Service, r isvc.Role) (Service, error) {
	name := Name(of.Name, r)
	found, taken := candidates(services, of, r)
	slices.SortFunc(found, func(a, b *corev1.Service) int { return cmp.Compare(rank(a, name), rank(b, name)) })
	switch {
	case len(found) == 0 && taken:
		return Service{}, fmt.Errorf("%s %s: %w", r, name, ErrForeign)
	case len(found) == 0:
		return Service{}, fmt.Errorf("%s %s: %w", r, name, ErrNotFound)
	case len(found) > 1 && found[0].Name != name:
		return Service{}, fmt.Errorf("%s %s: %w of that name, and %d others could be it", r, name, ErrNotFound, len(found))
	}
	return port(found[0])
}

// candidates returns the Services that could be that of a component, and whether somebody else has its name.
func candidates(services []*corev1.Service, of *isvc.Service, r isvc.Role) (found []*corev1.Service, taken bool) {
	name := Name(of.Name, r)
	for _, s := range services {
		switch {
		case s.Namespace != of.Namespace || s.DeletionTimestamp != nil:
		case !metav1.IsControlledBy(s, &metav1.ObjectMeta{UID: of.UID}):
			taken = taken || s.Name == name
		case s.Labels[LabelComponent] == string(r) && !headless(s) && !revision(s, name):
			found = append(found, s)
		}
	}
	return found, taken
}

// rank puts OME's name first.
func rank(s *corev1.Service, name string) string {
	if s.Name == name {
		return ""
	}
	return s.Name
}

// headless reports whether a Service has no address of its own.
func headless(s *corev1.Service) bool {
	return s.Spec.ClusterIP == corev1.ClusterIPNone || strings.HasSuffix(s.Name, "-headless")
}

// revision reports whether a Service is one revision's, as OME 1.3 names them.
func revision(s *corev1.Service, name string) bool {
	return s.Name != name && strings.Contains(s.Name, "-rev-")
}

// port chooses the port of the API: by its name, then by its protocol, then the first, as OME takes it from the pod.
func port(s *corev1.Service) (Service, error) {
	var ports []corev1.ServicePort
	for _, p := range s.Spec.Ports {
		if p.Protocol == "" || p.Protocol == corev1.ProtocolTCP {
			ports = append(ports, p)
		}
	}
	if len(ports) == 0 {
		return Service{}, fmt.Errorf("%s: %w", s.Name, ErrNoPort)
	}
	p := ports[0]
	for _, fits := range []func(*corev1.ServicePort) bool{namedHTTP, speaksHTTP} {
		if i := slices.IndexFunc(ports, func(p corev1.ServicePort) bool { return fits(&p) }); i >= 0 {
			p = ports[i]
			break
		}
	}
	out := Service{Name: s.Name, Port: p.Port, PortName: p.Name, TargetPort: target(&p)}
	if p.AppProtocol != nil {
		out.AppProtocol = *p.AppProtocol
	}
	return out, nil
}

// target returns the port of the pods, which is that of the Service if it says none.
func target(p *corev1.ServicePort) Port {
	if p.TargetPort.Type == intstr.String && p.TargetPort.StrVal != "" {
		return Port{Name: p.TargetPort.StrVal}
	}
	return Port{Number: cmp.Or(p.TargetPort.IntVal, p.Port)}
}

func namedHTTP(p *corev1.ServicePort) bool {
	return p.Name == "http" || p.Name == "http1" || p.Name == "h2c" || strings.HasPrefix(p.Name, "http-")
}

func speaksHTTP(p *corev1.ServicePort) bool {
	if p.AppProtocol == nil {
		return false
	}
	return slices.Contains([]string{"http", "kubernetes.io/h2c", "h2c", "http2"}, strings.ToLower(*p.AppProtocol))
}
