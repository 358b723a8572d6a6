package variantautoscaler_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	sigsyaml "sigs.k8s.io/yaml"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/prom"
	"fairlead.dev/deploy/charts/internal/schema"
)

const adapterValues = "prometheus-adapter-values.yaml"

func folder() string {
	return filepath.Join(helm.Repository(), "deploy", "examples", "variant-autoscaler")
}

// examples returns the objects of the examples, by file.
func examples(t *testing.T) map[string][]*unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder(), "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	found := map[string][]*unstructured.Unstructured{}
	for _, file := range files {
		if filepath.Base(file) == adapterValues {
			continue
		}
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		objects, err := helm.Objects(raw)
		require.NoError(t, err, file)
		require.NotEmpty(t, objects, file)
		found[filepath.Base(file)] = objects
	}
	return found
}

// of returns the objects of a kind, decoded, with the names of their files.
func of[T any](t *testing.T, kind string) map[string]*T {
	t.Helper()
	found := map[string]*T{}
	for file, objects := range examples(t) {
		for _, o := range objects {
			if o.GetKind() != kind {
				continue
			}
			var decoded T
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &decoded, true), file)
			found[file] = &decoded
		}
	}
	require.NotEmpty(t, found, kind)
	return found
}

// scaledObject has the fields of KEDA's type that the examples use.
type scaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		ScaleTargetRef  autoscalingv2.CrossVersionObjectReference `json:"scaleTargetRef"`
		PollingInterval int64                                     `json:"pollingInterval"`
		CooldownPeriod  int64                                     `json:"cooldownPeriod"`
		MinReplicaCount int64                                     `json:"minReplicaCount"`
		MaxReplicaCount int64                                     `json:"maxReplicaCount"`
		Fallback        any                                       `json:"fallback"`
		Advanced        struct {
			HorizontalPodAutoscalerConfig struct {
				Behavior autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior"`
			} `json:"horizontalPodAutoscalerConfig"`
		} `json:"advanced"`
		Triggers []struct {
			Type              string            `json:"type"`
			MetricType        string            `json:"metricType"`
			Metadata          map[string]string `json:"metadata"`
			AuthenticationRef map[string]string `json:"authenticationRef"`
		} `json:"triggers"`
	} `json:"spec"`
}

// variantAutoscaling has the fields that WVA 0.4 to 0.8 released.
type variantAutoscaling struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		ScaleTargetRef autoscalingv2.CrossVersionObjectReference `json:"scaleTargetRef"`
		ModelID        string                                    `json:"modelID"`
		VariantCost    string                                    `json:"variantCost"`
		MinReplicas    *int32                                    `json:"minReplicas"`
		MaxReplicas    *int32                                    `json:"maxReplicas"`
	} `json:"spec"`
}

