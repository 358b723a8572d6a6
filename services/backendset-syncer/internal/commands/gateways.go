package commands

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
)

// printGateways prints the plans of the load balancers of Gateways. It reports the number of load balancers with a plan, and whether one of
// them has changes.
func (p *planner) printGateways(ctx context.Context, chosen func(namespace, name string) bool) (planned int, differs bool) {
	if !p.gateways.IsReady() {
		return 0, false
	}
	resolution := p.gateways.ResolveGateways()
	for i := range resolution.Unprogrammable {
		if u := &resolution.Unprogrammable[i]; chosen(u.Namespace, u.Name) {
			fmt.Fprintf(p.log, "Gateway %s/%s: %s: %s\n", u.Namespace, u.Name, u.Problem.Reason, u.Problem.Message)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(resolution.Balancers)) {
		if !slices.ContainsFunc(resolution.Balancers[id],
			func(g *gatewayplan.ResolvedGateway) bool { return chosen(g.Namespace, g.Name) }) {
			continue
		}
		ok, changed, err := p.printBalancer(ctx, resolution, id)
		if err != nil {
			fmt.Fprintf(p.log, "load balancer %s: %v\n", id, err)
			continue
		}
		if ok {
			planned++
		}
		differs = differs || changed
	}
	return planned, differs
}

// printBalancer prints the plan of a load balancer.
func (p *planner) printBalancer(ctx context.Context, resolution *gatewayplan.Resolution, id string) (ok, differs bool, _ error) {
	lb, err := p.client.ReadLoadBalancer(ctx, ociapi.High, id)
	if err != nil {
		return false, false, fmt.Errorf("read load balancer: %w", err)
	}
	before, err := p.recordOf(id)
	if err != nil {
		return false, false, err
	}
	live, now := lb.LiveLayout(), clock.RealClock{}.Now()
	in := resolution.NewInput(id)
	in.Record, in.Live, in.Now = before, live, now
	plan := p.gateways.BuildPlan(resolution, in)
	for _, problem := range plan.FormatProblems() {
		fmt.Fprintln(p.log, problem)
	}
	if len(plan.Lost) > 0 {
		return false, false, nil
	}
	changes := plan.LayoutChanges(live)
	wanted := map[string]*actor.Wanted{}
	for name, s := range plan.Sets {
		if _, exists := live.Sets[name]; exists {
			wanted[name] = s.Wanted
		}
	}
	previews := actor.PreviewAll(lb, wanted, p.occupants, now)
	fmt.Fprintf(p.out, "load balancer %s: %d changes of its layout\n", id, len(changes))
	printChanges(p.out, changes)
	differs = len(changes) > 0
	for _, name := range slices.Sorted(maps.Keys(previews)) {
		preview := previews[name]
		p.printPreview("  ", name, &preview)
		differs = differs || preview.Operation != ""
	}
	return true, differs, nil
}

// printChanges prints the changes of the layout of a load balancer.
func printChanges(out io.Writer, changes []gatewayplan.Change) {
	for _, c := range changes {
		if c.Detail != "" {
			c.Detail = " (" + c.Detail + ")"
		}
		fmt.Fprintf(out, "  %s %s %s%s\n", c.Sign, c.Kind, c.Name, c.Detail)
	}
}

// recordOf returns the record of a load balancer, nil without one.
func (p *planner) recordOf(id string) (*lbrecord.Record, error) {
	c := informers.FindObject[corev1.ConfigMap](p.configMaps, cache.ObjectName{Namespace: p.records, Name: lbrecord.ConfigMapName(id)})
	if c == nil {
		return nil, nil
	}
	return lbrecord.FromConfigMap(c) // the error names the ConfigMap
}
