package profile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// TestManifestRefuses tries what would let a manifest leave its pod, its pool or its ServiceAccount, and mistakes.
func TestManifestRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, pod, container, document, want string
	}{
		{name: "network of the node", pod: "hostNetwork: true", want: `unknown field "hostNetwork"`},
		{name: "processes of the node", pod: "hostPID: true", want: `unknown field "hostPID"`},
		{name: "other ServiceAccount", pod: "serviceAccountName: admin", want: `unknown field "serviceAccountName"`},
		{name: "other node", pod: "nodeName: cloud", want: `unknown field "nodeName"`},
		{name: "other pool", pod: "nodeSelector: {}", want: `unknown field "nodeSelector"`},
		{name: "folder of the node", pod: "volumes: [{name: a, hostPath: {path: /}}]", want: `unknown field "hostPath"`},
		{name: "Secret", pod: "volumes: [{name: a, secret: {secretName: tls}}]", want: `unknown field "secret"`},
		{name: "token", pod: "volumes: [{name: a, projected: {sources: []}}]", want: `unknown field "projected"`},
		{name: "other ConfigMap", pod: "volumes: [{name: a, configMap: {name: other}}]", want: `unknown field "name"`},
		{
			name: "volume of two kinds", pod: "volumes: [{name: a, configMap: {}, emptyDir: {}}]",
			document: "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}", want: "volume a: give emptyDir",
		},
		{name: "volume of the cache", pod: "volumes: [{name: edge-cache-upstream, emptyDir: {}}]", want: "belongs to the cache"},
		{name: "sysctls", pod: "securityContext: {sysctls: []}", want: `unknown field "sysctls"`},
		{name: "privileged", container: "securityContext: {privileged: true}", want: `unknown field "privileged"`},
		{
			name: "escalation", container: "securityContext: {allowPrivilegeEscalation: true}",
			want: `unknown field "allowPrivilegeEscalation"`,
		},
		{
			name: "capability", container: "securityContext: {capabilities: {add: [SYS_ADMIN]}}",
			want: "capability SYS_ADMIN is not permitted",
		},
		{name: "port of the node", container: "livenessProbe: {httpGet: {host: 10.0.0.1, port: 80}}", want: `unknown field "host"`},
		{
			name: "Secret in the environment", container: "env: [{name: A, valueFrom: {secretKeyRef: {name: a, key: b}}}]",
			want: `unknown field "secretKeyRef"`,
		},
		{name: "environment from a Secret", container: "envFrom: [{secretRef: {name: a}}]", want: `unknown field "envFrom"`},
		{
			name: "mount of the token for the API server", container: mount("edge-cache-upstream", "/stolen"),
			want: `volume "edge-cache-upstream" is not a volume of the manifest`,
		},
		{name: "mount of the key for TLS", container: mount("edge-cache-data", "/stolen"), want: `"edge-cache-data" is not`},
		{
			name: "mount of the controller's token",
			pod:  "initContainers: [{name: i, image: registry.example/ingress, " + mount("edge-cache-credentials", "/stolen") + "}]",
			want: `"edge-cache-credentials" is not`,
		},
		{name: "mount of no volume", pod: emptyVolume, container: mount("b", "/b"), want: `"b" is not`},
		{
			name: "folder of the ServiceAccount", pod: emptyVolume, container: mount("a", accountFolder+"/x"),
			want: "belongs to the ServiceAccount",
		},
		{
			name: "folder of the ServiceAccount by a link", pod: emptyVolume,
			container: mount("a", "/run/secrets/kubernetes.io/serviceaccount"), want: "belongs to the ServiceAccount",
		},
		{
			name: "folder of the ServiceAccount with more slashes", pod: emptyVolume,
			container: mount("a", "/var/run/secrets//kubernetes.io/./serviceaccount"), want: "belongs to the ServiceAccount",
		},
		{
			name: "parent of the folder of the ServiceAccount", pod: emptyVolume, container: mount("a", "/var/run/secrets/kubernetes.io"),
			want: "belongs to the ServiceAccount",
		},
		{
			name: "folder of the ServiceAccount without the first slash", pod: emptyVolume, container: mount("a", "run/secrets/x"),
			want: "belongs to the ServiceAccount",
		},
		{name: "folder of all tokens", pod: emptyVolume, container: mount("a", "/run/secrets"), want: "belongs to the ServiceAccount"},
		{
			name: "folder of the cache's token", pod: emptyVolume, container: mount("a", "/var/run/secrets/fairlead.dev/upstream"),
			want: "belongs to the ServiceAccount",
		},
		{
			name: "second container of another registry", pod: "initContainers: [{name: i, image: evil.example/miner}]",
			want: `image "evil.example/miner" is not allowed`,
		},
		{
			name: "name of the cache", pod: "initContainers: [{name: edge-cache, image: registry.example/ingress}]",
			want: "belongs to the cache",
		},
		{name: "misspelled field", container: "arg: [a]", want: `unknown field "arg"`},
		{name: "Secret as a document", document: "apiVersion: v1\nkind: Secret", want: `"v1 Secret" cannot be part of a manifest`},
		{name: "Role", document: "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole", want: "cannot be part"},
		{name: "no kind", document: "data: {}", want: "cannot be part"},
		{name: "second Deployment", document: "apiVersion: apps/v1\nkind: Deployment", want: "give only one"},
		{
			name: "second class", document: "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nspec: {controller: a.example/b}",
			want: "kind IngressClass: give one",
		},
		{name: "empty ConfigMap", document: "apiVersion: v1\nkind: ConfigMap", want: "kind ConfigMap: give one, with data"},
		{name: "name of an object", document: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}", want: `unknown field "metadata"`},
		{
			name: "cluster-admin", document: binding("ClusterRoleBinding", "cluster-admin"),
			want: `ClusterRole "cluster-admin" is not permitted`,
		},
		{
			name: "cluster-admin of a namespace", document: binding("RoleBinding", "cluster-admin"),
			want: `ClusterRole "cluster-admin" is not permitted`,
		},
		{name: "role by variable", document: binding("ClusterRoleBinding", "$(CLASS)"), want: `ClusterRole "hangzhou" is not permitted`},
		{name: "other subject", document: binding("ClusterRoleBinding", "ingress") + "\nsubjects: []", want: `unknown field "subjects"`},
		{name: "key twice", document: "apiVersion: v1\napiVersion: v1", want: "already set"},
		{name: "no YAML", document: "{", want: "document 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := minimalManifest
			if tt.container != "" {
				text += "        " + tt.container + "\n"
			}
			if tt.pod != "" {
				text += "      " + tt.pod + "\n"
			}
			if tt.document != "" {
				text += "---\n" + tt.document + "\n"
			}
			p := pool(v1alpha1.ProfileCustom)
			p.Manifest.Text = text
			built, problems := Build(install(), p)
			assert.Empty(t, built.Objects)
			require.Len(t, problems, 1)
			assert.Equal(t, v1alpha1.ReasonInvalidManifest, problems[0].Reason)
			assert.Contains(t, problems[0].Message, "ConfigMap fairlead/custom key manifest.yaml: ")
			assert.Contains(t, problems[0].Message, tt.want)
		})
	}
}

