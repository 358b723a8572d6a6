package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/controller"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/render"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// planOptions are the flags of plan.
type planOptions struct {
	selection

	kube    connection
	sources sources
	files   []string // instead of a cluster
	assume  assumptions
	request requestOptions
	output  string
}

func newPlan(out, log io.Writer, transport http.RoundTripper) *cobra.Command {
	o := &planOptions{
		kube: connection{kube.DefaultOptions(), transport}, sources: sources{Sources: config.Default().Sources},
		assume: assumptions{services: true, port: 8080},
	}
	cmd := &cobra.Command{
		Use:   "plan [NAME...] | plan --request METHOD URL",
		Short: "Print the objects that would be written, or explain which backend answers a request",
		Long: "Print the objects that the program would write to stdout. Print to stderr why each service is exposed or not, its\n" +
			"condition, and the differences from the cluster. plan writes nothing to the cluster.\n" +
			"Exit codes: 0 no difference, 2 differences, 1 an error, or no InferenceService could be planned.\n\n" +
			"With --filename plan reads manifests instead of a cluster. It assumes what only a cluster can add, and prints that.\n\n" +
			"With --request plan explains which object and backend answer a request: in a cluster with the objects that exist now, or\n" +
			"with --planned with those of the plan; with --filename always with those of the plan.\n" +
			"Exit codes: 0 a backend answers, 2 no route matches, 1 an error.",
		Example: "  ingress-reconciler plan -n models chat --config-map=fairlead/ingress-reconciler\n" +
			"  ingress-reconciler plan -f manifests/ --config values.yaml\n" +
			"  ingress-reconciler plan --request GET http://chat.models.example.com/v1/models -H 'X-Model: a' -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.assume.services = o.assume.services && len(o.files) > 0
			if err := o.validate(cmd); err != nil {
				return err
			}
			if o.request.method != "" {
				return o.answerRequest(cmd.Context(), cmd.InOrStdin(), args, out, log)
			}
			return o.runPlan(cmd.Context(), cmd.InOrStdin(), args, out, log)
		},
	}
	fs := cmd.Flags()
	o.kube.AddFlags(fs)
	o.sources.addFlags(fs)
	o.addFlags(fs)
	fs.StringSliceVarP(&o.files, "filename", "f", nil,
		"File or folder of manifests to read instead of a cluster, - for stdin. May be repeated.")
	fs.BoolVar(&o.assume.services, "assume-services", o.assume.services,
		"With --filename, assume a ready Service for each component of a specification that has none.")
	fs.StringSliceVar(&o.assume.components, "assume-components", nil,
		"With --filename, also assume these components: router, engine, decoder. For specifications whose runtime names the components.")
	fs.Int32Var(&o.assume.port, "assume-port", o.assume.port, "Port of the assumed Services.")
	fs.StringVarP(&o.output, "output", "o", "", "Format: yaml (default) or json; with --request text (default) or json.")
	o.request.addFlags(fs)
	return cmd
}

// validate returns an error for invalid flags, and for flags that would have no effect.
func (o *planOptions) validate(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	only := func(condition bool, with string, flags ...string) error {
		for _, f := range flags {
			if !condition && changed(f) {
				return fmt.Errorf("--%s has an effect only %s", f, with)
			}
		}
		return nil
	}
	formats := []string{"", "yaml", "json"}
	if changed("request") {
		formats = []string{"", "text", "json"}
	}
	err := errors.Join(
		o.sources.validate(), o.assume.validate(),
		only(len(o.files) > 0, "with --filename", "assume-services", "assume-components", "assume-port"),
		only(changed("request"), "with --request", "header", "entrance", "planned"),
		only(!changed("request"), "without --request, which considers all services", "namespace", "selector"),
	)
	if err == nil && !slices.Contains(formats, o.output) {
		err = fmt.Errorf("--output %q is not one of %s, %s", o.output, formats[1], formats[2])
	}
	if changed("request") && o.request.method == "" {
		err = errors.Join(err, errNoRequest)
	}
	return err
}

func (o *planOptions) runPlan(ctx context.Context, in io.Reader, names []string, out, log io.Writer) error {
	if err := o.parseFlags(names); err != nil {
		return err
	}
	w, err := o.readObjects(ctx, in, log)
	if err != nil {
		return err
	}
	p, err := o.sources.newPlanner(w, log)
	if err != nil {
		return err
	}
	p.strict = len(o.files) > 0 // in a cluster, services that wait are normal
	selected := o.selectNames(w.Objects)
	if len(selected) == 0 {
		return fmt.Errorf("%w: there are no InferenceServices to plan", dryrun.ErrNothingPlanned)
	}
	return p.printPlans(selected, out, o.output)
}

