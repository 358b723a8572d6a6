package settings

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSelect(t *testing.T) {
	t.Parallel()
	const plain, released, other = "service-classes-config", "wva-service-classes-config", "other-service-classes-config"
	several := "ignored, as several ConfigMaps of this kind exist: " + other + ", " + released + "; name one by --config-map=classes=NAME, or delete the others"
	const inForce = "ignored, as ConfigMap service-classes-config is in force: delete one of them, or name one by --config-map=classes=NAME"
	const elsewhere = "ignored: give models their targets as slo-ttft and slo-tpot in a ConfigMap service-classes-config"
	tests := []struct {
		name  string
		kind  Kind
		named string
		exist []string
		want  Selection
	}{
		{name: "none", kind: Classes, exist: []string{"kube-root-ca.crt", "service-classes-config-old", "-service-classes-config"}},
		{name: "plain", kind: Classes, exist: []string{plain}, want: Selection{InForce: []string{plain}}},
		{name: "with the name of a release", kind: Classes, exist: []string{"a", released}, want: Selection{InForce: []string{released}}},
		{name: "of two releases", kind: Classes, exist: []string{released, other}, want: Selection{Ignored: map[string]string{other: several, released: several}}},
		{name: "classes add up", kind: Classes, exist: []string{plain, released}, want: Selection{InForce: []string{plain, released}}},
		{
			name: "two releases beside the plain name", kind: Classes, exist: []string{plain, released, other},
			want: Selection{
				InForce: []string{plain}, Ignored: map[string]string{other: inForce, released: inForce},
			},
		},
		{
			name: "prices do not", kind: Accelerators, exist: []string{"x-accelerator-unit-costs", "accelerator-unit-costs"},
			want: Selection{
				InForce: []string{"accelerator-unit-costs"}, Ignored: map[string]string{
					"x-accelerator-unit-costs": "ignored, as ConfigMap accelerator-unit-costs is in force: delete one of them, or name one by --config-map=accelerators=NAME",
				},
			},
		},
		{name: "thresholds of 0.5.0", kind: Saturation, exist: []string{"x-saturation-scaling-config"}, want: Selection{InForce: []string{"x-saturation-scaling-config"}}},
		{name: "thresholds of 0.5.1", kind: Saturation, exist: []string{"x-wva-saturation-scaling-config"}, want: Selection{InForce: []string{"x-wva-saturation-scaling-config"}}},
		{name: "a name that is plain and ends as others", kind: Zero, exist: []string{"wva-model-scale-to-zero-config"}, want: Selection{InForce: []string{"wva-model-scale-to-zero-config"}}},
		{name: "configuration of any release", kind: Optimization, exist: []string{"x-variantautoscaling-config"}, want: Selection{InForce: []string{"x-variantautoscaling-config"}}},
		{name: "configuration of 0.8", kind: Optimization, exist: []string{"wva-manager-config", "other-controller-manager-config"}, want: Selection{InForce: []string{"wva-manager-config"}}},
		{
			name: "targets of the queueing model of 0.6", kind: Classes, exist: []string{"wva-queueing-model-config", "x-wva-queueing-model-config", released},
			want: Selection{InForce: []string{released}, Ignored: map[string]string{"wva-queueing-model-config": elsewhere, "x-wva-queueing-model-config": elsewhere}},
		},
		{name: "limits are of this program alone", kind: Limits, exist: []string{"x-variant-autoscaler-limits"}},
		{name: "named", kind: Classes, named: other, exist: []string{plain, released, other}, want: Selection{InForce: []string{other}}},
		{name: "named, and absent", kind: Classes, named: "mine", exist: []string{plain, released}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := Options{}
			if tt.named != "" {
				o.Names = map[Kind]string{tt.kind: tt.named}
			}
			got := o.Select(tt.kind, tt.exist)
			assert.Equal(t, tt.want, Selection{InForce: append([]string(nil), got.InForce...), Ignored: got.Ignored})
			for _, name := range slices.AppendSeq(got.InForce, maps.Keys(got.Ignored)) {
				assert.True(t, o.IsRelevant(name), name)
			}
		})
	}
	assert.False(t, Options{}.IsRelevant("kube-root-ca.crt"))
}

func TestLooked(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"service-classes-config", "*-service-classes-config"}, Options{}.SearchNames(Classes))
	assert.Equal(t, []string{"wva-saturation-scaling-config", "saturation-scaling-config", "capacity-scaling-config",
		"*-saturation-scaling-config", "*-capacity-scaling-config"}, Options{}.SearchNames(Saturation))
	assert.Equal(t, []string{"variant-autoscaler-limits"}, Options{}.SearchNames(Limits))
	assert.Equal(t, []string{"mine"}, Options{Names: map[Kind]string{Classes: "mine"}}.SearchNames(Classes))
}

// TestClassesOfTwoConfigMaps: a model that both list with other targets has the stricter ones, and its variants learn of both.
func TestClassesOfTwoConfigMaps(t *testing.T) {
	t.Parallel()
	of := func(ours, theirs string) (*Settings, []Warning) {
		b := NewBuilder(Options{})
		w := b.SetSources(Classes, Source{Name: "service-classes-config", Data: map[string]string{"default.yaml": "data: [" + ours + "]"}},
			Source{Name: "wva-service-classes-config", Data: map[string]string{"default.yaml": "data: [" + theirs + "]"}})
		return b.Settings(), w
	}
	for _, model := range []string{"default/default", "m"} {
		s, w := of("{model: "+model+", slo-ttft: 2000}", "{model: "+model+", slo-ttft: 500}")
		require.Len(t, w, 1)
		for _, key := range []string{"", "default.yaml"} {
			class, problem := s.Class("a", "m", key)
			require.Nil(t, problem, model)
			assert.InDelta(t, 500, class.Targets.TTFT, 0)
			assert.Contains(t, class.Note, `service classes "service-classes-config/default.yaml" and "wva-service-classes-config/default.yaml" disagree about model "`+model+`"`)
		}
	}
	s, w := of("{model: default/default, slo-ttft: 2000}", "{model: m, slo-ttft: 500}, {model: default/default, slo-ttft: 2000}")
	require.Empty(t, w, "both say the same")
	class, problem := s.Class("a", "m", "")
	require.Nil(t, problem)
	assert.InDelta(t, 500, class.Targets.TTFT, 0)
	class, problem = s.Class("a", "other", "")
	require.Nil(t, problem)
	assert.InDelta(t, 2000, class.Targets.TTFT, 0)
}
