package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/apply"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/controller"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/render"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// planOptions are the flags of plan.
type planOptions struct {
	kube      kube.Options
	sources   config.Sources
	config    string   // a file; empty: the ConfigMap
	files     []string // instead of a cluster
	namespace string   // of the services that are planned; empty: all
	names     []string // likewise
}

func newPlan(out, log io.Writer) *cobra.Command {
	o := &planOptions{kube: kube.DefaultOptions(), sources: config.Default().Sources}
	cmd := &cobra.Command{
		Use:   "plan [NAME...]",
		Short: "Print the objects that would be written, with the reasons and the differences to what is there",
		Long: "Print the objects that would be written as YAML to stdout; to stderr why each service is exposed so, or is not, and what\n" +
			"differs from what is there. Nothing is written. Exit 0: no difference, 2: there are differences, 1: an error.",
		RunE: func(cmd *cobra.Command, names []string) error {
			o.names = names
			return o.run(cmd.Context(), cmd.InOrStdin(), out, log)
		},
	}
	fs := cmd.Flags()
	o.kube.AddFlags(fs)
	o.sources.AddFlags(fs)
	fs.StringVar(&o.config, "config", "", "File with the configuration, instead of --config-map.")
	fs.StringSliceVarP(&o.files, "filename", "f", nil, "File or folder of manifests to plan from instead of a cluster, - for stdin; may be repeated.")
	fs.StringVarP(&o.namespace, "namespace", "n", "", "Plan the services of one namespace. Empty: all.")
	return cmd
}

func (o *planOptions) run(ctx context.Context, in io.Reader, out, log io.Writer) error {
	if err := o.sources.Validate(); err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	w, err := o.read(ctx, in)
	if err != nil {
		return err
	}
	cfg, err := o.configuration(w, log)
	if err != nil {
		return err
	}
	caches, err := informers.Snapshot(kit.Snapshot{Objects: w.objects, Served: w.served}, o.sources.Kinds)
	if err != nil {
		return fmt.Errorf("read objects: %w", err)
	}
	p := &planner{observer: observe.New(caches), config: cfg, claims: ownership.New(), out: out, log: log}
	if p.names = o.selected(p.observer.Names()); len(p.names) == 0 {
		return errors.New("there are no InferenceServices to plan")
	}
	return p.run()
}

// read reads all that plans follow from.
func (o *planOptions) read(ctx context.Context, in io.Reader) (*world, error) {
	if len(o.files) > 0 {
		return readFiles(o.files, in)
	}
	cfg, err := o.kube.RESTConfig("fairlead-ingress-reconciler-plan")
	if err != nil {
		return nil, err
	}
	return readCluster(ctx, cfg, o.sources.Kinds, cache.ObjectName(o.sources.Ours), cache.ObjectName(o.sources.OME))
}

// configuration reads what is configured, as the service would.
func (o *planOptions) configuration(w *world, log io.Writer) (settings.Config, error) {
	c := settings.Config{ClusterDomain: o.sources.ClusterDomain}
	text, err := o.ours(w)
	if err != nil {
		return c, err
	}
	var warnings []string
	if c.Document, warnings, err = settings.Parse([]byte(text)); err != nil {
		return c, err //nolint:wrapcheck // it says all
	}
	for _, warning := range warnings {
		fmt.Fprintln(log, "configuration:", warning)
	}
	if omes, found := w.configMap(cache.ObjectName(o.sources.OME), settings.KeyOME); found {
		c.Inherited, err = settings.ParseInherited([]byte(omes), o.sources.ClusterDomain)
	}
	return c, err //nolint:wrapcheck // it says all
}

// ours returns the text of our configuration.
func (o *planOptions) ours(w *world) (string, error) {
	if o.config != "" {
		text, err := os.ReadFile(o.config)
		if err != nil {
			return "", fmt.Errorf("read configuration: %w", err)
		}
		return string(text), nil
	}
	if o.sources.Ours.Name == "" {
		return "", nil
	}
	text, found := w.configMap(cache.ObjectName(o.sources.Ours), settings.Key)
	if !found {
		return "", fmt.Errorf("there is no ConfigMap %s with key %s: give --config or --config-map", o.sources.Ours.String(), settings.Key)
	}
	return text, nil
}

