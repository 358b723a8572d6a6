package commands

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/apply"
	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/nodepool-ingress/internal/config"
	"fairlead.dev/services/nodepool-ingress/internal/observe"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
)

// planOptions are the flags of plan.
type planOptions struct {
	kube   kube.Options
	policy config.Policy
	files  []string
	output string
	diff   bool
}

func newPlan(out, log io.Writer) *cobra.Command {
	o := &planOptions{kube: kube.DefaultOptions(), policy: config.Default().Policy}
	cmd := &cobra.Command{
		Use:   "plan [NAME...]",
		Short: "Print the objects that the program would write",
		Long: "Print the objects of all pools, or of those of the named YurtIngresses, and on stderr what would change and why a pool " +
			"would not.\n" +
			"plan lists objects, writes none, and needs no permission besides those of the program. Give it the flags of the program.\n" +
			"Exit codes: 0 if the cluster does not differ, 2 if it does, 1 after an error.",
		RunE: func(cmd *cobra.Command, names []string) error {
			o.policy.Complete()
			if err := o.validate(); err != nil {
				return err
			}
			return o.runPlan(cmd.Context(), cmd.InOrStdin(), names, out, log)
		},
	}
	fs := cmd.Flags()
	o.kube.AddFlags(fs)
	o.policy.AddFlags(fs)
	fs.StringSliceVarP(&o.files, "filename", "f", nil,
		"File or folder of manifests to read instead of a cluster, - for stdin. May be repeated.")
	fs.StringVarP(&o.output, "output", "o", "yaml", "Format: yaml or json.")
	fs.BoolVar(&o.diff, "diff", false, "Print the difference to the objects in the cluster instead of the objects.")
	return cmd
}

func (o *planOptions) validate() error {
	if err := o.policy.Validate(); err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	if !slices.Contains([]string{"yaml", "json"}, o.output) {
		return fmt.Errorf("--output %q is not one of yaml, json", o.output)
	}
	return nil
}

func (o *planOptions) runPlan(ctx context.Context, in io.Reader, names []string, out, log io.Writer) error {
	w, err := o.readWorld(ctx, in)
	if err != nil {
		return err
	}
	w.Print(log)
	caches, err := o.policy.InformerOptions().Declare().Read(w.Snapshot)
	if err != nil {
		return fmt.Errorf("read objects: %w", err)
	}
	observer := observe.New(caches, o.policy.PlanPolicy())
	selected := observer.YurtIngressNames()
	if len(names) > 0 {
		selected = nil
		for _, name := range names {
			selected = append(selected, cache.ObjectName{Name: name})
		}
	}
	if len(selected) == 0 {
		return fmt.Errorf("%w: there are no YurtIngresses", dryrun.ErrNothingPlanned)
	}
	p := &planner{observer: observer, log: log}
	for _, name := range selected {
		if err := p.planYurtIngress(name); err != nil {
			return err
		}
	}
	return p.printResult(out, o.output, o.diff)
}

// readWorld reads all objects that plans depend on.
func (o *planOptions) readWorld(ctx context.Context, in io.Reader) (*dryrun.World, error) {
	if len(o.files) > 0 {
		w, err := dryrun.ReadFiles(o.files, in)
		if err != nil {
			return nil, err
		}
		for _, u := range w.Objects {
			if u.GetUID() == "" { // the program identifies owners by their UIDs
				u.SetUID(types.UID("planned-" + u.GetName()))
			}
		}
		return w, nil
	}
	cfg, err := o.kube.RESTConfig("fairlead-nodepool-ingress-plan")
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return dryrun.ReadCluster(ctx, client, o.policy.InformerOptions().Declare().EnabledKinds())
}

// planner plans YurtIngresses, one at a time.
type planner struct {
	observer *observe.Observer
	log      io.Writer

	wanted        []*unstructured.Unstructured
	diffs         []string
	acceptedPools int // number of pools that are accepted
	differs       bool
}

func (p *planner) planYurtIngress(name cache.ObjectName) error {
	object, readable := p.observer.YurtIngress(name)
	switch {
	case object == nil:
		return fmt.Errorf("plan %s: the YurtIngress does not exist", name.Name)
	case !readable:
		return fmt.Errorf("plan %s: the YurtIngress cannot be decoded", name.Name)
	case object.DeletionTimestamp != nil:
		p.printMessage(name.Name, "", "it is being deleted, with all of its objects")
		return nil
	}
	in := p.observer.Observe(object)
	built := plan.Build(&in)
	for _, note := range built.Settings.Notes {
		p.printMessage(name.Name, "", note)
	}
	for i := range built.Pools {
		p.planPool(name.Name, &built.Pools[i], in.Live)
	}
	for _, r := range built.Removed {
		for i := range r.Objects {
			p.printDeletion(name.Name, r.Name, &r.Objects[i])
		}
	}
	return nil
}

// planPool explains one pool.
func (p *planner) planPool(name string, pool *plan.Pool, live []plan.Object) {
	switch {
	case pool.Problem != nil:
		p.printMessage(name, pool.Name, fmt.Sprintf("not accepted: %s: %s", pool.Problem.Reason, pool.Problem.Message))
		return
	case pool.Deferral.Reason != "":
		p.printMessage(name, pool.Name, fmt.Sprintf("does not change now: %s: %s", pool.Deferral.Reason, pool.Deferral.Message))
	}
	p.acceptedPools++
	for i := range pool.Wanted {
		wanted := &pool.Wanted[i]
		p.wanted = append(p.wanted, wanted.Object)
		existing := plan.FindObject(live, wanted.Key())
		description := wanted.Object.GetKind() + " " + wanted.Object.GetName()
		switch {
		case existing == nil:
			p.printDifference(name, pool.Name, description+" would be created")
			p.diffs = append(p.diffs, dryrun.Diff(&unstructured.Unstructured{Object: map[string]any{}}, wanted.Object))
		case apply.Differs(wanted.Object, existing):
			verb := "changed"
			if plan.MustReplace(wanted, existing) {
				verb = "deleted and created again"
			}
			p.printDifference(name, pool.Name, description+" would be "+verb)
			p.diffs = append(p.diffs, dryrun.Diff(existing, wanted.Object))
		}
	}
	for i := range pool.Stale {
		p.printDeletion(name, pool.Name, &pool.Stale[i])
	}
}

func (p *planner) printDeletion(name, pool string, l *plan.Object) {
	p.printDifference(name, pool, fmt.Sprintf("%s %s would be deleted", l.Object.GetKind(), l.Object.GetName()))
}

func (p *planner) printDifference(name, pool, message string) {
	p.differs = true
	p.printMessage(name, pool, message)
}

func (p *planner) printMessage(name, pool, message string) {
	if pool != "" {
		pool = fmt.Sprintf(" pool %q", pool)
	}
	fmt.Fprintf(p.log, "YurtIngress %s%s: %s\n", name, pool, message)
}

func (p *planner) printResult(out io.Writer, format string, diff bool) error {
	var err error
	switch {
	case diff:
		_, err = io.WriteString(out, strings.Join(p.diffs, ""))
	case format == "json":
		err = dryrun.WriteList(out, p.wanted...)
	default:
		err = dryrun.WriteYAML(out, p.wanted...)
	}
	switch {
	case err != nil:
		return fmt.Errorf("write plan: %w", err)
	case p.differs:
		return dryrun.ErrDiffers
	case p.acceptedPools == 0:
		return fmt.Errorf("%w: no pool is accepted", dryrun.ErrNothingPlanned)
	}
	return nil
}
