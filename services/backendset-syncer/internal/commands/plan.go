package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/dryrun"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/bindings"
	"fairlead.dev/services/backendset-syncer/internal/config"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/metrics"
	"fairlead.dev/services/backendset-syncer/internal/observe"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
	"fairlead.dev/services/backendset-syncer/internal/policy"
)

// planOptions are the flags of plan.
type planOptions struct {
	*config.Config

	namespace string
}

func newPlan(out, log io.Writer) *cobra.Command {
	o := &planOptions{Config: config.Default()}
	cmd := &cobra.Command{
		Use:   "plan [NAME...]",
		Short: "Print the changes of load balancers that the program would make",
		Long: "Print the changes of listeners, routing policies and backend sets that the program would make to stdout, and problems of\n" +
			"Gateways, routes and bindings to stderr. NAME is that of a BackendSetBinding or a Gateway: " +
			"a load balancer is planned as a whole.\n" +
			"plan reads the cluster and the load balancers, and writes nothing.\n" +
			"Exit codes: 0 no change, 2 changes, 1 an error, or nothing could be planned.",
		Example: "  backendset-syncer plan -n models chat --config-map=fairlead/backendset-syncer --oci-auth=config-file " +
			"--oci-config-file=$HOME/.oci/config",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(o.Kube.Validate(), o.OCI.Validate()); err != nil {
				return fmt.Errorf("flags: %w", err)
			}
			return o.runPlan(cmd.Context(), args, out, log)
		},
	}
	fs := cmd.Flags()
	o.Kube.AddFlags(fs)
	o.OCI.AddFlags(fs)
	o.AddSourceFlags(fs)
	fs.StringVarP(&o.namespace, "namespace", "n", "", "Namespace of the bindings and Gateways. Empty: all namespaces.")
	return cmd
}

// runPlan plans the bindings that were chosen, together with all others: they share load balancers.
func (o *planOptions) runPlan(ctx context.Context, names []string, out, log io.Writer) error {
	w, err := o.readWorld(ctx)
	if err != nil {
		return err
	}
	w.Print(log)
	p, err := o.newPlanner(w)
	if err != nil {
		return err
	}
	p.out, p.log = out, log
	chosen := func(namespace, name string) bool {
		return (o.namespace == "" || namespace == o.namespace) && (len(names) == 0 || slices.Contains(names, name))
	}
	planned, changed := p.printGateways(ctx, chosen)
	for _, b := range p.bindings {
		if !chosen(b.Namespace, b.Name) {
			continue
		}
		ok, differs := p.printBinding(ctx, b)
		if ok {
			planned++
		}
		changed = changed || differs
	}
	switch {
	case planned == 0:
		return dryrun.ErrNothingPlanned
	case changed:
		return dryrun.ErrDiffers
	}
	return nil
}

