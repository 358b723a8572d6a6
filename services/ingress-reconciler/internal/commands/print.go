package commands

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/apply"
	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// printPlans plans services and prints their plans. It returns dryrun.ErrDiffers if one of them differs from the cluster. If strict, it
// returns an error if no plan has objects, unless a service is disabled on purpose.
func (p *planner) printPlans(names []cache.ObjectName, out io.Writer, format string) error {
	var objects []render.Object
	var unreadable []error
	differs, planned := false, false
	for _, name := range names {
		r, err := p.planService(name)
		if err != nil {
			fmt.Fprintf(p.log, "%s: %s\n", name, err)
			unreadable = append(unreadable, fmt.Errorf("%s: %w", name, err))
			continue
		}
		p.printReasons(r)
		differs = p.printDifferences(r) || differs
		objects = append(objects, r.objects...)
		planned = planned || len(r.objects) > 0 || r.Disabled
	}
	if len(unreadable) == len(names) {
		return fmt.Errorf("%w: %w", dryrun.ErrNothingPlanned, errors.Join(unreadable...))
	}
	if !planned && p.strict {
		return fmt.Errorf("%w, for the reasons above", dryrun.ErrNothingPlanned)
	}
	if err := writeObjects(out, objects, format); err != nil {
		return err
	}
	if differs {
		return dryrun.ErrDiffers
	}
	return nil
}

// writeObjects prints objects as YAML or as a JSON list.
func writeObjects(out io.Writer, objects []render.Object, format string) error {
	contents := make([]*unstructured.Unstructured, len(objects))
	for i := range objects {
		contents[i] = objects[i].Object
	}
	if format == "json" {
		return dryrun.WriteList(out, contents...)
	}
	return dryrun.WriteYAML(out, contents...)
}

// printReasons prints why a service is exposed or not, and its condition.
func (p *planner) printReasons(r *result) {
	for i := range r.Exposures {
		e := &r.Exposures[i]
		fmt.Fprintf(p.log, "%s: %s reaches the %s by %s\n", r.name, e.URL, e.Role, r.Strategy)
	}
	for _, reason := range r.Reasons {
		fmt.Fprintf(p.log, "%s: %s: %s\n", r.name, reason.Reason, reason.Message)
	}
	if r.condition != "" {
		fmt.Fprintf(p.log, "%s: condition %s\n", r.name, r.condition)
	}
}

// printDifferences prints the differences between a plan and the cluster, and reports whether they differ.
func (p *planner) printDifferences(r *result) bool {
	differs := false
	for i := range r.objects {
		o := &r.objects[i]
		switch live := r.findLive(o); {
		case live == nil:
			fmt.Fprintf(p.log, "%s: %s %s would be created\n", r.name, o.Object.GetKind(), o.Object.GetName())
		case apply.Differs(o.Object, live.Object):
			fmt.Fprintf(p.log, "%s: %s %s would be changed\n%s", r.name, o.Object.GetKind(), o.Object.GetName(),
				dryrun.Diff(live.Object, o.Object))
		default:
			continue
		}
		differs = true
	}
	others := r.unplannedObjects()
	for _, l := range slices.SortedFunc(maps.Keys(others), func(a, b *observe.Live) int {
		return cmp.Or(cmp.Compare(a.Object.GetKind(), b.Object.GetKind()), cmp.Compare(a.Object.GetName(), b.Object.GetName()))
	}) {
		outcome := "stays as it is"
		if !others[l] {
			outcome, differs = "is no longer wanted and would be deleted", true
		}
		fmt.Fprintf(p.log, "%s: %s %s %s\n", r.name, l.Object.GetKind(), l.Object.GetName(), outcome)
	}
	return differs
}
