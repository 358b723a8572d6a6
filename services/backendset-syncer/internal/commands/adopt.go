package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/backendset-syncer/internal/adopt"
	"fairlead.dev/services/backendset-syncer/internal/config"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan/routing"
	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/ociapi"
)

// errRefused means that nothing can be adopted. The findings have the reasons.
var errRefused = errors.New("nothing was adopted: see the refusals above")

// adoptOptions are the flags of adopt.
type adoptOptions struct {
	planOptions

	write bool
}

func newAdopt(out, log io.Writer) *cobra.Command {
	o := &adoptOptions{planOptions: planOptions{Config: config.Default()}}
	cmd := &cobra.Command{
		Use:   "adopt NAME",
		Short: "Take over the load balancer of a Gateway from oke-gateway-api, or after its record was lost",
		Long: "Print which objects of the load balancer of a Gateway the program would take over, and what stays foreign. With --write, " +
			"adopt writes\n" +
			"the record that makes these objects the program's. It never writes to the load balancer.\n" +
			"Exit codes: 0 the record was written, 2 it would be written, 1 an error, or a refusal.",
		Example: "  backendset-syncer adopt -n models inference --config-map=fairlead/backendset-syncer --gateway-namespace=fairlead " +
			"--oci-auth=config-file --oci-config-file=$HOME/.oci/config",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(o.Kube.Validate(), o.OCI.Validate(), o.validateFlags()); err != nil {
				return fmt.Errorf("flags: %w", err)
			}
			return o.runAdopt(cmd.Context(), args[0], out, log)
		},
	}
	fs := cmd.Flags()
	o.Kube.AddFlags(fs)
	o.OCI.AddFlags(fs)
	o.AddSourceFlags(fs)
	for _, name := range []string{"gateways", "oke-gateway-api-alias", "readiness-gates"} { // they have no effect here
		_ = fs.MarkHidden(name) // it fails only for an unknown flag
	}
	fs.StringVarP(&o.namespace, "namespace", "n", "default", "Namespace of the Gateway.")
	fs.BoolVar(&o.write, "write", false, "Write the record. Without it, adopt only prints.")
	return cmd
}

func (o *adoptOptions) validateFlags() error {
	if o.RecordNamespace() == "" {
		return errors.New("--gateway-namespace is required: it is the namespace of the program's records")
	}
	return nil
}

// adoption is everything that an adoption depends on.
type adoption struct {
	*planner

	in         *adopt.Input
	obstacles  *adopt.Cluster
	resolution *gatewayplan.Resolution
	store      *lbrecord.Store
}

func (o *adoptOptions) runAdopt(ctx context.Context, name string, out, log io.Writer) error {
	o.Gateways.Enabled, o.Gateways.OKE = true, true // a Gateway can be adopted before the program serves its class
	a, err := o.prepareAdoption(ctx, types.NamespacedName{Namespace: o.namespace, Name: name}, log)
	if err != nil {
		return err
	}
	refusals := a.obstacles.FindRefusals(a.in.Gateways, a.in.Routes)
	newRecord, findings := a.buildRecord()
	refused := newRecord == nil
	for _, f := range slices.Concat(refusals, findings) {
		if f.Refused {
			refused = true
			fmt.Fprintf(log, "refused: %s\n", f)
			continue
		}
		fmt.Fprintln(out, f)
	}
	if refused {
		return errRefused
	}
	if err := a.printNext(newRecord, out); err != nil {
		return err
	}
	if !o.write {
		fmt.Fprintf(log, "This was a dry run: --write writes the record to ConfigMap %s/%s\n", a.records,
			lbrecord.ConfigMapName(newRecord.LoadBalancer))
		return dryrun.ErrDiffers
	}
	if err := a.store.Write(ctx, newRecord); err != nil {
		return err // the error names the record
	}
	fmt.Fprintf(log, "Wrote the record to ConfigMap %s/%s. Now let the program serve the class of the Gateway\n", a.records,
		lbrecord.ConfigMapName(newRecord.LoadBalancer))
	return nil
}