const emptyVolume = "volumes: [{name: a, emptyDir: {}}]"

func mount(volume, folder string) string {
	return fmt.Sprintf("volumeMounts: [{name: %s, mountPath: %q}]", volume, folder)
}

func binding(kind, role string) string {
	return fmt.Sprintf(
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: %s\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}",
		kind, role)
}

func TestManifestMustBeComplete(t *testing.T) {
	t.Parallel()
	class, deployment, _ := strings.Cut(minimalManifest, "---\n")
	tests := []struct{ name, text, want string }{
		{name: "empty", want: "it has no Deployment"},
		{name: "no Deployment", text: class, want: "it has no Deployment"},
		{name: "no class", text: deployment, want: "it has no IngressClass with spec.controller"},
		{name: "no container", text: class + "---\napiVersion: apps/v1\nkind: Deployment", want: "it has no container"},
		{
			name: "no port for HTTPS", text: strings.Replace(minimalManifest, "name: https", "name: other", 1),
			want: "no port with the name https",
		},
		{
			name: "class that Kubernetes refuses", text: strings.Replace(minimalManifest, "example.com/ingress", "Example ingress", 1),
			want: "spec.controller",
		},
		{
			name: "volume of a ConfigMap that is missing", text: minimalManifest + "      volumes: [{name: config, configMap: {}}]\n",
			want: "which has none",
		},
		{name: "many documents", text: strings.Repeat("---\n{}\n", 30), want: "document"},
		{
			name: "large",
			text: minimalManifest + "---\napiVersion: v1\nkind: ConfigMap\ndata: {a: " + strings.Repeat("$(CLASS)$(CLASS)", 40_000) + "}",
			want: "larger than 512 KiB",
		},
		{
			name: "aliases",
			text: "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d " +
				"[*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g " +
				"[*f,*f,*f,*f,*f,*f,*f,*f,*f]\n",
			want: "document 0",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := pool(v1alpha1.ProfileCustom)
			p.Manifest.Text = tt.text
			_, problems := Build(install(), p)
			require.Len(t, problems, 1)
			assert.Contains(t, problems[0].Message, tt.want)
		})
	}
}

// TestVariablesAreEscaped gives a pool a name with the characters of YAML. It stays a string.
func TestVariablesAreEscaped(t *testing.T) {
	t.Parallel()
	p := pool(v1alpha1.ProfileCustom)
	p.LabelKey = "a\", \"hostNetwork\": true, \"x\": \"\n---\nkind: Secret"
	p.Manifest.Text = strings.Replace(minimalManifest, "--class=$(CLASS)", "--key=$(POOL_LABEL_KEY)", 1)
	d := find[*appsv1.Deployment](t, build(t, p))
	assert.Equal(t, "--key="+p.LabelKey, d.Spec.Template.Spec.Containers[0].Args[0])
}

func TestManifestOfEveryField(t *testing.T) {
	t.Parallel()
	p := pool(v1alpha1.ProfileCustom)
	p.Image, p.Cache = "registry.example/ingress:2", &Cache{}
	p.Exposure = v1alpha1.Exposure{Type: v1alpha1.ExposureHostPort, HTTPPort: 80, HTTPSPort: 443}
	d := find[*appsv1.Deployment](t, build(t, p))
	c := d.Spec.Template.Spec.Containers[0]
	assert.Equal(t, p.Image, c.Image, "the image of the YurtIngress")
	assert.Equal(t, []corev1.ContainerPort{
		{Name: "http", ContainerPort: 8000, HostPort: 80, Protocol: corev1.ProtocolTCP},
		{Name: "https", ContainerPort: 8443, HostPort: 443, Protocol: corev1.ProtocolTCP},
	}, c.Ports)
	assert.Equal(t, "cache-hangzhou", c.EnvFrom[0].ConfigMapRef.Name)
	assert.Equal(t, accountFolder, c.VolumeMounts[0].MountPath)
}

func FuzzManifest(f *testing.F) {
	f.Add(minimalManifest)
	f.Add("a: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		p := pool(v1alpha1.ProfileCustom)
		p.Manifest.Text = text
		built, problems := Build(install(), p)
		require.Equal(t, len(problems) > 0, len(built.Objects) == 0)
		if len(problems) == 0 {
			assertCommon(t, p, built)
		}
	})
}
