package references

import (
	"encoding/json"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/services/edge-cache/internal/allowlist"
)

const (
	classAnnotation = "kubernetes.io/ingress.class"
	// maxReferences limits the references of one object. An Ingress with more rules than that does not fit into etcd.
	maxReferences = 1000
	// secretURN begins a value of a plugin of Traefik: urn:k8s:secret:NAME:KEY. Other values of a plugin can be secrets themselves.
	secretURN    = "urn:k8s:secret:" //nolint:gosec // the begin of a name
	pluginFields = "spec.plugin."
)

// collector collects what one object names.
type collector struct {
	params     Params
	resource   string
	object     metav1.ObjectMeta
	isTrusted  bool // the administrator wrote it
	isCustom   bool
	references []Reference
}

// readObject reads an object of one of the kinds that name others.
func (n *collector) readObject(resource allowlist.Resource, object []byte) error {
	switch {
	case resource.Custom:
		return n.readCustom(object)
	case resource.Name == "ingresses":
		return n.readIngress(object)
	case resource.Name == "configmaps":
		return n.readConfigMap(object)
	}
	var o metav1.PartialObjectMetadata // every kind has its metadata in the same field
	if err := o.Unmarshal(object); err != nil {
		return err
	}
	n.readAnnotations(o.ObjectMeta)
	return nil
}

// addReference adds a reference to NAME or NAMESPACE/NAME. A value that is neither, such as a path, is no reference.
func (n *collector) addReference(kind allowlist.Filter, field, value string) {
	value = strings.TrimPrefix(value, "secret://") // haproxy-ingress has a protocol, too
	namespace, name, qualified := strings.Cut(value, "/")
	if !qualified {
		namespace, name = n.object.Namespace, value
	}
	if len(n.references) > maxReferences || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return
	}
	r := Reference{
		Resource: n.resource, Object: n.object.Namespace + "/" + n.object.Name, Field: field,
		Target: Target{Kind: kind, Key: namespace + "/" + name}, Guessed: n.isCustom,
	}
	switch {
	case len(n.references) == maxReferences:
		r.Problem = TooMany
	case namespace != n.object.Namespace && !n.isTrusted:
		r.Problem = OtherNamespace
	}
	n.references = append(n.references, r)
}

// readIngress reads an Ingress. Controllers differ in which of field and annotation wins if the classes differ.
func (n *collector) readIngress(object []byte) error {
	var ingress networkingv1.Ingress
	if err := ingress.Unmarshal(object); err != nil {
		return err
	}
	class := ingress.Spec.IngressClassName
	if (class == nil || *class != n.params.Class) && ingress.Annotations[classAnnotation] != n.params.Class {
		return nil
	}
	n.readAnnotations(ingress.ObjectMeta)
	for _, tls := range ingress.Spec.TLS {
		n.addReference(allowlist.Secrets, "spec.tls.secretName", tls.SecretName)
	}
	return nil
}

func (n *collector) readAnnotations(o metav1.ObjectMeta) {
	n.object = o
	for name, value := range o.Annotations {
		if n.params.SecretFields.IsSecretAnnotation(name) {
			n.addReference(allowlist.Secrets, "metadata.annotations."+name, value)
		}
	}
}

// readConfigMap reads a ConfigMap of the controller's own namespace.
func (n *collector) readConfigMap(object []byte) error {
	var c corev1.ConfigMap
	if err := c.Unmarshal(object); err != nil || c.Namespace != n.params.Namespace {
		return err
	}
	n.object, n.isTrusted = c.ObjectMeta, true
	for key, value := range c.Data {
		if n.params.SecretFields.IsSecretKey(key) {
			n.addReference(allowlist.Secrets, "data."+key, value)
			continue
		}
		// A TCP service of haproxy-ingress: service, port, PROXY, PROXY, certificate, interval, authority.
		if _, err := strconv.ParseUint(key, 10, 16); err == nil {
			for i, part := range strings.Split(value, ":") {
				if i == 4 || i == 6 {
					n.addReference(allowlist.Secrets, "data."+key, part)
				}
			}
		}
	}
	return nil
}

// readCustom reads a custom resource: of the class, or without one.
func (n *collector) readCustom(object []byte) error {
	var o struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     any               `json:"spec"`
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return err
	}
	fields, _ := o.Spec.(map[string]any) // HAProxy's kind TCP has a list
	class, _ := fields["ingressClassName"].(string)
	for _, class := range []string{class, o.Metadata.Annotations[classAnnotation]} {
		if class != "" && class != n.params.Class {
			return nil
		}
	}
	n.object, n.isCustom = o.Metadata, true
	n.walkFields("spec", o.Spec)
	return nil
}

// walkFields adds what the fields below a value name.
func (n *collector) walkFields(path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, below := range value {
			field := path + "." + key
			if kind := targetKind(key); kind != allowlist.None && !strings.HasPrefix(field, pluginFields) {
				n.addReferences(kind, field, below)
			} else {
				n.walkFields(field, below)
			}
		}
	case []any:
		for _, item := range value {
			n.walkFields(path, item)
		}
	case string:
		if rest, found := strings.CutPrefix(value, secretURN); found {
			name, _, _ := strings.Cut(rest, ":")
			n.addReference(allowlist.Secrets, path, name)
		}
	}
}

// addReferences adds the value of a field that names objects: a name, a reference with a name and perhaps a kind and a namespace, or a list
// of them.
func (n *collector) addReferences(kind allowlist.Filter, field string, value any) {
	switch value := value.(type) {
	case string:
		n.addReference(kind, field, value)
	case []any:
		for _, item := range value {
			n.addReferences(kind, field, item)
		}
	case map[string]any:
		name, named := value["name"].(string)
		if !named {
			n.walkFields(field, value)
			return
		}
		switch value["kind"] {
		case nil:
		case "Secret":
			kind = allowlist.Secrets
		case "ConfigMap":
			kind = allowlist.ConfigMaps
		default:
			return
		}
		if namespace, _ := value["namespace"].(string); namespace != "" {
			name = namespace + "/" + name
		}
		n.addReference(kind, field, name)
	}
}

// targetKind returns what a field of a custom resource names by its own name: secret, secretName, rootCAsSecrets, clientCertSecret,
// secretKeyRef, configMap, certificateRefs and so on.
func targetKind(field string) allowlist.Filter {
	name := strings.ToLower(field)
	for _, suffix := range []string{"refs", "ref", "selector", "key", "names", "name"} {
		name = strings.TrimSuffix(name, suffix)
	}
	name = strings.TrimSuffix(name, "s")
	isReference := strings.HasSuffix(field, "Ref") || strings.HasSuffix(field, "Refs")
	switch {
	// HAProxy's kind TCP
	case strings.HasSuffix(name, "secret"), isReference && strings.HasSuffix(name, "certificate"), name == "ssl_certificate":
		return allowlist.Secrets
	case strings.HasSuffix(name, "configmap"):
		return allowlist.ConfigMaps
	}
	return allowlist.None
}
