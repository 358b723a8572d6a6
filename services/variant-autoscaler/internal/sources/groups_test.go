package sources_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/pkg/testlane"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

// valid asserts that the optimizer accepts all variants of groups.
func valid(tb testing.TB, r *sources.Result) {
	tb.Helper()
	entries := 0
	for i := range r.Groups {
		for n := range r.Groups[i].Variants {
			entries = max(entries, len(r.Groups[i].Variants[n].Schedule))
		}
	}
	for entry := range entries + 1 {
		validWhile(tb, r, entry-1)
	}
}

// validWhile checks the bounds while an entry of each schedule is in force, or -1 for none.
func validWhile(tb testing.TB, r *sources.Result, entry int) {
	tb.Helper()
	p := optimizer.Problem{Split: optimizer.SplitCapacity}
	for i := range r.Groups {
		g := &r.Groups[i]
		built := optimizer.Group{Namespace: g.Namespace, Pool: g.Pool, Model: g.Model, Priority: 1}
		require.NotEmpty(tb, g.Variants)
		for n := range g.Variants {
			v := &g.Variants[n]
			bounds := v.BoundsOf(nil)
			if 0 <= entry && entry < len(v.Schedule) {
				bounds = v.BoundsOf(&v.Schedule[entry])
			}
			built.Variants = append(built.Variants, optimizer.Variant{
				Name: v.Name, Accelerator: v.Accelerator, Cards: v.Cards, Cost: v.Cost, Min: bounds.Min, Max: bounds.Max, Now: v.Now, Capacity: 1,
			})
			require.GreaterOrEqual(tb, v.Ready, 0)
			require.LessOrEqual(tb, v.Ready, optimizer.MaxReplicas)
		}
		p.Groups = append(p.Groups, built)
	}
	require.NoError(tb, p.Validate())
}

func TestCosts(t *testing.T) {
	t.Parallel()
	const unit = 1_000_000
	priced := func(name, target, accelerator, cost string) *unstructured.Unstructured {
		u := object(t, va, name, target)
		for key, value := range map[string]string{"accelerator": accelerator, "variantCost": cost} {
			if value != "" {
				require.NoError(t, unstructured.SetNestedField(u.Object, value, "spec", key))
			}
		}
		return u
	}
	annotated := func(name, target, accelerator, cost string) *unstructured.Unstructured {
		u := object(t, hpa, name, target)
		a := u.GetAnnotations()
		if cost != "" {
			a[informers.AnnotationCost] = cost
		}
		u.SetAnnotations(a)
		u.SetLabels(map[string]string{informers.LabelAccelerator: accelerator})
		return u
	}
	prices := map[string]int64{"A100": 40 * unit, "H100": 100 * unit, "gold": math.MaxInt64, "debt": -1}
	tests := []struct {
		name    string
		objects []*unstructured.Unstructured
		prices  map[string]int64
		want    []string // cost, source and problem of a and b; the pods of both request two cards
	}{
		{"all set it", list(priced("a", "x", "A100", "8.5"), priced("b", "w", "H100", "20")), prices, list("8500000 variantCost", "20000000 variantCost")},
		{"one does not", list(priced("a", "x", "A100", "8.5"), priced("b", "w", "H100", "")), prices, list("80000000 accelerator-unit-costs", "200000000 accelerator-unit-costs")},
		{"no prices", list(priced("a", "x", "A100", "8.5"), priced("b", "w", "H100", "")), nil, list("10000000 default", "10000000 default")},
		{"no known accelerator", list(priced("a", "x", "A200", "8.5"), priced("b", "w", "", "")), prices, list("10000000 default", "10000000 default")},
		{"one unknown accelerator", list(priced("a", "x", "A100", ""), priced("b", "w", "A200", "")), prices,
			list("80000000 accelerator-unit-costs", "10000000 accelerator-unit-costs UnknownAccelerator")},
		{"a price that is too high", list(priced("a", "x", "A100", ""), priced("b", "w", "gold", "")), prices,
			list("80000000 accelerator-unit-costs", "10000000 accelerator-unit-costs InvalidConfiguration")},
		{"a negative price", list(priced("a", "x", "A100", ""), priced("b", "w", "debt", "")), prices,
			list("80000000 accelerator-unit-costs", "10000000 accelerator-unit-costs InvalidConfiguration")},
		{"a broken cost does not concern the others", list(priced("a", "x", "A100", "8.5"), priced("b", "w", "A100", "NaN")), nil,
			list("8500000 variantCost", "10000000 variantCost InvalidConfiguration")},
		{"annotations have a default", list(annotated("a", "x", "", "2"), annotated("b", "w", "", "")), nil, list("2000000 variantCost", "10000000 variantCost")},
		{"prices come before it", list(annotated("a", "x", "A100", "2"), annotated("b", "w", "H100", "")), prices,
			list("80000000 accelerator-unit-costs", "200000000 accelerator-unit-costs")},
		{"two sources", list(annotated("a", "x", "", ""), priced("b", "w", "", "")), nil, list("10000000 default", "10000000 default")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := collect(t, sources.Params{Prices: tt.prices}, append(parse(t, deployments("x", "w")), tt.objects...)...)
			valid(t, got)
			require.Len(t, got.Groups, 1)
			var lines []string
			for i := range got.Groups[0].Variants {
				v := &got.Groups[0].Variants[i]
				lines = append(lines, fmt.Sprintf("%d %s%s", v.Cost, v.CostSource, remarks(v)))
			}
			assert.Equal(t, tt.want, lines)
		})
	}
}