// TestExamplesAreValid validates the objects of Kubernetes and KEDA. A VariantAutoscaling is only decoded.
func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(helm.Repository(), "README.md"))
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| Kubernetes \| (\d+\.\d+) .*\| (\d+\.\d+) and later \|$`).FindSubmatch(readme)
	require.NotNil(t, row)
	for _, version := range row[1:] {
		validator, err := schema.New(string(version))
		require.NoError(t, err)
		for file, objects := range examples(t) {
			for _, o := range objects {
				if o.GetKind() == "VariantAutoscaling" {
					continue
				}
				if err := validator.Validate(o); err != nil {
					t.Errorf("%s, Kubernetes %s: %v", file, version, err)
				}
			}
		}
	}
	of[variantAutoscaling](t, "VariantAutoscaling")
}

// TestPairHasRoles: the two variants of the example are those of one model, and the pods of their Deployments have the two roles.
func TestPairHasRoles(t *testing.T) {
	t.Parallel()
	roles, targets := map[string]string{}, map[string]string{} // by Deployment: the role, and the model of its variant
	for _, o := range examples(t)["prefill-decode.yaml"] {
		text := func(fields ...string) string {
			value, _, err := unstructured.NestedString(o.Object, fields...)
			require.NoError(t, err)
			return value
		}
		if o.GetKind() == "Deployment" {
			roles[o.GetName()] = text("spec", "template", "metadata", "labels", "llm-d.ai/role")
		} else {
			targets[text("spec", "scaleTargetRef", "name")] = text("spec", "modelID")
		}
	}
	assert.Equal(t, map[string]string{"llama-70b-prefill": "prefill", "llama-70b-decode": "decode"}, roles)
	assert.Equal(t, map[string]string{"llama-70b-prefill": "meta/llama-3.1-70b", "llama-70b-decode": "meta/llama-3.1-70b"}, targets)
}

func TestREADMEHasAllExamples(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(filepath.Dir(folder()), "README.md"))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(readme), "\n## variant-autoscaler\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var listed []string
	for _, match := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		listed = append(listed, match[1])
	}
	want := []string{adapterValues}
	for file := range examples(t) {
		want = append(want, file)
	}
	assert.ElementsMatch(t, want, listed)
}

// assertFollows asserts that a HorizontalPodAutoscaler does at once what it is told.
func assertFollows(t *testing.T, file string, b *autoscalingv2.HorizontalPodAutoscalerBehavior) {
	t.Helper()
	require.NotNil(t, b, file)
	for direction, rules := range map[string]*autoscalingv2.HPAScalingRules{"up": b.ScaleUp, "down": b.ScaleDown} {
		require.NotNil(t, rules, "%s, %s", file, direction)
		require.NotNil(t, rules.StabilizationWindowSeconds, "%s, %s: Kubernetes has a default", file, direction)
		assert.Zero(t, *rules.StabilizationWindowSeconds, "%s, %s", file, direction)
		require.NotNil(t, rules.Tolerance, "%s, %s: Kubernetes has a default", file, direction)
		assert.True(t, rules.Tolerance.IsZero(), "%s, %s", file, direction)
		assert.Nil(t, rules.SelectPolicy, "%s, %s: the default is the policy that allows most", file, direction)
		require.Len(t, rules.Policies, 1, "%s, %s", file, direction)
	}
	assert.Equal(t, autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 1000, PeriodSeconds: 15}, b.ScaleUp.Policies[0], file)
	assert.Equal(t, autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}, b.ScaleDown.Policies[0], file)
}

func TestHorizontalPodAutoscalers(t *testing.T) {
	t.Parallel()
	for file, hpa := range of[autoscalingv2.HorizontalPodAutoscaler](t, "HorizontalPodAutoscaler") {
		assertFollows(t, file, hpa.Spec.Behavior)
		require.Len(t, hpa.Spec.Metrics, 1, file)
		metric := hpa.Spec.Metrics[0].External
		require.NotNil(t, metric, file)
		assert.Equal(t, autoscalingv2.AverageValueMetricType, metric.Target.Type, "%s: Value multiplies", file)
		assert.Equal(t, int64(1000), metric.Target.AverageValue.MilliValue(), file)
	}
}

func TestScaledObjects(t *testing.T) {
	t.Parallel()
	for file, so := range of[scaledObject](t, "ScaledObject") {
		assertFollows(t, file, &so.Spec.Advanced.HorizontalPodAutoscalerConfig.Behavior)
		assert.Nil(t, so.Spec.Fallback, "%s: KEDA starts or stops targets at zero by it", file)
		require.Len(t, so.Spec.Triggers, 1, file)
		trigger := so.Spec.Triggers[0]
		assert.Equal(t, "AverageValue", trigger.MetricType, "%s: Value multiplies", file)
		if trigger.Type == "prometheus" {
			assert.Equal(t, "1", trigger.Metadata["threshold"], file)
			assert.Equal(t, "false", trigger.Metadata["ignoreNullValues"], "%s: by default KEDA takes no series for zero", file)
			continue
		}
		assert.Contains(t, []string{"external", "external-push"}, trigger.Type, file)
		assert.Equal(t, "true", trigger.Metadata["enableTLS"], file)
		authentications := of[unstructured.Unstructured](t, trigger.AuthenticationRef["kind"])
		assert.Equal(t, trigger.AuthenticationRef["name"], authentications["keda-authentication.yaml"].GetName(), file)
	}
}

// TestAnnotatedExamplesAreVariants compares the annotations with those of WVA 0.9.
func TestAnnotatedExamplesAreVariants(t *testing.T) {
	t.Parallel()
	for file, objects := range examples(t) {
		for _, o := range objects {
			if strings.Contains(file, "annotated") {
				assert.Equal(t, "true", o.GetAnnotations()["llm-d.ai/managed"], file)
				assert.NotEmpty(t, o.GetAnnotations()["llm-d.ai/model-id"], file)
				assert.NotEmpty(t, o.GetAnnotations()["llm-d.ai/variant-cost"], file)
			} else {
				assert.Empty(t, o.GetAnnotations(), "%s: the VariantAutoscaling is the variant", file)
			}
		}
	}
}

// adapterQuery renders the rule of the adapter for a HorizontalPodAutoscaler, as the adapter does.
func adapterQuery(t *testing.T, hpa *autoscalingv2.HorizontalPodAutoscaler) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(folder(), adapterValues))
	require.NoError(t, err)
	var values struct {
		Prometheus map[string]any `json:"prometheus"`
		Rules      struct {
			Default  *bool `json:"default"`
			External []struct {
				SeriesQuery string `json:"seriesQuery"`
				Resources   struct {
					Overrides map[string]struct {
						Resource string `json:"resource"`
					} `json:"overrides"`
				} `json:"resources"`
				Name struct {
					As string `json:"as"`
				} `json:"name"`
				MetricsQuery string `json:"metricsQuery"`
			} `json:"external"`
		} `json:"rules"`
	}
	require.NoError(t, sigsyaml.UnmarshalStrict(raw, &values))
	require.Len(t, values.Rules.External, 1)
	rule := values.Rules.External[0]
	metric := hpa.Spec.Metrics[0].External.Metric
	require.Equal(t, metric.Name, rule.Name.As)
	var matchers []string
	for label, value := range metric.Selector.MatchLabels {
		matchers = append(matchers, label+`="`+value+`"`)
	}
	for label, override := range rule.Resources.Overrides {
		require.Equal(t, "namespace", override.Resource)
		matchers = append(matchers, label+`="`+hpa.Namespace+`"`)
	}
	slices.Sort(matchers)
	var query strings.Builder
	rendered, err := template.New("").Delims("<<", ">>").Parse(rule.MetricsQuery)
	require.NoError(t, err)
	name, _, _ := strings.Cut(rule.SeriesQuery, "{")
	require.NoError(t, rendered.Execute(&query, map[string]string{"Series": name, "LabelMatchers": strings.Join(matchers, ","), "GroupBy": ""}))
	return query.String()
}

// TestQueries evaluates the queries of all examples during a change of leader: each gets the replicas of its variant, once.
func TestQueries(t *testing.T) {
	t.Parallel()
	queries := map[string]string{}
	for file, hpa := range of[autoscalingv2.HorizontalPodAutoscaler](t, "HorizontalPodAutoscaler") {
		queries[file] = adapterQuery(t, hpa)
	}
	for file, so := range of[scaledObject](t, "ScaledObject") {
		if query := so.Spec.Triggers[0].Metadata["query"]; query != "" {
			queries[file] = query
		}
	}
	require.Len(t, queries, 5)
	of := func(name, namespace, pod, values string) string {
		return `wva_desired_replicas{accelerator_type="H100",exported_namespace="` + namespace + `",namespace="fairlead",pod="` + pod +
			`",target_kind="Deployment",target_name="` + name + `-decode",variant_name="` + name + `"} ` + values
	}
	for file, query := range queries {
		name := "llama-h100"
		if strings.Contains(file, "annotated") {
			name = "qwen-h100"
		}
		world, err := prom.NewWorld(
			of(name, "models", "old", "12 12 stale"), of(name, "models", "new", "_ 11 11 11 stale"),
			of(name, "other", "old", "99 99 99 99 99"), of("another-h100", "models", "old", "77 77 77 77 77"),
		)
		require.NoError(t, err)
		result, err := world.Query(t.Context(), query, 0, 4*time.Minute)
		require.NoError(t, err, file)
		require.Len(t, result, 1, "%s: one series: KEDA refuses several, and a HorizontalPodAutoscaler adds them up", file)
		var got []float64
		for _, point := range result[0].Floats {
			got = append(got, point.F)
		}
		assert.Equal(t, []float64{12, 12, 11, 11}, got, "%s: then nothing, instead of zero", file)
	}
}
