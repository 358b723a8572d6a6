package sources_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

// read returns an object as informers have it, nil for nil.
func read(tb testing.TB, kind kit.Kind, u *unstructured.Unstructured) any {
	tb.Helper()
	if u == nil {
		return nil
	}
	obj, err := kind.Transform(u)
	require.NoError(tb, err)
	return obj
}

// kindOf returns the kind of a resource, in its preferred version.
func kindOf(groupResource string) kit.Kind {
	kinds := informers.Declare("").EnabledKinds()
	return kinds[slices.IndexFunc(kinds, func(k kit.Kind) bool { return k.Resource.GroupResource().String() == groupResource })]
}

func TestRelevant(t *testing.T) {
	t.Parallel()
	type u = *unstructured.Unstructured
	changed := func(manifest string, set ...string) u { return object(t, manifest, "a", "x", set...) }
	excluded := list("metadata|annotations|wva.llmd.ai~1exclude", `"true"`)
	tests := []struct {
		name          string
		kind          kit.Kind
		before, after u
		want          bool
	}{
		{"VariantAutoscaling created", kindOf("variantautoscalings.llmd.ai"), nil, changed(seedShape), true},
		{"deleted", kindOf("variantautoscalings.llmd.ai"), changed(seedShape), nil, false},
		{"synced again", kindOf("variantautoscalings.llmd.ai"), changed(seedShape), changed(seedShape), false},
		{"spec", kindOf("variantautoscalings.llmd.ai"), changed(seedShape), changed(seedShape, "metadata|generation", "8"), true},
		{"status", kindOf("variantautoscalings.llmd.ai"), changed(seedShape), changed(seedShape, "status", "{}", "metadata|resourceVersion", `"43"`), false},
		{"label", kindOf("variantautoscalings.llmd.ai"), changed(seedShape), changed(seedShape, "metadata|labels", "{a: b}"), false},
		{"being deleted", kindOf("variantautoscalings.llmd.ai"), changed(seedShape),
			changed(seedShape, "metadata|generation", "8", "metadata|deletionTimestamp", `"2026-11-01T12:00:00Z"`), false},
		{"force-reconcile", kindOf("variantautoscalings.llmd.ai"), changed(seedShape), changed(seedShape, "metadata|annotations", `{force-reconcile: "1"}`), true},
		{"force-reconcile, again", kindOf("variantautoscalings.llmd.ai"), changed(seedShape, "metadata|annotations", `{force-reconcile: "1"}`),
			changed(seedShape, "metadata|annotations", `{force-reconcile: "2"}`), true},
		{"another annotation", kindOf("variantautoscalings.llmd.ai"), changed(seedShape, "metadata|annotations", `{force-reconcile: "1"}`),
			changed(seedShape, "metadata|annotations", `{force-reconcile: "1", a: b}`), false},
		{"excluded", kindOf("variantautoscalings.llmd.ai"), changed(seedShape), changed(seedShape, excluded...), false},
		{"no longer excluded", kindOf("variantautoscalings.llmd.ai"), changed(seedShape, excluded...), changed(seedShape), true},
		{"of this installation now", kindOf("variantautoscalings.llmd.ai"), changed(seedShape, "metadata|labels", "{wva.llmd.ai/controller-instance: b}"), changed(seedShape), true},
		{"replaced", kindOf("variantautoscalings.llmd.ai"), changed(seedShape), changed(seedShape, "metadata|uid", "other"), true},

		{"HorizontalPodAutoscaler created", kindOf("horizontalpodautoscalers.autoscaling"), nil, changed(hpa), true},
		{"created without annotations", kindOf("horizontalpodautoscalers.autoscaling"), nil, changed(hpa, "metadata|annotations", "null"), false},
		{"deleted", kindOf("horizontalpodautoscalers.autoscaling"), changed(hpa), nil, false},
		{"status", kindOf("horizontalpodautoscalers.autoscaling"), changed(hpa), changed(hpa, "status", "{desiredReplicas: 7}", "metadata|generation", "2"), false},
		{"metrics", kindOf("horizontalpodautoscalers.autoscaling"), changed(hpa), changed(hpa, "spec|metrics",
			"[{type: External, external: {metric: {name: wva_desired_replicas}, target: {type: Value}}}]"), false},
		{"other annotation", kindOf("horizontalpodautoscalers.autoscaling"), changed(hpa), changed(hpa, "metadata|annotations|force-reconcile", "x"), false},
		{"model", kindOf("horizontalpodautoscalers.autoscaling"), changed(hpa), changed(hpa, "metadata|annotations|llm-d.ai~1model-id", "other"), true},
		{"cost", kindOf("horizontalpodautoscalers.autoscaling"), changed(hpa), changed(hpa, "metadata|annotations|llm-d.ai~1variant-cost", `"1"`), true},
		{"accelerator", kindOf("horizontalpodautoscalers.autoscaling"), changed(hpa), changed(hpa, "metadata|labels", "{inference.optimization/acceleratorName: A100}"), true},
		{"minimum", kindOf("horizontalpodautoscalers.autoscaling"), changed(hpa), changed(hpa, "spec|minReplicas", "1"), true},
		{"maximum", kindOf("horizontalpodautoscalers.autoscaling"), changed(hpa), changed(hpa, "spec|maxReplicas", "5"), true},
		{"target", kindOf("horizontalpodautoscalers.autoscaling"), changed(hpa), changed(hpa, "spec|scaleTargetRef|name", "w"), true},
		{"schedule", kindOf("horizontalpodautoscalers.autoscaling"), changed(hpa), changed(hpa, "metadata|annotations|fairlead.dev~1schedule",
			`'[{"cron": "0 9 * * *", "duration": "1h", "maxReplicas": 3}]'`), true},
		{"annotated", kindOf("horizontalpodautoscalers.autoscaling"), changed(hpa, "metadata|annotations", "null"), changed(hpa), true},
		{"no longer annotated", kindOf("horizontalpodautoscalers.autoscaling"), changed(hpa), changed(hpa, "metadata|annotations", "null"), false},
		{"never annotated", kindOf("horizontalpodautoscalers.autoscaling"), changed(hpa, "metadata|annotations", "null"), changed(hpa, "metadata|annotations", "null", "spec|maxReplicas", "5"), false},

		{"ScaledObject created", kindOf("scaledobjects.keda.sh"), nil, changed(scaledObject), true},
		{"idle replicas", kindOf("scaledobjects.keda.sh"), changed(scaledObject), changed(scaledObject, "spec|idleReplicaCount", "0"), true},
		{"triggers", kindOf("scaledobjects.keda.sh"), changed(scaledObject), changed(scaledObject, "spec|triggers", "[{type: cpu}]"), false},
		{"paused", kindOf("scaledobjects.keda.sh"), changed(scaledObject), changed(scaledObject, "metadata|annotations|autoscaling.keda.sh~1paused", `"true"`), true},
		{"profile", kindOf("scaledobjects.keda.sh"), changed(scaledObject), changed(scaledObject, "metadata|annotations|fairlead.dev~1variant-profile", `'{"maxBatchSize": 4}'`), true},

		{"Namespace created", kindOf("namespaces"), nil, changed(namespace), false},
		{"excluded", kindOf("namespaces"), changed(namespace), changed(namespace, "metadata|annotations", `{wva.llmd.ai/exclude: "true"}`), false},
		{"no longer excluded", kindOf("namespaces"), changed(namespace, "metadata|annotations", `{wva.llmd.ai/exclude: "true"}`), changed(namespace), true},
		{"Deployment", kindOf("deployments.apps"), nil, parse(t, deployments("x"))[0], false},
		{"Pod", kindOf("pods"), nil, changed("[{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}}]"), false},
	}
	for _, tt := range tests {
		t.Run(tt.kind.Name+" "+tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, sources.IsRelevant(read(t, tt.kind, tt.before), read(t, tt.kind, tt.after)))
		})
	}
	assert.False(t, sources.IsRelevant(nil, cache.DeletedFinalStateUnknown{}))
}

const namespace = "[{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {team: %s}}}]"