func TestCostTexts(t *testing.T) {
	t.Parallel()
	tests := map[string]int64{ // -1: not a cost
		"0": 0, "10": 10_000_000, "10.0": 10_000_000, "0.0000005": 1, "0.0000004": 0, "00012.345678": 12_345_678, " 7 ": 7_000_000,
		"10000000": 1e13, "10000000.0000001": 1e13, "9999999.9999999": 1e13, "0000000000000000000000000001": 1_000_000,
		"10000000.000001": -1, "100000000000": -1, ".5": -1, "5.": -1, ".": -1, "1e3": -1, "+1": -1, "-1": -1, "1_0": -1, "1,5": -1, "0x1": -1, "Inf": -1, "1.2.3": -1, "٣": -1,
	}
	for text, want := range tests {
		u := object(t, hpa, "a", "x")
		u.SetAnnotations(map[string]string{informers.AnnotationManaged: "true", informers.AnnotationModel: "m", informers.AnnotationCost: text})
		got := collect(t, sources.Params{}, append(parse(t, deployments("x")), u)...).Groups[0].Variants[0]
		if want < 0 {
			assert.NotNil(t, got.Problem, text)
			continue
		}
		assert.Nil(t, got.Problem, text)
		assert.Equal(t, want, got.Cost, text)
	}
}

// TestScheduledCosts: what a schedule allows counts, as if it were always in force.
func TestScheduledCosts(t *testing.T) {
	t.Parallel()
	objects := parse(t, deployments("x", "w"))
	objects = append(objects, object(t, va, "a", "x", "spec|variantCost", `"5"`, "spec|maxReplicas", "7"))
	for i := range 30 {
		name := fmt.Sprintf("w%d", i)
		objects = append(objects, parse(t, deployments(name))...)
		objects = append(objects, object(t, va, name, name, "spec|variantCost", `"10000000"`, "spec|maxReplicas", "7",
			"spec|schedule", `[{cron: "0 9 * * *", duration: 1h, maxReplicas: 100000}, {cron: "0 9 * * *", duration: 1h, minReplicas: 3, maxReplicas: 9}]`))
	}
	got := collect(t, sources.Params{}, objects...)
	valid(t, got)
	all := got.Groups[0].Variants
	assert.Equal(t, 7, all[0].Max)
	assert.Empty(t, all[0].Notes)
	for i := range all[1:] {
		v := &all[1:][i]
		require.Len(t, v.Notes, 1)
		assert.Contains(t, v.Notes[0].Message, "100000 replicas cost more")
		assert.Equal(t, 7, v.Max, "no higher than asked")
		assert.Less(t, *v.Schedule[0].Max, 10_000)
		assert.Equal(t, 9, *v.Schedule[1].Max)
	}
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	three, eight := 3, 8
	text := `[{"cron": "0 9 * * 1-5", "timeZone": "Europe/Berlin", "duration": "8h", "minReplicas": 3, "maxReplicas": 8}]`
	want := []snapshot.Schedule{{Cron: "0 9 * * 1-5", TimeZone: "Europe/Berlin", Duration: 8 * time.Hour, Min: &three, Max: &eight}}
	annotation := "metadata|annotations|fairlead.dev~1schedule"
	for _, u := range []*unstructured.Unstructured{
		object(t, va, "a", "x", "spec|schedule", text),
		object(t, scaledObject, "a", "x", annotation, "'"+text+"'"),
		object(t, hpa, "a", "x", annotation, "'"+text+"'", "spec|maxReplicas", "10"),
	} {
		v := collect(t, sources.Params{}, append(parse(t, deployments("x")), u)...).Groups[0].Variants[0]
		assert.Nil(t, v.Problem)
		assert.Equal(t, want, v.Schedule, u.GetKind())
	}
}