// prepareAdoption reads the cluster, the record and the load balancer.
func (o *adoptOptions) prepareAdoption(ctx context.Context, name types.NamespacedName, log io.Writer) (*adoption, error) {
	cfg, err := o.Kube.RESTConfig("fairlead-backendset-syncer-adopt")
	if err != nil {
		return nil, err // the error names the problem
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	clients, err := kube.NewClientset(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	w, err := o.readWorld(ctx)
	if err != nil {
		return nil, err
	}
	w.Print(log)
	if len(w.Skipped) > 0 {
		return nil, errors.New("an adoption must read all of these kinds: use an account that may list them")
	}
	p, err := o.newPlanner(w)
	if err != nil {
		return nil, err
	}
	p.log = log
	a := &adoption{
		planner: p, resolution: p.gateways.ResolveGateways(),
		store: lbrecord.NewStore(clients.CoreV1(), p.records, "fairlead-backendset-syncer"),
	}
	if a.obstacles, err = adopt.ReadCluster(ctx, client); err != nil {
		return nil, err // the error names the kind
	}
	if a.in, err = a.buildInput(w, name, o.PlannerOptions()); err != nil {
		return nil, err
	}
	return a, a.readBalancer(ctx)
}

// buildInput returns the Gateways of the load balancer of a Gateway, with everything in the cluster that refers to them.
func (a *adoption) buildInput(w *dryrun.World, name types.NamespacedName, o gatewayplan.Options) (*adopt.Input, error) {
	in := &adopt.Input{Secrets: map[types.NamespacedName]*corev1.Secret{}, Keys: keysOf(o)}
	for id, gateways := range a.resolution.Balancers {
		if slices.ContainsFunc(gateways,
			func(g *gatewayplan.ResolvedGateway) bool { return g.Namespace == name.Namespace && g.Name == name.Name }) {
			in.LoadBalancer = id
			for _, g := range gateways {
				in.Gateways = append(in.Gateways, g.Gateway)
			}
		}
	}
	if in.LoadBalancer == "" {
		for i := range a.resolution.Unprogrammable {
			if u := &a.resolution.Unprogrammable[i]; u.Namespace == name.Namespace && u.Name == name.Name {
				return nil, fmt.Errorf("gateway %s: %s: %s", name, u.Problem.Reason, u.Problem.Message)
			}
		}
		return nil, fmt.Errorf("gateway %s does not exist, or its class is neither one of this program nor of oke-gateway-api", name)
	}
	routes, err := readRoutesAndSecrets(w, in.Secrets)
	if err != nil {
		return nil, err
	}
	in.Routes = adopt.RoutesOf(in.Gateways, routes)
	return in, nil
}

// readRoutesAndSecrets returns all HTTPRoutes, and adds all Secrets. The caches have no annotations.
func readRoutesAndSecrets(w *dryrun.World, secrets map[types.NamespacedName]*corev1.Secret) (routes []*gatewayv1.HTTPRoute, err error) {
	for _, u := range w.Objects {
		switch u.GetKind() {
		case "HTTPRoute":
			r := &gatewayv1.HTTPRoute{}
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, r)
			routes = append(routes, r)
		case "Secret":
			s := &corev1.Secret{}
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s)
			secrets[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = s
		}
		if err != nil {
			return nil, fmt.Errorf("read %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
		}
	}
	return routes, nil
}

// keysOf returns the keys and names of the program.
func keysOf(o gatewayplan.Options) adopt.Keys {
	k := adopt.Keys{
		Listener: gatewayplan.ListenerName, Policy: routing.PolicyName, PolicyKey: routing.PolicyKey, Set: setKey,
		DefaultSet: routing.EmptyKey, Certificate: gatewayplan.CertificateKeyOf,
	}
	if o.Responder != (cache.ObjectName{}) {
		k.DefaultSet = routing.DefaultKey
	}
	return k
}

// setKey returns the key of the set of a rule with one Service: oke-gateway-api makes a set for each of them.
func setKey(r *gatewayv1.HTTPRoute, rule int) string {
	var members []routing.Member
	for _, ref := range r.Spec.Rules[rule].BackendRefs {
		if ptr.Deref(ref.Weight, 1) == 0 || ptr.Deref(ref.Kind, "Service") != "Service" || ptr.Deref(ref.Group, "") != "" ||
			ref.Port == nil {
			return ""
		}
		members = append(members, routing.Member{Weight: 1, Backend: routing.Backend{
			Kind: "Service", Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(r.Namespace))), Name: string(ref.Name),
			Port: *ref.Port,
		}})
	}
	if len(members) != 1 {
		return ""
	}
	return routing.KeyOf(members)
}

