package configmap

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
)

// Name is a flag that names a ConfigMap, as namespace/name. Empty: none.
type Name cache.ObjectName

// String implements pflag.Value.
func (n *Name) String() string {
	if n.Name == "" {
		return ""
	}
	return n.Namespace + "/" + n.Name
}

// Set implements pflag.Value.
func (n *Name) Set(text string) error {
	if text == "" {
		*n = Name{}
		return nil
	}
	namespace, name, found := strings.Cut(text, "/")
	if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return errors.New("must be namespace/name")
	}
	*n = Name{Namespace: namespace, Name: name}
	return nil
}

// Type implements pflag.Value.
func (n *Name) Type() string { return "namespace/name" }