// TestCostOfAll has more variants of the largest cost than the optimizer can add up, and some of usual costs.
func TestCostOfAll(t *testing.T) {
	t.Parallel()
	objects := []*unstructured.Unstructured{
		object(t, seedShape, "usual", "none"),
		object(t, hpa, "small", "none2", "spec|maxReplicas", "50", "metadata|annotations|llm-d.ai~1variant-cost", `"40000"`),
	}
	for i := range 1000 {
		u := object(t, va, fmt.Sprintf("dear-%04d", i), fmt.Sprint("none", i), "spec|variantCost", `"10000000"`, "spec|maxReplicas", "100000", "spec|modelID", "dear")
		switch i {
		case 0:
			unstructured.RemoveNestedField(u.Object, "spec", "maxReplicas")
		case 1:
			require.NoError(t, unstructured.SetNestedField(u.Object, int64(50_000), "spec", "minReplicas"))
		}
		u.SetNamespace("strangers")
		objects = append(objects, u)
	}
	got := collect(t, sources.Params{}, objects...)
	valid(t, got)
	lines := describe(got)
	assert.Equal(t, []string{
		"models//m hpa/small 1..50 40000000000 variantCost TargetNotFound",
		"models//meta/llama-3.1-8b va/usual 0..0 10500000 variantCost TargetNotFound",
		"strangers//dear va/dear-0000 1..199 10000000000000 variantCost TargetNotFound",
		"strangers//dear va/dear-0001 199..199 10000000000000 variantCost TargetNotFound note:LimitExceeded",
		"strangers//dear va/dear-0002 1..199 10000000000000 variantCost TargetNotFound note:LimitExceeded",
	}, lines[:5])
}

func TestCards(t *testing.T) {
	t.Parallel()
	const template = `
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: x}, spec: {template: {spec: {containers: [{name: server, resources: {requests: {%s}}}]}}}}`
	tests := []struct {
		requests, cards string
		want            int64
		problem         string
	}{
		{"nvidia.com/gpu: 8", "null", 8, ""},
		{"nvidia.com/gpu: 8", "4", 4, ""},
		{"cpu: 1", "null", 1, ""},
		{"amd.com/gpu: '1000000'", "null", 1_000_000, ""},
		{"amd.com/gpu: '1000001'", "null", 1, snapshot.InvalidConfiguration},
		{"amd.com/gpu: many", "null", 1, snapshot.InvalidConfiguration},
		{"amd.com/gpu: many", "2", 2, ""},
	}
	for _, tt := range tests {
		got := collect(t, sources.Params{}, append(parse(t, fmt.Sprintf(template, tt.requests)), object(t, va, "a", "x", "spec|acceleratorCount", tt.cards))...)
		v := got.Groups[0].Variants[0]
		assert.Equal(t, tt.want, v.Cards, tt)
		if tt.problem == "" {
			assert.Nil(t, v.Problem, tt)
			continue
		}
		require.NotNil(t, v.Problem, tt)
		assert.Equal(t, tt.problem, v.Problem.Reason)
	}
}

