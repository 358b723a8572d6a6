package sources_test

import (
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

func TestRelevant(t *testing.T) {
	t.Parallel()
	kinds := informers.Kinds("")
	type u = *unstructured.Unstructured
	changed := func(manifest string, set ...string) u { return object(t, manifest, "a", "x", set...) }
	excluded := list("metadata|annotations|wva.llmd.ai~1exclude", `"true"`)
	tests := []struct {
		name          string
		kind          kit.Kind
		before, after u
		want          bool
	}{
		{"VariantAutoscaling created", kinds.VariantAutoscalings, nil, changed(seedShape), true},
		{"deleted", kinds.VariantAutoscalings, changed(seedShape), nil, false},
		{"synced again", kinds.VariantAutoscalings, changed(seedShape), changed(seedShape), false},
		{"spec", kinds.VariantAutoscalings, changed(seedShape), changed(seedShape, "metadata|generation", "8"), true},
		{"status", kinds.VariantAutoscalings, changed(seedShape), changed(seedShape, "status", "{}", "metadata|resourceVersion", `"43"`), false},
		{"label", kinds.VariantAutoscalings, changed(seedShape), changed(seedShape, "metadata|labels", "{a: b}"), false},
		{"being deleted", kinds.VariantAutoscalings, changed(seedShape),
			changed(seedShape, "metadata|generation", "8", "metadata|deletionTimestamp", `"2026-11-01T12:00:00Z"`), false},
		{"force-reconcile", kinds.VariantAutoscalings, changed(seedShape), changed(seedShape, "metadata|annotations", `{force-reconcile: "1"}`), true},
		{"force-reconcile, again", kinds.VariantAutoscalings, changed(seedShape, "metadata|annotations", `{force-reconcile: "1"}`),
			changed(seedShape, "metadata|annotations", `{force-reconcile: "2"}`), true},
		{"another annotation", kinds.VariantAutoscalings, changed(seedShape, "metadata|annotations", `{force-reconcile: "1"}`),
			changed(seedShape, "metadata|annotations", `{force-reconcile: "1", a: b}`), false},
		{"excluded", kinds.VariantAutoscalings, changed(seedShape), changed(seedShape, excluded...), false},
		{"no longer excluded", kinds.VariantAutoscalings, changed(seedShape, excluded...), changed(seedShape), true},
		{"of this installation now", kinds.VariantAutoscalings, changed(seedShape, "metadata|labels", "{wva.llmd.ai/controller-instance: b}"), changed(seedShape), true},
		{"replaced", kinds.VariantAutoscalings, changed(seedShape), changed(seedShape, "metadata|uid", "other"), true},

		{"HorizontalPodAutoscaler created", kinds.HorizontalPodAutoscalers, nil, changed(hpa), true},
		{"created without annotations", kinds.HorizontalPodAutoscalers, nil, changed(hpa, "metadata|annotations", "null"), false},
		{"deleted", kinds.HorizontalPodAutoscalers, changed(hpa), nil, false},
		{"status", kinds.HorizontalPodAutoscalers, changed(hpa), changed(hpa, "status", "{desiredReplicas: 7}", "metadata|generation", "2"), false},
		{"metrics", kinds.HorizontalPodAutoscalers, changed(hpa), changed(hpa, "spec|metrics",
			"[{type: External, external: {metric: {name: wva_desired_replicas}, target: {type: Value}}}]"), false},
		{"other annotation", kinds.HorizontalPodAutoscalers, changed(hpa), changed(hpa, "metadata|annotations|force-reconcile", "x"), false},
		{"model", kinds.HorizontalPodAutoscalers, changed(hpa), changed(hpa, "metadata|annotations|llm-d.ai~1model-id", "other"), true},
		{"cost", kinds.HorizontalPodAutoscalers, changed(hpa), changed(hpa, "metadata|annotations|llm-d.ai~1variant-cost", `"1"`), true},
		{"accelerator", kinds.HorizontalPodAutoscalers, changed(hpa), changed(hpa, "metadata|labels", "{inference.optimization/acceleratorName: A100}"), true},
		{"minimum", kinds.HorizontalPodAutoscalers, changed(hpa), changed(hpa, "spec|minReplicas", "1"), true},
		{"maximum", kinds.HorizontalPodAutoscalers, changed(hpa), changed(hpa, "spec|maxReplicas", "5"), true},
		{"target", kinds.HorizontalPodAutoscalers, changed(hpa), changed(hpa, "spec|scaleTargetRef|name", "w"), true},
		{"schedule", kinds.HorizontalPodAutoscalers, changed(hpa), changed(hpa, "metadata|annotations|fairlead.dev~1schedule",
			`'[{"cron": "0 9 * * *", "duration": "1h", "maxReplicas": 3}]'`), true},
		{"annotated", kinds.HorizontalPodAutoscalers, changed(hpa, "metadata|annotations", "null"), changed(hpa), true},
		{"no longer annotated", kinds.HorizontalPodAutoscalers, changed(hpa), changed(hpa, "metadata|annotations", "null"), false},
		{"never annotated", kinds.HorizontalPodAutoscalers, changed(hpa, "metadata|annotations", "null"), changed(hpa, "metadata|annotations", "null", "spec|maxReplicas", "5"), false},

		{"ScaledObject created", kinds.ScaledObjects, nil, changed(scaledObject), true},
		{"idle replicas", kinds.ScaledObjects, changed(scaledObject), changed(scaledObject, "spec|idleReplicaCount", "0"), true},
		{"triggers", kinds.ScaledObjects, changed(scaledObject), changed(scaledObject, "spec|triggers", "[{type: cpu}]"), false},
		{"paused", kinds.ScaledObjects, changed(scaledObject), changed(scaledObject, "metadata|annotations|autoscaling.keda.sh~1paused", `"true"`), true},
		{"profile", kinds.ScaledObjects, changed(scaledObject), changed(scaledObject, "metadata|annotations|fairlead.dev~1variant-profile", `'{"maxBatchSize": 4}'`), true},

		{"Namespace created", kinds.Namespaces, nil, changed(namespace), false},
		{"excluded", kinds.Namespaces, changed(namespace), changed(namespace, "metadata|annotations", `{wva.llmd.ai/exclude: "true"}`), false},
		{"no longer excluded", kinds.Namespaces, changed(namespace, "metadata|annotations", `{wva.llmd.ai/exclude: "true"}`), changed(namespace), true},
		{"Deployment", kinds.Deployments, nil, parse(t, deployments("x"))[0], false},
		{"Pod", kinds.Pods, nil, changed("[{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}}]"), false},
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
