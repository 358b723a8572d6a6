package profile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

const (
	// maxManifest limits a manifest with its variables replaced. The API server stores objects of 1.5 MB at most.
	maxManifest = 512 << 10
	// maxDocuments is above the number of documents that a manifest may have.
	maxDocuments = 16
)

// manifest is the content of a custom manifest: the decisions that a built-in profile makes in code. Everything else comes from the
// YurtIngress and from the builder, as with built-in profiles.
type manifest struct {
	class  string
	roles  []string
	local  []string
	config map[string]string
	pod    *podManifest
}

// Documents of a manifest. A field that is not here is an error, so that nothing is ignored.
type (
	document struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	classDocument struct {
		document
		Spec struct {
			Controller string `json:"controller"`
		} `json:"spec"`
	}
	bindingDocument struct {
		document
		RoleRef struct {
			APIGroup string `json:"apiGroup"`
			Kind     string `json:"kind"`
			Name     string `json:"name"`
		} `json:"roleRef"`
	}
	configDocument struct {
		document
		Data map[string]string `json:"data"`
	}
	deploymentDocument struct {
		document
		Spec struct {
			Template struct {
				Spec podManifest `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
)

// customController builds a controller from a manifest of the administrator.
func (b *builder) customController() (controller, []Problem) {
	refuse := func(err error) (controller, []Problem) {
		source := "customManifest"
		if b.pool.Manifest != nil {
			source = b.pool.Manifest.Source
		}
		return controller{}, []Problem{{Reason: v1alpha1.ReasonInvalidManifest, Message: source + ": " + err.Error()}}
	}
	if b.pool.Manifest == nil {
		return refuse(errors.New("the profile custom needs a manifest"))
	}
	m, err := b.parseManifest(b.pool.Manifest.Text)
	if err != nil {
		return refuse(err)
	}
	pod, err := m.pod.buildPod(b)
	if err != nil {
		return refuse(fmt.Errorf("kind Deployment: %w", err))
	}
	return b.grantCache(controller{class: m.class, roles: m.roles, local: m.local, config: m.config, cacheEnv: cacheEnv(), pod: pod}), nil
}

// manifestVariables are the variables of a manifest, written as $(NAME). Kubernetes writes environment variables in the same way, so other
// names stay unchanged.
func (b *builder) manifestVariables() *strings.Replacer {
	http, https := b.listenPorts()
	return strings.NewReplacer(
		"$(POOL)", b.pool.Name,
		"$(POOL_LABEL_KEY)", b.pool.LabelKey,
		"$(CLASS)", b.pool.Class,
		"$(NAME)", b.name,
		"$(NAMESPACE)", b.install.Namespace,
		"$(IMAGE)", b.pool.Image,
		"$(HTTP_PORT)", strconv.Itoa(int(http)),
		"$(HTTPS_PORT)", strconv.Itoa(int(https)),
	)
}

// parseManifest reads the documents of a manifest.
func (b *builder) parseManifest(text string) (*manifest, error) {
	m := &manifest{}
	reader := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	size := 0
	for i := range maxDocuments + 1 {
		raw, err := reader.Read()
		switch {
		case errors.Is(err, io.EOF):
			return m, m.checkComplete()
		case err != nil:
			return nil, fmt.Errorf("document %d: %w", i, err)
		case i == maxDocuments:
			return nil, fmt.Errorf("more than %d documents", maxDocuments)
		}
		encoded, err := substituteVariables(raw, b.manifestVariables())
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
		if size += len(encoded); size > maxManifest {
			return nil, fmt.Errorf("larger than %d KiB with its variables replaced", maxManifest>>10)
		}
		if err := m.addDocument(encoded, b.install.CustomClusterRoles); err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
	}
	return nil, fmt.Errorf("more than %d documents", maxDocuments)
}

// substituteVariables parses YAML, replaces variables in its strings, and returns JSON. A value cannot become a key, and stays a string, so
// the name of a pool cannot change the structure of the manifest.
func substituteVariables(raw []byte, variables *strings.Replacer) ([]byte, error) {
	var value any
	if err := sigsyaml.UnmarshalStrict(raw, &value); err != nil {
		return nil, err
	}
	if value == nil {
		return nil, nil
	}
	return json.Marshal(replaceStrings(value, variables))
}

func replaceStrings(value any, variables *strings.Replacer) any {
	switch value := value.(type) {
	case string:
		return variables.Replace(value)
	case []any:
		for i := range value {
			value[i] = replaceStrings(value[i], variables)
		}
	case map[string]any:
		for key := range value {
			value[key] = replaceStrings(value[key], variables)
		}
	}
	return value
}

// addDocument adds a document. It may bind the ClusterRoles in permitted.
func (m *manifest) addDocument(encoded []byte, permitted []string) error {
	if len(encoded) == 0 {
		return nil
	}
	var d document
	if err := json.Unmarshal(encoded, &d); err != nil {
		return err
	}
	switch kind := d.APIVersion + " " + d.Kind; kind {
	case "networking.k8s.io/v1 IngressClass":
		return m.addClass(encoded)
	case "rbac.authorization.k8s.io/v1 ClusterRoleBinding":
		return addRole(&m.roles, encoded, permitted)
	case "rbac.authorization.k8s.io/v1 RoleBinding":
		return addRole(&m.local, encoded, permitted)
	case "v1 ConfigMap":
		return m.addConfig(encoded)
	case "apps/v1 Deployment":
		return m.addDeployment(encoded)
	default:
		return fmt.Errorf("%q cannot be part of a manifest: give an apps/v1 Deployment, a networking.k8s.io/v1 IngressClass and, if the "+
			"controller needs them, a v1 ConfigMap and rbac.authorization.k8s.io/v1 ClusterRoleBindings and RoleBindings", kind)
	}
}

// decodeStrict decodes JSON, and returns an error for a field that does not exist.
func decodeStrict(encoded []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func (m *manifest) addClass(encoded []byte) error {
	var class classDocument
	if err := decodeStrict(encoded, &class); err != nil {
		return fmt.Errorf("kind IngressClass: %w", err)
	}
	if m.class != "" || class.Spec.Controller == "" {
		return errors.New("kind IngressClass: give one, with spec.controller")
	}
	if problems := validation.IsDomainPrefixedPath(nil, class.Spec.Controller); len(problems) > 0 {
		return fmt.Errorf("kind IngressClass: spec.controller: %w", problems.ToAggregate())
	}
	m.class = class.Spec.Controller
	return nil
}

func (m *manifest) addConfig(encoded []byte) error {
	var config configDocument
	if err := decodeStrict(encoded, &config); err != nil {
		return fmt.Errorf("kind ConfigMap: %w", err)
	}
	if m.config != nil || len(config.Data) == 0 {
		return errors.New("kind ConfigMap: give one, with data")
	}
	m.config = config.Data
	return nil
}

func (m *manifest) addDeployment(encoded []byte) error {
	var deployment deploymentDocument
	if err := decodeStrict(encoded, &deployment); err != nil {
		return fmt.Errorf("kind Deployment: %w", err)
	}
	if m.pod != nil {
		return errors.New("kind Deployment: give only one")
	}
	m.pod = &deployment.Spec.Template.Spec
	return nil
}

// addRole adds the ClusterRole of a binding.
func addRole(roles *[]string, encoded []byte, permitted []string) error {
	var b bindingDocument
	if err := decodeStrict(encoded, &b); err != nil {
		return fmt.Errorf("kind %s: %w", b.Kind, err)
	}
	if b.RoleRef.APIGroup != "rbac.authorization.k8s.io" || b.RoleRef.Kind != "ClusterRole" {
		return fmt.Errorf("kind %s: roleRef must be a ClusterRole", b.Kind)
	}
	if !slices.Contains(permitted, b.RoleRef.Name) {
		return fmt.Errorf("kind %s: ClusterRole %q is not permitted: --custom-cluster-roles of the operator lists %q", b.Kind,
			b.RoleRef.Name, permitted)
	}
	if !slices.Contains(*roles, b.RoleRef.Name) {
		*roles = append(*roles, b.RoleRef.Name)
	}
	return nil
}

// checkComplete returns an error if a document is missing.
func (m *manifest) checkComplete() error {
	switch {
	case m.pod == nil:
		return errors.New("it has no Deployment")
	case m.class == "":
		return errors.New("it has no IngressClass with spec.controller")
	case m.config == nil && slices.ContainsFunc(m.pod.Volumes, func(v volumeManifest) bool { return v.ConfigMap != nil }):
		return errors.New("a volume is the ConfigMap of the manifest, which has none")
	}
	return nil
}
