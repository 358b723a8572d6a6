package variantautoscaler_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
)

// own is the name of the ClusterRole of the program.
const own = "system:release-variant-autoscaler"

// role returns a ClusterRole.
func role(t *testing.T, set objects.Set, name string) *rbacv1.ClusterRole {
	t.Helper()
	all := objects.All[rbacv1.ClusterRole](t, set)
	i := slices.IndexFunc(all, func(r *rbacv1.ClusterRole) bool { return r.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return all[i]
}

// readSource returns a file of the program.
func readSource(t *testing.T, path ...string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(append([]string{repository, "services", program, "internal"}, path...)...))
	require.NoError(t, err)
	return string(raw)
}

// TestRoles checks that the program may do what it does, and nothing else: it lists and watches the kinds of its informers.
func TestRoles(t *testing.T) {
	t.Parallel()
	want := []string{"get llmd.ai/variantautoscalings", "patch llmd.ai/variantautoscalings/status", "create /events", "patch /events", "get production-stack.vllm.ai/vllmruntimes/scale", "get workload.serving.volcano.sh/modelservings/scale", "get disaggregatedset.x-k8s.io/disaggregatedsetrolescalers/scale"}
	kinds := regexp.MustCompile(`(?:(?:newKind|optionalKind)\("([\w.-]*)", "\w+"|declarations\("([\w.-]*)", "\w+"|workloads\("([\w.-]*)"), "(\w+)"`).FindAllStringSubmatch(readSource(t, "informers", "informers.go"), -1)
	require.Len(t, kinds, 11)
	var nodes []string
	for _, kind := range kinds {
		name := kind[1] + kind[2] + kind[3] + "/" + kind[4]
		if name == "/nodes" {
			nodes = []string{"list " + name, "watch " + name}
			continue
		}
		want = append(want, "list "+name, "watch "+name)
	}
	permissions := func(values helm.Values) []string {
		return objects.Permissions(role(t, objects.Render(t, chart, with(values)), own).Rules)
	}
	assert.ElementsMatch(t, want, permissions(helm.Values{"holds": helm.Values{"enabled": false}}), "nothing of pickers")
	want = append(want, "list discovery.k8s.io/endpointslices", "watch discovery.k8s.io/endpointslices")
	for _, values := range []helm.Values{nil, {"externalScaler": helm.Values{"enabled": true}}, {"saturation": helm.Values{"default": helm.Values{"enableLimiter": false}}}} {
		assert.ElementsMatch(t, want, permissions(values))
	}
	want = append(want, nodes...)
	source := readSource(t, "informers", "informers.go")
	for call, group := range map[string]string{`kueue\(`: "kueue.x-k8s.io/", `optionalKind\(groupResource, "v1", `: "resource.k8s.io/"} {
		kinds := regexp.MustCompile(call+`"(\w+)", "\w+"`).FindAllStringSubmatch(source, -1)
		require.GreaterOrEqual(t, len(kinds), 3)
		for _, kind := range kinds {
			want = append(want, "list "+group+kind[1], "watch "+group+kind[1])
		}
	}
	want = append(want, "get kueue.x-k8s.io/localqueues")
	for _, values := range []helm.Values{{"limiter": helm.Values{"enabled": true}}, {"saturation": helm.Values{"default": helm.Values{"enableLimiter": true}}}} {
		assert.ElementsMatch(t, want, permissions(values), "the limiter is on")
	}
}

// TestRolesOfTheActuator checks that only a program that writes replicas may, and only them.
func TestRolesOfTheActuator(t *testing.T) {
	t.Parallel()
	permissions := func(actuator string) []string {
		return objects.Permissions(role(t, objects.Render(t, chart, with(helm.Values{"actuator": actuator})), own).Rules)
	}
	want := permissions("metrics")
	for _, scale := range []string{
		"apps/deployments/scale", "apps/statefulsets/scale", "leaderworkerset.x-k8s.io/leaderworkersets/scale", "production-stack.vllm.ai/vllmruntimes/scale",
		"workload.serving.volcano.sh/modelservings/scale", "disaggregatedset.x-k8s.io/disaggregatedsetrolescalers/scale",
	} {
		assert.NotContains(t, want, "update "+scale)
		if !slices.Contains(want, "get "+scale) {
			want = append(want, "get "+scale)
		}
		want = append(want, "update "+scale)
	}
	assert.ElementsMatch(t, want, permissions("scale"))
	wakes := objects.Render(t, chart, with(helm.Values{"wakeHPATargets": true}))
	assert.ElementsMatch(t, want, objects.Permissions(role(t, wakes, own).Rules), "the first replica")
	assert.Equal(t, []string{"--wake-hpa-targets=true"}, flagsOf(objects.Container(t, wakes), "--wake-hpa-targets"))
}

// TestRoleOfHolds checks that pickers get the token of a ServiceAccount that may do nothing but ask them.
func TestRoleOfHolds(t *testing.T) {
	t.Parallel()
	set := objects.Render(t, chart, with(helm.Values{"holds": helm.Values{"caSecret": "ca", "token": true}}))
	assert.Equal(t, []rbacv1.PolicyRule{{NonResourceURLs: []string{"/v1/holds", "/metrics"}, Verbs: []string{"get"}}}, role(t, set, own+":holds").Rules)
	for _, b := range objects.All[rbacv1.ClusterRoleBinding](t, set) {
		subject := "release-variant-autoscaler"
		if b.RoleRef.Name == own+":holds" {
			subject += "-holds"
		}
		require.Len(t, b.Subjects, 1)
		assert.Equal(t, subject, b.Subjects[0].Name, b.Name)
	}
	for _, a := range objects.All[corev1.ServiceAccount](t, set) {
		assert.False(t, strings.HasSuffix(a.Name, "-holds") && (a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken))
	}
}

// TestRolesOfNamespaces checks that the program may read the ConfigMaps of one namespace, and that one Lease is its own.
func TestRolesOfNamespaces(t *testing.T) {
	t.Parallel()
	roles := map[string][]rbacv1.PolicyRule{}
	for _, r := range objects.All[rbacv1.Role](t, objects.Render(t, chart, with(helm.Values{"configNamespace": "wva"}))) {
		roles[r.Namespace+"/"+r.Name] = r.Rules
	}
	assert.Equal(t, map[string][]rbacv1.PolicyRule{
		"wva/release-variant-autoscaler-config": {{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}}},
		"system/release-variant-autoscaler-leader": {
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"fairlead-variant-autoscaler"}, Verbs: []string{"get", "update"}},
		},
	}, roles)
}