// readObjects reads all objects that plans depend on.
func (o *planOptions) readObjects(ctx context.Context, in io.Reader, log io.Writer) (*dryrun.World, error) {
	w, err := o.readWorld(ctx, in)
	if err != nil {
		return nil, err
	}
	w.Print(log)
	if len(o.files) > 0 {
		o.assume.namespace = cmp.Or(o.namespace, "default")
		o.assume.completeWorld(w, log)
	}
	return w, nil
}

// readWorld reads the files, or the cluster if there are no files.
func (o *planOptions) readWorld(ctx context.Context, in io.Reader) (*dryrun.World, error) {
	if len(o.files) > 0 {
		return dryrun.ReadFiles(o.files, in)
	}
	client, err := o.kube.newClient("plan")
	if err != nil {
		return nil, err
	}
	return o.sources.readCluster(ctx, client)
}

// planner plans services, one at a time.
type planner struct {
	observer *observe.Observer
	config   settings.Config
	claims   *ownership.Registry
	log      io.Writer
	strict   bool

	requesters []*unstructured.Unstructured // planned Ingresses that do not exist yet
}

// newPlanner registers the claims of all services, because services that are not selected also own hosts.
func (s *sources) newPlanner(w *dryrun.World, log io.Writer) (*planner, error) {
	current, err := s.readConfig(w)
	if err != nil {
		return nil, err
	}
	caches, err := informers.Declare(s.Kinds).Read(w.Snapshot)
	if err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	p := &planner{observer: observe.New(caches), config: current, claims: ownership.New(), log: log}
	p.claims.SetAll(controller.AllClaims(p.observer, p.config))
	return p, nil
}

// result is the plan of one service.
type result struct {
	plan.Plan

	name      cache.ObjectName
	observed  observe.Observation
	objects   []render.Object // of kinds that can be written
	refused   map[ownership.Claim]ownership.Conflict
	condition string // status, reason and message of the condition that the program would write; empty: it writes none
}

// planService plans one service.
func (p *planner) planService(name cache.ObjectName) (*result, error) {
	object := p.observer.InferenceService(name)
	if object == nil {
		return nil, fmt.Errorf("plan %s: it does not exist", name)
	}
	if object.Err != nil {
		return nil, object.Err
	}
	r := &result{name: name, observed: p.observer.Observe(object.Service, p.config)}
	r.Plan = plan.Build(&r.observed.Input)
	r.refused, _ = p.claims.Set(ownership.Owner(name), object.Service.Created, r.RequestedClaims(p.observer.LiveClaims(name)))
	r.RemoveRefused(r.refused)
	p.setRequester(&r.observed)
	objects, err := render.Render(&r.Plan, r.observed.RenderParams())
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", name, err)
	}
	if s := r.observed.Input.Service; !s.Deleting && s.Mode != isvc.VirtualDeployment {
		c := controller.PredictCondition(p.observer, r.observed, r.Plan, objects, clock.RealClock{})
		r.condition = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
	}
	r.objects = slices.DeleteFunc(objects, func(o render.Object) bool { return !p.observer.IsAvailable(o.Resource) })
	for i := range r.objects {
		p.requesters = append(p.requesters, r.objects[i].Object)
	}
	return r, nil
}

// setRequester lets a planned Ingress request the certificate of a TLS Secret, if none exists.
func (p *planner) setRequester(o *observe.Observation) {
	existing := o.Requester
	o.Requester = func(host, secret string) *unstructured.Unstructured {
		if found := existing(host, secret); found != nil {
			return found
		}
		i := slices.IndexFunc(p.requesters, func(u *unstructured.Unstructured) bool {
			return u.GetNamespace() == o.Input.Service.Namespace && render.TLSSecrets(u)[host] == secret
		})
		if i < 0 {
			return nil
		}
		return p.requesters[i]
	}
}

// findLive returns the object in the cluster that a planned object would change, nil if it would be created.
func (r *result) findLive(o *render.Object) *observe.Live {
	return r.observed.FindLive(o.Resource, o.Object.GetName())
}

// unplannedObjects returns the live objects that the plan does not contain, and whether each of them stays.
func (r *result) unplannedObjects() map[*observe.Live]bool {
	others := map[*observe.Live]bool{}
	for i := range r.observed.Live {
		l := &r.observed.Live[i]
		if slices.ContainsFunc(r.objects, func(o render.Object) bool { return r.findLive(&o) == l }) {
			continue
		}
		claim, _ := l.RouteClaim()
		_, lost := r.refused[claim]
		others[l] = slices.Contains(r.FrozenSlots, l.Slot) && !lost
	}
	return others
}
