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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

const (
	// maxManifest limits a manifest with its variables replaced. The API server stores objects of 1.5 MB at most.
	maxManifest = 512 << 10
	// maxDocuments is above the number of documents that a manifest may have.
	maxDocuments = 16
)

// manifest is a controller from the documents of a manifest. Everything else comes from the YurtIngress and from the builder.
type manifest struct {
	controller

	deployments int
}

// customController builds a controller from a manifest of the administrator.
func (b *builder) customController() (controller, error) {
	if b.pool.Manifest == nil {
		return controller{}, errors.New("the profile custom needs a manifest")
	}
	variables := strings.NewReplacer(b.manifestVariables()...)
	c, err := parseManifest(b.pool.Manifest.Text, variables, b.install.CustomClusterRoles)
	if err != nil {
		return controller{}, err
	}
	for _, container := range slices.Concat(c.pod.Containers, c.pod.InitContainers) {
		if err := b.install.CheckImage(container.Image); err != nil {
			return controller{}, fmt.Errorf("kind Deployment: container %s: %w", container.Name, err)
		}
	}
	if err := b.completePod(&c.pod); err != nil {
		return controller{}, fmt.Errorf("kind Deployment: %w", err)
	}
	c.cacheEnv = cacheEnv()
	return c, nil
}

// manifestVariables are the variables of a manifest, written as $(NAME). Kubernetes writes environment variables in the same way, so other
// names stay unchanged.
func (b *builder) manifestVariables() []string {
	http, https := b.listenPorts()
	return []string{
		"$(POOL)", b.pool.Name,
		"$(POOL_LABEL_KEY)", b.pool.LabelKey,
		"$(CLASS)", b.pool.Class,
		"$(NAME)", b.name,
		"$(NAMESPACE)", b.install.Namespace,
		"$(IMAGE)", b.pool.Image,
		"$(HTTP_PORT)", strconv.Itoa(int(http)),
		"$(HTTPS_PORT)", strconv.Itoa(int(https)),
	}
}

// parseManifest reads the documents of a manifest, which may bind the ClusterRoles in permitted.
func parseManifest(text string, variables *strings.Replacer, permitted []string) (controller, error) {
	m := manifest{}
	reader := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	size := 0
	for i := range maxDocuments + 1 {
		raw, err := reader.Read()
		switch {
		case errors.Is(err, io.EOF):
			return m.controller, m.checkComplete()
		case err != nil:
			return controller{}, fmt.Errorf("document %d: %w", i, err)
		case i == maxDocuments:
			return controller{}, fmt.Errorf("more than %d documents", maxDocuments)
		}
		var document any
		if err := sigsyaml.UnmarshalStrict(raw, &document); err != nil {
			return controller{}, fmt.Errorf("document %d: %w", i, err)
		}
		if document == nil {
			continue
		}
		// A variable cannot become a key, and stays a string, so the name of a pool cannot change the structure of the manifest.
		encoded, err := json.Marshal(replaceStrings(document, variables))
		if err != nil {
			return controller{}, fmt.Errorf("document %d: %w", i, err)
		}
		if size += len(encoded); size > maxManifest {
			return controller{}, fmt.Errorf("larger than %d KiB with its variables replaced", maxManifest>>10)
		}
		if err := m.addDocument(document, encoded, permitted); err != nil {
			return controller{}, fmt.Errorf("document %d: %w", i, err)
		}
	}
	return controller{}, fmt.Errorf("more than %d documents", maxDocuments)
}

// replaceStrings replaces the variables in the strings of a decoded document, in place.
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

// addDocument adds a document, of which encoded is the JSON. It may bind the ClusterRoles in permitted.
func (m *manifest) addDocument(document any, encoded []byte, permitted []string) error {
	var head metav1.TypeMeta
	if err := json.Unmarshal(encoded, &head); err != nil {
		return err
	}
	kind := head.APIVersion + " " + head.Kind
	fields, known := documentFields[kind]
	if !known {
		return fmt.Errorf("%q cannot be part of a manifest: give an apps/v1 Deployment, a networking.k8s.io/v1 IngressClass and, if the "+
			"controller needs them, a v1 ConfigMap and rbac.authorization.k8s.io/v1 ClusterRoleBindings and RoleBindings", kind)
	}
	err := fields.checkValue(document)
	if err == nil {
		switch head.Kind {
		case "IngressClass":
			err = m.addClass(encoded)
		case "ClusterRoleBinding":
			err = addRole(&m.roles, encoded, permitted)
		case "RoleBinding":
			err = addRole(&m.local, encoded, permitted)
		case "ConfigMap":
			err = m.addConfig(encoded)
		case "Deployment":
			err = m.addDeployment(encoded)
		}
	}
	if err != nil {
		return fmt.Errorf("kind %s: %w", head.Kind, err)
	}
	return nil
}

// decodeStrict decodes JSON, and returns an error for a field that does not exist.
func decodeStrict(encoded []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func (m *manifest) addClass(encoded []byte) error {
	var class networkingv1.IngressClass
	if err := decodeStrict(encoded, &class); err != nil {
		return err
	}
	if m.class != "" || class.Spec.Controller == "" {
		return errors.New("give one, with spec.controller")
	}
	if problems := validation.IsDomainPrefixedPath(nil, class.Spec.Controller); len(problems) > 0 {
		return fmt.Errorf("spec.controller: %w", problems.ToAggregate())
	}
	m.class = class.Spec.Controller
	return nil
}

func (m *manifest) addConfig(encoded []byte) error {
	var config corev1.ConfigMap
	if err := decodeStrict(encoded, &config); err != nil {
		return err
	}
	if m.config != nil || len(config.Data) == 0 {
		return errors.New("give one, with data")
	}
	m.config = config.Data
	return nil
}

func (m *manifest) addDeployment(encoded []byte) error {
	var deployment appsv1.Deployment
	if err := decodeStrict(encoded, &deployment); err != nil {
		return err
	}
	if m.deployments++; m.deployments > 1 {
		return errors.New("give only one")
	}
	m.pod = deployment.Spec.Template.Spec
	return nil
}

// addRole adds the ClusterRole of a binding.
func addRole(roles *[]string, encoded []byte, permitted []string) error {
	var b rbacv1.RoleBinding
	if err := decodeStrict(encoded, &b); err != nil {
		return err
	}
	if b.RoleRef.APIGroup != rbacv1.GroupName || b.RoleRef.Kind != "ClusterRole" {
		return errors.New("roleRef must be a ClusterRole")
	}
	if !slices.Contains(permitted, b.RoleRef.Name) {
		return fmt.Errorf("ClusterRole %q is not permitted: --custom-cluster-roles of the operator lists %q", b.RoleRef.Name, permitted)
	}
	if !slices.Contains(*roles, b.RoleRef.Name) {
		*roles = append(*roles, b.RoleRef.Name)
	}
	return nil
}

// checkComplete returns an error if a document is missing.
func (m *manifest) checkComplete() error {
	switch {
	case m.deployments == 0:
		return errors.New("it has no Deployment")
	case m.class == "":
		return errors.New("it has no IngressClass with spec.controller")
	case m.config == nil && slices.ContainsFunc(m.pod.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil }):
		return errors.New("a volume is the ConfigMap of the manifest, which has none")
	}
	return nil
}