// readBalancer reads the load balancer and its record.
func (a *adoption) readBalancer(ctx context.Context) error {
	id := a.in.LoadBalancer
	lb, err := a.client.ReadLoadBalancer(ctx, ociapi.High, id)
	if err != nil {
		return fmt.Errorf("read load balancer: %w", err)
	}
	if !lb.Active {
		return fmt.Errorf("load balancer %s is in state %s: wait until it is active", id, lb.State)
	}
	works, err := a.client.ListInFlight(ctx, id)
	if err != nil {
		return fmt.Errorf("list work requests: %w", err)
	}
	if len(works) > 0 {
		return fmt.Errorf("load balancer %s has work requests in progress, such as %s %s: wait until they have ended", id, works[0].Type,
			works[0].ID)
	}
	a.in.Live, a.in.PathRouted = lb.LiveLayout(), lb.PathRouted()
	known, err := a.store.Read(ctx, id)
	switch {
	case errors.Is(err, lbrecord.ErrMissing):
		return nil
	case err != nil:
		return err // the error names the record
	}
	for _, o := range known.Objects {
		if a.in.Live.HasObject(lblayout.Ref{Kind: o.Kind, Name: o.Name}) {
			return fmt.Errorf("load balancer %s has a record with %d objects, such as %s %s: delete ConfigMap %s/%s first "+
				"if the record is wrong",
				id, len(known.Objects), o.Kind, o.Name, a.records, lbrecord.ConfigMapName(id))
		}
	}
	return nil // the program has planned, and created nothing
}

// buildRecord makes the record in two steps: what the program wants depends on the listeners that it has.
func (a *adoption) buildRecord() (*lbrecord.Record, []adopt.Finding) {
	first, findings := adopt.Build(a.in)
	if first == nil {
		return nil, findings
	}
	a.in.Keys.Own = a.buildPlan(first, true).Record.Objects
	return adopt.Build(a.in)
}

// buildPlan returns what the program would do with a record.
func (a *adoption) buildPlan(r *lbrecord.Record, recovering bool) *gatewayplan.Plan {
	in := a.resolution.NewInput(a.in.LoadBalancer)
	in.Record, in.Recovering, in.Live, in.Now = r, recovering, a.in.Live, clock.RealClock{}.Now()
	return a.gateways.BuildPlan(a.resolution, in)
}

// printNext prints what the program does when it has the record. A plan that deletes a listener, or anything that is in use, is an error.
func (a *adoption) printNext(r *lbrecord.Record, out io.Writer) error {
	p := a.buildPlan(r, false)
	for _, problem := range p.FormatProblems() {
		fmt.Fprintln(a.log, problem)
	}
	if len(p.Lost) > 0 {
		return fmt.Errorf("the load balancer has %s %s, which the program would create: delete it, or rename it", p.Lost[0].Kind,
			p.Lost[0].Name)
	}
	changes := p.LayoutChanges(a.in.Live)
	for _, step := range lblayout.NextSteps(a.in.Live, p.Layout) {
		if step.Action == lblayout.Delete {
			return fmt.Errorf("the first change would delete %s %s of the load balancer: this is a defect, report it", step.Kind, step.Name)
		}
	}
	kinds := map[string]int{}
	for _, c := range changes {
		kinds[c.Sign]++
	}
	if len(changes) == 0 {
		fmt.Fprintln(out, "The program then changes nothing of the layout")
		return nil
	}
	fmt.Fprintf(out, "The program then makes %d changes of the layout (%s):\n", len(changes), countsOf(kinds))
	printChanges(out, changes)
	return nil
}

func countsOf(kinds map[string]int) string {
	var counts []string
	for _, sign := range slices.Sorted(maps.Keys(kinds)) {
		counts = append(counts,
			fmt.Sprintf("%d %s", kinds[sign], map[string]string{"+": "created", "~": "changed", "-": "deleted at the end"}[sign]))
	}
	return strings.Join(counts, ", ")
}