func TestAccelerators(t *testing.T) {
	t.Parallel()
	label := `{inference.optimization/acceleratorName: L40S}`
	annotations := `{llm-d.ai/managed: "true", llm-d.ai/model-id: m, inference.optimization/acceleratorName: H100}`
	tests := []struct {
		object *unstructured.Unstructured
		want   string
	}{
		{object(t, va, "a", "x"), ""},
		{object(t, va, "a", "x", "metadata|labels", label), "L40S"},
		{object(t, va, "a", "x", "metadata|labels", label, "spec|accelerator", "A100"), "A100"},
		{object(t, va, "a", "x", "metadata|annotations", annotations), ""},
		{object(t, hpa, "a", "x", "metadata|labels", label), "L40S"},
		{object(t, hpa, "a", "x", "metadata|annotations", annotations), "H100"},
		{object(t, hpa, "a", "x", "metadata|annotations", annotations, "metadata|labels", label), "L40S"},
		{object(t, scaledObject, "a", "x", "metadata|annotations", annotations), "H100"},
	}
	for _, tt := range tests {
		v := collect(t, sources.Params{}, append(parse(t, deployments("x")), tt.object)...).Groups[0].Variants[0]
		assert.Equal(t, tt.want, v.Accelerator)
		assert.Nil(t, v.Problem)
	}
}

func TestAnnotatedProfile(t *testing.T) {
	t.Parallel()
	u := object(t, hpa, "a", "x")
	a := u.GetAnnotations()
	a[informers.AnnotationProfile] = `{"perfParms": {"decodeParms": {"alpha": "1", "beta": " 2 "}, "prefillParms": {"gamma": "3", "delta": "4e-1"}}, "maxBatchSize": 64}`
	u.SetAnnotations(a)
	v := collect(t, sources.Params{}, append(parse(t, deployments("x")), u)...).Groups[0].Variants[0]
	assert.Nil(t, v.Problem)
	assert.Equal(t, &snapshot.Profile{Alpha: 1, Beta: 2, Gamma: 3, Delta: 0.4, MaxBatch: 64}, v.Profile)
}

func TestPools(t *testing.T) {
	t.Parallel()
	const (
		v1    = "\n- {apiVersion: inference.networking.k8s.io/v1, kind: InferencePool, metadata: {name: %s, namespace: %s}, spec: {selector: {matchLabels: %s}}}"
		alpha = "\n- {apiVersion: inference.networking.x-k8s.io/v1alpha2, kind: InferencePool, metadata: {name: %s, namespace: %s}, spec: {selector: %s}}"
	)
	tests := []struct {
		name, pools, want string
	}{
		{"none", "", "models//m va/a 1..0 10000000 default"},
		{"one", fmt.Sprintf(v1, "p", "models", "{app: x}"), "models/p/m va/a 1..0 10000000 default"},
		{"one of the older API", fmt.Sprintf(alpha, "p", "models", "{app: x}"), "models/p/m va/a 1..0 10000000 default"},
		{"the same in both", fmt.Sprintf(v1, "p", "models", "{app: x}") + fmt.Sprintf(alpha, "p", "models", "{app: x}"), "models/p/m va/a 1..0 10000000 default"},
		{"other namespace", fmt.Sprintf(v1, "p", "other", "{app: x}"), "models//m va/a 1..0 10000000 default"},
		{"other pods", fmt.Sprintf(v1, "p", "models", "{app: w}"), "models//m va/a 1..0 10000000 default"},
		{"more labels", fmt.Sprintf(v1, "p", "models", "{app: x, tier: z}"), "models//m va/a 1..0 10000000 default"},
		{"no selector", fmt.Sprintf(v1, "p", "models", "{}"), "models//m va/a 1..0 10000000 default"},
		{"broken selector", fmt.Sprintf(v1, "p", "models", "{app: x, tier: 7}"), "models//m va/a 1..0 10000000 default"},
		{"the oldest of several", fmt.Sprintf(v1, "q", "models", "{app: x}") + fmt.Sprintf(v1, "p", "models", "{app: x}"),
			"models/q/m va/a 1..0 10000000 default note:SeveralPools"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := collect(t, sources.Params{}, append(parse(t, tt.pools+deployments("x")), object(t, va, "a", "x"))...)
			assert.Equal(t, []string{tt.want}, describe(got))
		})
	}
}