// configMapNames returns the names of the ConfigMaps that the program looks for.
func configMapNames(t *testing.T) []string {
	t.Helper()
	_, table, found := strings.Cut(readSource(t, "settings", "select.go"), "var configMapNames = map[Kind][]string{")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n}\n")
	var names []string
	for _, match := range regexp.MustCompile(`"([a-z0-9-]+)"`).FindAllStringSubmatch(table, -1) {
		names = append(names, match[1])
	}
	require.Len(t, names, 12)
	return names
}

// TestConfigMapsHaveNamesOfTheProgram compares the ConfigMaps of all files in ci with the names that the program looks for.
func TestConfigMapsHaveNamesOfTheProgram(t *testing.T) {
	t.Parallel()
	values, err := helm.ReadValues(filepath.Join(chart, "ci", "config-values.yaml"))
	require.NoError(t, err)
	made := configMaps(t, objects.Render(t, chart, values))
	require.Len(t, made, 6)
	for name := range made {
		assert.Contains(t, configMapNames(t), strings.TrimPrefix(name, "system/"))
	}
}

// TestRolesOfUsers checks which permissions users with the built-in roles get: never those to write the status, from which a new leader
// takes the last decision.
func TestRolesOfUsers(t *testing.T) {
	t.Parallel()
	const aggregate = "rbac.authorization.k8s.io/aggregate-to-"
	tests := []struct {
		name, role string
		want       []string
		to         []string
	}{
		{name: "readers", role: own + ":view", want: []string{"get", "list", "watch"}, to: []string{"view", "edit", "admin"}},
		{name: "writers", role: own + ":edit", want: []string{"create", "update", "patch", "delete"}, to: []string{"edit", "admin"}},
	}
	set := objects.Render(t, chart, with(nil))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := role(t, set, tt.role)
			assert.Equal(t, []rbacv1.PolicyRule{{APIGroups: []string{"llmd.ai"}, Resources: []string{"variantautoscalings"}, Verbs: tt.want}}, r.Rules)
			var to []string
			for label, value := range r.Labels {
				if name, is := strings.CutPrefix(label, aggregate); is && value == "true" {
					to = append(to, name)
				}
			}
			assert.ElementsMatch(t, tt.to, to)
		})
	}
	assert.Len(t, objects.All[rbacv1.ClusterRole](t, objects.Render(t, chart, with(helm.Values{"rbac": helm.Values{"aggregate": false}}))), 1)
	assert.Empty(t, objects.Rules(t, objects.Render(t, chart, with(helm.Values{"rbac": helm.Values{"create": false}}))))
}
