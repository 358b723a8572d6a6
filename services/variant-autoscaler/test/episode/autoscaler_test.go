package episode

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strconv"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/variant-autoscaler/internal/collect"
	"fairlead.dev/services/variant-autoscaler/internal/config"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/pass"
	"fairlead.dev/services/variant-autoscaler/internal/promclient"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// startTime is the start of the simulated time.
var startTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// autoscaler runs this service's own passes with its default flags. Nothing tells it what a replica serves.
type autoscaler struct {
	*pass.Passes

	world     *world
	caches    informers.Caches
	collector pass.Collector
	settings  *settings.Settings
	next      float64
	decided   []int // of the last pass
	scraped   []int // of the metric, that Prometheus has
	hpas      []hpa
	keda      *keda // nil: HorizontalPodAutoscalers act
	trace     func(o *pass.Outcome, now float64)
}

// Options change what a run of this service has otherwise by default.
type Options struct {
	HPAWindow float64 // stabilization of the HorizontalPodAutoscaler
	Configure func(c *config.Config)
	// Knows makes it a plan that knows the load: at each pass the largest rate until a replica that starts now would serve. What a replica
	// serves, it learns as usual.
	Knows bool
	// Retention makes it scale models to zero after this time without requests, with KEDA.
	Retention time.Duration
	Trace     func(o *pass.Outcome, now float64)
}

// NewFairlead returns this service with its default flags, and the HorizontalPodAutoscalers of its examples, on Kubernetes before 1.35:
// without a tolerance of their own.
func NewFairlead(o Options) func(s *Scenario) scaler {
	return func(s *Scenario) scaler {
		a := &autoscaler{next: float64(s.Seed * 17 % 60), trace: o.Trace} // passes and changes of the load have any distance
		builder := settings.NewBuilder(settings.Options{Namespace: "ns"})
		builder.SetSources(settings.Classes, settings.Source{Name: "service-classes-config", Data: map[string]string{
			"premium.yaml": fmt.Sprintf("name: Premium\npriority: 1\ndata:\n- {model: default/default, slo-tpot: %g, slo-ttft: %g}\n", s.TPOT*1e3, s.TTFT*1e3),
		}})
		if o.Retention > 0 {
			builder.SetSources(settings.Zero, settings.Source{Name: "z", Data: map[string]string{
				"__defaults__": fmt.Sprintf("enableScaleToZero: true\nretentionPeriod: %s", o.Retention),
			}})
			a.keda = newKEDA(a)
		}
		a.settings = builder.Settings()
		c := config.Default(func(string) string { return "" })
		if o.Configure != nil {
			o.Configure(c)
		}
		a.collector = collect.New(a, collect.Options{Window: c.Metrics, Concurrency: 1})
		if o.Knows {
			a.collector, c.Metrics = &knowingCollector{Collector: a.collector, scenario: s}, 0 // known rates have no noise to average
		}
		for range s.Variants {
			a.hpas = append(a.hpas, hpa{tolerance: 0.1, window: o.HPAWindow})
		}
		p := pass.Params{
			Options: pass.Options{Settings: c.Plan, Window: c.Window, Forecast: c.Forecast, Rates: c.Metrics}, Log: zap.NewNop(),
			World: informers.Caches{
				VariantAutoscalings:      &view{a: a, pick: func(c *informers.Caches) kit.Reader { return c.VariantAutoscalings }},
				HorizontalPodAutoscalers: &view{a: a, pick: func(c *informers.Caches) kit.Reader { return c.HorizontalPodAutoscalers }},
				ScaledObjects:            &view{a: a, pick: func(c *informers.Caches) kit.Reader { return c.ScaledObjects }},
				Deployments:              &view{a: a, pick: func(c *informers.Caches) kit.Reader { return c.Deployments }},
				StatefulSets:             &view{a: a, pick: func(c *informers.Caches) kit.Reader { return c.StatefulSets }},
				LeaderWorkerSets:         &view{a: a, pick: func(c *informers.Caches) kit.Reader { return c.LeaderWorkerSets }},
				Pods:                     &view{a: a, pick: func(c *informers.Caches) kit.Reader { return c.Pods }},
				InferencePools:           &view{a: a, pick: func(c *informers.Caches) kit.Reader { return c.InferencePools }},
				AlphaInferencePools:      &view{a: a, pick: func(c *informers.Caches) kit.Reader { return c.AlphaInferencePools }},
				Namespaces:               &view{a: a, pick: func(c *informers.Caches) kit.Reader { return c.Namespaces }},
			},
			Configuration: a.Settings, Prometheus: a.Collector, Publisher: a, ObservePart: a.ObservePart,
			Now: func() time.Time { return a.currentTime() },
		}
		if a.keda != nil {
			p.Waits = a.keda
		}
		if a.Passes = pass.New(p); a.keda != nil {
			return a.keda
		}
		return a
	}
}

// knowingCollector is a collector that knows the rates to come.
type knowingCollector struct {
	pass.Collector

	scenario *Scenario
}

func (k *knowingCollector) Collect(ctx context.Context, now time.Time, groups []collect.Group) []collect.Result {
	results := k.Collector.Collect(ctx, now, groups)
	soonest := math.Inf(1)
	for i := range k.scenario.Variants {
		soonest = min(soonest, k.scenario.Variants[i].Start)
	}
	at := now.Sub(startTime).Seconds()
	for i := range results {
		if l := &results[i].Load; l.State == snapshot.Found {
			l.Rate = int64(k.scenario.largestRate(groups[i].Model, at, at+soonest) * 1e6) // micro-requests
		}
	}
	return results
}