// selected returns the services that were asked for, sorted.
func (o *planOptions) selected(all []cache.ObjectName) []cache.ObjectName {
	all = slices.DeleteFunc(all, func(n cache.ObjectName) bool {
		return o.namespace != "" && n.Namespace != o.namespace || len(o.names) > 0 && !slices.Contains(o.names, n.Name)
	})
	slices.SortFunc(all, func(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// planner plans services one after the other.
type planner struct {
	observer *observe.Observer
	config   settings.Config
	claims   *ownership.Registry
	names    []cache.ObjectName
	out, log io.Writer

	differs bool
}

func (p *planner) run() error {
	p.claims.SetAll(controller.AllClaims(p.observer, p.config)) // also of services that are not selected
	for _, name := range p.names {
		if err := p.plan(name); err != nil {
			return fmt.Errorf("plan %s: %w", name, err)
		}
	}
	if p.differs {
		return ErrDiffers
	}
	return nil
}

// plan plans one service.
func (p *planner) plan(name cache.ObjectName) error {
	object := p.observer.Service(name)
	if object.Service == nil {
		fmt.Fprintf(p.log, "%s: %s\n", name, object.Err)
		return nil
	}
	o := p.observer.Observe(object.Service, p.config)
	built := plan.Build(&o.Input)
	refused, _ := p.claims.Set(ownership.Owner(name), object.Service.Created, built.Asks(p.observer.Claims(name)))
	built.Refuse(refused)
	objects, err := render.Render(&built, o.RenderParams())
	if err != nil {
		return err //nolint:wrapcheck // it says all
	}
	p.explain(name, &built)
	for i := range objects {
		if err := p.print(name, &objects[i], o.Live); err != nil {
			return err
		}
	}
	for _, l := range o.Live {
		if !slices.ContainsFunc(objects, func(w render.Object) bool {
			return w.Resource == l.Resource && w.Object.GetName() == l.Object.GetName()
		}) {
			claim, _ := l.Claim()
			_, lost := refused[claim]
			stays := slices.Contains(built.Keep, l.Slot) && !lost
			p.differs = p.differs || !stays
			fmt.Fprintf(p.log, "%s: %s %s %s\n", name, l.Object.GetKind(), l.Object.GetName(), map[bool]string{true: "stays as it is", false: "is wanted no more"}[stays])
		}
	}
	return nil
}

// explain says why a service is exposed so, or is not.
func (p *planner) explain(name cache.ObjectName, built *plan.Plan) {
	for i := range built.Exposures {
		e := &built.Exposures[i]
		fmt.Fprintf(p.log, "%s: %s reaches the %s by %s\n", name, e.URL, e.Role, built.Strategy)
		if e.Attachment.Reason != "" {
			fmt.Fprintf(p.log, "%s: Gateway %s/%s: %s: %s\n", name, e.Gateway.Namespace, e.Gateway.Name, e.Attachment.Reason, e.Attachment.Message)
		}
	}
	for _, r := range built.Reasons {
		fmt.Fprintf(p.log, "%s: %s: %s\n", name, r.Reason, r.Message)
	}
}

// print writes one object, and what differs from the one that is there.
func (p *planner) print(name cache.ObjectName, o *render.Object, live []observe.Live) error {
	text, err := yaml.Marshal(o.Object.Object)
	if err != nil {
		return fmt.Errorf("write %s: %w", o.Object.GetName(), err)
	}
	fmt.Fprintf(p.out, "---\n%s", text)
	i := slices.IndexFunc(live, func(l observe.Live) bool { return l.Resource == o.Resource && l.Object.GetName() == o.Object.GetName() })
	switch {
	case i < 0:
		p.differs = true
		fmt.Fprintf(p.log, "%s: %s %s is to be created\n", name, o.Object.GetKind(), o.Object.GetName())
	case apply.Differs(o.Object, live[i].Object):
		p.differs = true
		fmt.Fprintf(p.log, "%s: %s %s is to be changed\n%s", name, o.Object.GetKind(), o.Object.GetName(), diff(live[i].Object, o.Object))
	}
	return nil
}

// world is what was read.
type world struct {
	objects []*unstructured.Unstructured
	served  func(schema.GroupVersionResource) bool
}

// configMap returns a key of a ConfigMap.
func (w *world) configMap(name cache.ObjectName, key string) (string, bool) {
	for _, u := range w.objects {
		if u.GetAPIVersion() == "v1" && u.GetKind() == "ConfigMap" && u.GetNamespace() == name.Namespace && u.GetName() == name.Name {
			text, found, err := unstructured.NestedString(u.Object, "data", key)
			return text, found && err == nil
		}
	}
	return "", false
}