// readWorld reads all objects that plans depend on.
func (o *planOptions) readWorld(ctx context.Context) (*dryrun.World, error) {
	cfg, err := o.Kube.RESTConfig("fairlead-backendset-syncer-plan")
	if err != nil {
		return nil, err // the error names the problem
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	kinds := o.InformerOptions().Declare().EnabledKinds()
	return dryrun.ReadCluster(ctx, client, kinds, cache.ObjectName(o.ConfigMap)) // the error names the kind
}

// planner plans bindings.
type planner struct {
	evaluator *bindings.Evaluator
	client    *ociapi.Client
	occupants actor.Occupants
	bindings  []*v1alpha1.BackendSetBinding // all, sorted
	out, log  io.Writer

	gateways   *gatewayplan.Planner
	configMaps kit.Reader
	records    string // namespace of the records

	previews map[string]map[string]actor.Preview // by load balancer and set
	failures map[string]error                    // by load balancer
}

func (o *planOptions) newPlanner(w *dryrun.World) (*planner, error) {
	caches, err := o.InformerOptions().Declare().Read(w.Snapshot)
	if err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	var document *policy.Document
	if o.ConfigMap.Name != "" {
		text, found := w.ConfigMap(cache.ObjectName(o.ConfigMap), policy.Key)
		if !found {
			return nil, fmt.Errorf("ConfigMap %s does not exist, or has no key %s", o.ConfigMap.String(), policy.Key)
		}
		if document, err = policy.Parse([]byte(text)); err != nil {
			return nil, fmt.Errorf("ConfigMap %s: %w", o.ConfigMap.String(), err)
		}
	}
	configuration := func() (*policy.Document, string) { return document, "--config-map is empty" }
	p := &planner{
		evaluator: bindings.NewEvaluator(caches, configuration, o.RecordNamespace()),
		client:    ociapi.New(ociapi.Params{Options: o.OCI, Observer: metrics.New(prometheus.NewRegistry()), Clock: clock.RealClock{}}),
		gateways:  gatewayplan.NewPlanner(caches, configuration, o.PlannerOptions()), configMaps: caches.ConfigMaps,
		records: o.RecordNamespace(), occupants: observe.New(caches).FindOccupants,
		bindings: informers.ListAll[v1alpha1.BackendSetBinding](caches.Bindings),
		previews: map[string]map[string]actor.Preview{}, failures: map[string]error{},
	}
	slices.SortFunc(p.bindings, func(a, b *v1alpha1.BackendSetBinding) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return p, nil
}

// printBinding prints the plan of a binding. It reports whether there is one, and whether it has changes.
func (p *planner) printBinding(ctx context.Context, b *v1alpha1.BackendSetBinding) (ok, differs bool) {
	name := b.Namespace + "/" + b.Name
	decision := p.evaluator.Evaluate(b)
	if decision.BlockingProblem() != "" {
		fmt.Fprintf(p.log, "%s: %s\n", name, decision.BlockingProblem())
		return false, false
	}
	preview, err := p.previewSet(ctx, b)
	if err != nil {
		fmt.Fprintf(p.log, "%s: %v\n", name, err)
		return false, false
	}
	for _, message := range []string{preview.Problem, decision.ConditionMessage()} {
		if message != "" {
			fmt.Fprintf(p.log, "%s: %s\n", name, message)
		}
	}
	if preview.Missing {
		return false, false
	}
	fmt.Fprintf(p.out, "%s: ", name)
	p.printPreview("", b.Spec.BackendSetName, &preview)
	return true, preview.Operation != ""
}

// printPreview prints the changes of a backend set.
func (p *planner) printPreview(indent, set string, preview *actor.Preview) {
	c, operation := &preview.Changes, preview.Operation
	if operation != "" {
		operation = ", by " + operation
	}
	fmt.Fprintf(p.out, "%sbackend set %s: %d changes%s\n", indent, set, c.Len(), operation)
	for _, group := range []struct {
		sign     string
		backends []plan.Backend
	}{{"+", c.Create}, {"~", c.Update}, {"-", c.Delete}} {
		for _, b := range group.backends {
			drain := ""
			if b.Drain {
				drain = " draining"
			}
			fmt.Fprintf(p.out, "%s  %s %s weight %d%s\n", indent, group.sign, b.Address, b.Weight, drain)
		}
	}
}

// previewSet returns what the program would do to the backend set of a binding.
func (p *planner) previewSet(ctx context.Context, b *v1alpha1.BackendSetBinding) (actor.Preview, error) {
	id := b.Spec.LoadBalancerID
	if p.previews[id] == nil && p.failures[id] == nil {
		p.previews[id], p.failures[id] = p.previewAll(ctx, id)
	}
	return p.previews[id][b.Spec.BackendSetName], p.failures[id]
}

func (p *planner) previewAll(ctx context.Context, id string) (map[string]actor.Preview, error) {
	lb, err := p.client.ReadLoadBalancer(ctx, ociapi.High, id)
	if err != nil {
		return nil, fmt.Errorf("read load balancer: %w", err)
	}
	wanted := map[string]*actor.Wanted{}
	for _, b := range p.bindings {
		if decision := p.evaluator.Evaluate(b); b.Spec.LoadBalancerID == id && decision.BlockingProblem() == "" {
			wanted[b.Spec.BackendSetName] = decision.BuildWanted(b)
		}
	}
	return actor.PreviewAll(lb, wanted, p.occupants, clock.RealClock{}.Now()), nil
}
