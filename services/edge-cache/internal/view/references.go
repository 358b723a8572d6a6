package view

import (
	"strings"
	"sync"

	"go.uber.org/zap"
	networkingv1 "k8s.io/api/networking/v1"
)

const (
	classAnnotation = "kubernetes.io/ingress.class"
	// maxReferences limits the Secrets that one Ingress can name. An Ingress with more rules than that does not fit into etcd.
	maxReferences = 1000
)

// References knows which Secrets the Ingresses of a class name: in spec.tls, and in annotations whose name ends in "secret". An annotation can
// only name a Secret in the namespace of its Ingress: whoever may write an Ingress may not therefore read every Secret.
type References struct {
	class  string
	always map[string]struct{}
	log    *zap.Logger

	mu     sync.Mutex
	byFrom map[string][]string // by Ingress
	count  map[string]int      // by Secret
}

// NewReferences returns references of the Ingresses of a class. The named Secrets are always wanted.
func NewReferences(class string, always []string, log *zap.Logger) *References {
	r := &References{class: class, always: map[string]struct{}{}, log: log, byFrom: map[string][]string{}, count: map[string]int{}}
	for _, key := range always {
		r.always[key] = struct{}{}
	}
	return r
}

// Wanted reports whether a Secret is named.
func (r *References) Wanted(secret string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, always := r.always[secret]
	return always || r.count[secret] > 0
}

// All returns the names of all wanted Secrets.
func (r *References) All() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := make([]string, 0, len(r.count)+len(r.always))
	for key := range r.count {
		keys = append(keys, key)
	}
	for key := range r.always {
		keys = append(keys, key)
	}
	return keys
}

// Update applies changes of Ingresses, and returns the Secrets that are now wanted or no longer wanted.
func (r *References) Update(ingresses map[string][]byte) (changed []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := map[string]bool{}
	note := func(secret string) {
		if _, known := before[secret]; !known {
			before[secret] = r.count[secret] > 0
		}
	}
	for key, object := range ingresses {
		for _, secret := range r.byFrom[key] {
			note(secret)
			if r.count[secret]--; r.count[secret] == 0 {
				delete(r.count, secret)
			}
		}
		delete(r.byFrom, key)
		named := r.named(key, object)
		if len(named) > 0 {
			r.byFrom[key] = named
		}
		for _, secret := range named {
			note(secret)
			r.count[secret]++
		}
	}
	for secret, was := range before {
		if was != (r.count[secret] > 0) {
			changed = append(changed, secret)
		}
	}
	return changed
}

// named returns the Secrets that an Ingress names.
func (r *References) named(key string, object []byte) []string {
	if object == nil {
		return nil
	}
	var ingress networkingv1.Ingress
	if err := ingress.Unmarshal(object); err != nil {
		r.log.Warn("Ignored the Secrets of a malformed Ingress", zap.String("ingress", key), zap.Error(err))
		return nil
	}
	if !r.ofClass(&ingress) {
		return nil
	}
	var named []string
	add := func(name string) {
		if name != "" && len(named) < maxReferences {
			named = append(named, ingress.Namespace+"/"+name)
		}
	}
	for _, tls := range ingress.Spec.TLS {
		add(tls.SecretName)
	}
	for annotation, value := range ingress.Annotations {
		if !strings.HasSuffix(annotation, "secret") {
			continue
		}
		if namespace, name, qualified := strings.Cut(value, "/"); !qualified {
			add(value)
		} else if namespace == ingress.Namespace {
			add(name)
		}
	}
	return named
}

func (r *References) ofClass(i *networkingv1.Ingress) bool {
	if i.Spec.IngressClassName != nil {
		return *i.Spec.IngressClassName == r.class
	}
	return i.Annotations[classAnnotation] == r.class
}