func TestGroupsAndTheirOrder(t *testing.T) {
	t.Parallel()
	objects := append(parse(t, deployments("x", "v", "z", "w")+`
- {apiVersion: inference.networking.k8s.io/v1, kind: InferencePool, metadata: {name: p}, spec: {selector: {matchLabels: {app: w}}}}`),
		object(t, va, "d", "x"), object(t, hpa, "c", "v"), object(t, va, "b", "z", "spec|modelID", "l"), object(t, va, "a", "w"), object(t, va, "a", "x", "metadata|namespace", "a"))
	assert.Equal(t, []string{
		"a//m va/a 1..0 10000000 default TargetNotFound",
		"models//l va/b 1..0 10000000 default",
		"models//m hpa/c 1..4 10000000 default",
		"models//m va/d 1..0 10000000 default",
		"models/p/m va/a 1..0 10000000 default",
	}, describe(collect(t, sources.Params{}, objects...)))
}

func TestGroupWithoutActiveVariants(t *testing.T) {
	t.Parallel()
	got := collect(t, sources.Params{}, append(parse(t, deployments("x")), object(t, va, "a", "x"), object(t, va, "b", "none"), object(t, va, "c", "none2", "spec|modelID", "l"))...)
	require.Len(t, got.Groups, 2)
	require.Len(t, got.Groups[0].Variants, 1)
	assert.NotNil(t, got.Groups[0].Variants[0].Problem, "the group stays, without a variant in the choice")
	assert.Nil(t, got.Groups[1].Variants[0].Problem)
}

func TestClasses(t *testing.T) {
	t.Parallel()
	class := func(name, target, key string, age int) *unstructured.Unstructured {
		return object(t, va, name, target, "spec|sloClassRef", key, "metadata|creationTimestamp", created(age).Format(`"`+time.RFC3339+`"`))
	}
	premium := informers.ClassRef{Name: "classes", Key: "premium"}
	tests := []struct {
		name    string
		objects []*unstructured.Unstructured
		class   informers.ClassRef
		invalid string
	}{
		{"none", list(class("a", "x", "null", 1), class("b", "w", "null", 2)), informers.ClassRef{}, ""},
		{"one", list(class("a", "x", "null", 1), class("b", "w", "{name: classes, key: premium}", 2)), premium, ""},
		{"the same", list(class("a", "x", "{name: classes, key: premium}", 1), class("b", "w", "{name: classes, key: premium}", 2)), premium, ""},
		{"another one", list(class("a", "x", "{name: classes, key: freemium}", 2), class("b", "w", "{name: classes, key: premium}", 1)), premium, "a"},
		{"a variant with a problem does not decide", list(class("a", "none", "{name: classes, key: freemium}", 1), class("b", "w", "{name: classes, key: premium}", 2)), premium, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := collect(t, sources.Params{}, append(parse(t, deployments("x", "w")), tt.objects...)...)
			require.Len(t, got.Groups, 1)
			assert.Equal(t, tt.class, got.Groups[0].Class)
			var invalid []string
			for i := range got.Groups[0].Variants {
				if v := &got.Groups[0].Variants[i]; v.Problem != nil && v.Problem.Reason == snapshot.InvalidConfiguration {
					invalid = append(invalid, v.Name)
				}
			}
			assert.Equal(t, tt.invalid, strings.Join(invalid, " "))
		})
	}
}

// TestManyOfEverything has a namespace full of variants and pools, of which a pass must not become slow, and another namespace.
func TestManyOfEverything(t *testing.T) {
	t.Parallel()
	objects := append(parse(t, deployments("x")), object(t, va, "a", "x"))
	all := testlane.Repetitions(2*settings.DefaultMaxVariants, 10_000)
	for i := range all {
		n := fmt.Sprintf("n%05d", i)
		u := object(t, hpa, n, n)
		complete(u, i)
		u.SetNamespace("strangers")
		objects = append(objects, u)
	}
	got := collect(t, sources.Params{}, objects...)
	valid(t, got)
	assert.Len(t, got.Rejected, all-settings.DefaultMaxVariants)
	assert.Equal(t, snapshot.LimitExceeded, got.Rejected[0].Problem.Reason)
	require.Len(t, got.Groups, 2)
	assert.Nil(t, got.Groups[0].Variants[0].Problem)
	assert.Len(t, got.Groups[1].Variants, settings.DefaultMaxVariants)
}
