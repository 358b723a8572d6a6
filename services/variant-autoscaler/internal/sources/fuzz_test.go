package sources_test

import (
	"encoding/json"
	"testing"

	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

// FuzzCollect writes anything into the specs, annotations and targets of three objects beside an ordinary one. The optimizer must accept
// what comes of them, and the ordinary one must not notice.
func FuzzCollect(f *testing.F) {
	for _, seed := range [][3]string{
		{`{}`, `10.5`, `m`},
		{`{"minReplicas": 1, "maxReplicas": 1000000000, "variantCost": "10000000", "modelID": "m", "acceleratorCount": 1000000}`, `1e30`, ``},
		{`{"minReplicas": 99999, "variantCost": "9999999.99", "modelID": "m"}`, `10000000`, `meta/llama`},
		{`{"scaleTargetRef": {"kind": "Deployment", "name": "w"}, "minReplicas": -1}`, `NaN`, "a\nb"},
		{`{"scaleTargetRef": {"name": "w"}, "minReplicaCount": 3, "idleReplicaCount": -3, "maxReplicaCount": 2147483647}`, `-0`, `m`},
		{`{"scaleTargetRef": [], "variantProfile": {"perfParms": 7}, "maxReplicas": 1e300}`, `0`, `m`},
		{`{"minReplicas": 2, "maxReplicas": 8, "variantCost": "10000000", "modelID": "m", "schedule": [{"cron": "0 9 * * *", "duration": "1h", "maxReplicas": 100000}]}`, `10000000`,
			`[{"cron": "0 9 * * *", "duration": "1h", "minReplicas": 2, "maxReplicas": 8}]`},
		{`{"replicas": 1000000000, "template": {"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1e-9999999"}}}]}}}`, `1`, `m`},
	} {
		f.Add(seed[0], seed[1], seed[2], uint16(1))
	}
	f.Fuzz(func(t *testing.T, text, cost, model string, copies uint16) {
		var spec map[string]any
		if json.Unmarshal([]byte(text), &spec) != nil {
			t.Skip()
		}
		objects := parse(t, deployments("x"))
		ordinary := object(t, va, "a", "x", "spec|variantCost", `"5"`)
		ordinary.SetNamespace("models")
		objects = append(objects, ordinary)
		for i, manifest := range []string{va, scaledObject, hpa, deployments("%[2]s")} {
			for n := range min(int(copies), 20) + 1 {
				u := parse(t, deployments("x"))[0]
				if i < 3 {
					u = object(t, manifest, "b", "w")
				}
				u.SetName(string(rune('b'+n)) + "-" + u.GetKind()[:1])
				u.SetNamespace("strangers")
				u.SetAnnotations(map[string]string{informers.AnnotationManaged: "true", informers.AnnotationModel: model, informers.AnnotationCost: cost, informers.AnnotationProfile: text, informers.AnnotationSchedule: model})
				u.Object["spec"], u.Object["status"] = spec, spec
				if i == 3 {
					u.SetName("w")
				}
				objects = append(objects, normalize(t, u))
			}
		}
		for _, writes := range []bool{false, true} {
			got := collect(t, sources.Params{PerNamespace: func(string) int { return 30 }, Prices: map[string]int64{"": 1e13}, Writes: writes}, objects...)
			valid(t, got)
			first := got.Groups[0].Variants[0]
			if first.Name != "a" || first.Problem != nil || first.Cost != 5_000_000 || first.Max != 0 && first.Max < 100_000 {
				t.Fatalf("the ordinary variant became %+v, %+v", first.Variant, first.Problem)
			}
		}
	})
}