// view is the present cache of a kind.
type view struct {
	kit.Informer // has no events

	a    *autoscaler
	pick func(c *informers.Caches) kit.Reader
}

func (v *view) Get(name cache.ObjectName) (any, bool) { return v.pick(&v.a.caches).Get(name) }
func (v *view) List() []any                           { return v.pick(&v.a.caches).List() }
func (v *view) ByIndex(index, value string) []any     { return v.pick(&v.a.caches).ByIndex(index, value) }
func (v *view) Listed() bool                          { return v.pick(&v.a.caches).Listed() }

func (a *autoscaler) currentTime() time.Time {
	if a.world == nil {
		return startTime
	}
	return startTime.Add(time.Duration(a.world.now * float64(time.Second)))
}

func (a *autoscaler) stepSecond(w *world) {
	a.world = w
	if w.now >= a.next {
		a.doPass()
	}
	if a.keda != nil {
		return
	}
	second := int(w.now)
	if second%scrapeEvery == 0 {
		a.scraped = a.decided
	}
	if second%hpaEvery == 7 && a.scraped != nil { // between two scrapes
		for i, d := range w.deployments {
			a.hpas[i].syncReplicas(d, w.now, float64(a.scraped[i]))
		}
	}
}

// doPass runs a pass on the present objects of the cluster.
func (a *autoscaler) doPass() {
	objects := []*unstructured.Unstructured{{Object: object{
		"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": object{"name": poolName, "namespace": "ns"},
		"spec": object{"selector": object{"matchLabels": object{"app": "m"}}},
	}}}
	for _, d := range a.world.deployments {
		objects = append(objects, a.objectsOf(d)...)
	}
	var err error
	if a.caches, err = informers.Declare("").Read(kit.Snapshot{Objects: objects}); err != nil {
		panic(err) // the objects are ours
	}
	interval, _, err := a.RunPass(context.Background())
	if err != nil {
		panic(err)
	}
	a.next = a.world.now + interval.Seconds()
}

type object = map[string]any

func (a *autoscaler) objectsOf(d *deployment) []*unstructured.Unstructured {
	meta := func(name string, at time.Time, more object) object {
		metadata := object{"name": name, "namespace": "ns", "creationTimestamp": at.Format(time.RFC3339)}
		maps.Copy(metadata, more)
		return metadata
	}
	ready := 0
	var objects []*unstructured.Unstructured
	for _, p := range d.pods {
		if !math.IsInf(p.ends, 1) {
			continue // it has a deletion timestamp
		}
		pod := object{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": meta(p.name, startTime.Add(time.Duration(p.created)*time.Second), object{
				"labels":          object{"pod-template-hash": "7d"},
				"ownerReferences": []any{object{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": d.Name + "-7d", "uid": "u", "controller": true}},
			}),
		}
		if p.ready <= a.world.now {
			ready++
			since := startTime.Add(time.Duration(p.ready) * time.Second).Format(time.RFC3339)
			pod["status"] = object{"phase": "Running", "conditions": []any{object{"type": "Ready", "status": "True", "lastTransitionTime": since}}}
		}
		objects = append(objects, &unstructured.Unstructured{Object: pod})
	}
	labels := object{"app": "m"}
	if d.Role != "" {
		labels["llm-d.ai/role"] = d.Role
	}
	deployment := object{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta(d.Name, startTime, nil),
		"spec":   object{"replicas": int64(d.wanted), "template": object{"metadata": object{"labels": labels}}},
		"status": object{"readyReplicas": int64(ready)},
	}
	hpa := object{
		"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
		"metadata": meta(d.Name, startTime, object{"annotations": object{
			"llm-d.ai/managed": "true", "llm-d.ai/model-id": d.Model, "llm-d.ai/variant-cost": strconv.FormatFloat(d.Cost, 'f', -1, 64),
		}}),
		"spec": object{
			"minReplicas": int64(d.Min), "maxReplicas": int64(d.Max),
			"scaleTargetRef": object{"apiVersion": "apps/v1", "kind": "Deployment", "name": d.Name},
		},
	}
	return append(objects, &unstructured.Unstructured{Object: deployment}, &unstructured.Unstructured{Object: hpa})
}

// Query is Prometheus.
func (a *autoscaler) Query(ctx context.Context, expr string) ([]promclient.Series, error) {
	return (&prometheus{world: a.world}).Query(ctx, expr)
}

func (a *autoscaler) Settings() *settings.Settings { return a.settings }

func (a *autoscaler) Collector(*settings.Settings) (pass.Collector, error) { return a.collector, nil }

// poolName is the InferencePool of all models.
const poolName = "pool"

func (a *autoscaler) EndTerm() {}

func (a *autoscaler) ObservePart(string, time.Duration) {}

func (a *autoscaler) ReportOutcome(context.Context, *pass.Outcome) error { return nil }

// Actuate publishes the decisions, by the names of the deployments.
func (a *autoscaler) Actuate(_ context.Context, o *pass.Outcome) {
	if a.trace != nil {
		a.trace(o, a.world.now)
	}
	published, variants := map[string]int{}, decision.ActedVariants(o.Snapshot, o.Decision, nil)
	if a.keda != nil {
		a.keda.Publish(variants)
	}
	for _, v := range variants {
		published[v.Name] = v.Desired
	}
	decided := make([]int, len(a.world.deployments))
	for i, d := range a.world.deployments {
		n, found := published[d.Name]
		if !found {
			n = d.wanted // an HPA without a metric changes nothing
		}
		decided[i] = n
	}
	a.decided = decided
}
