package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/apply"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/ingress-reconciler/internal/condition"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// adoptOptions are the flags of adopt.
type adoptOptions struct {
	kube      kube.Options
	sources   config.Sources
	namespace string
	dryRun    bool
	unexposed bool
}

func newAdopt(out io.Writer) *cobra.Command {
	o := &adoptOptions{kube: kube.DefaultOptions(), sources: config.Default().Sources, dryRun: true}
	cmd := &cobra.Command{
		Use:   "adopt [NAME...]",
		Short: "Remove routes that OME has left behind",
		Long: "Remove Ingresses, VirtualServices and HTTPRoutes that OME has made for services which it no longer makes routes for: turned\n" +
			"off, it leaves them behind, and Ingress controllers refuse others for the same host. What is removed belongs to the service by\n" +
			"its uid, has a name of OME's, and is none of ours. A service that is not exposed by us yet keeps what it has. By default\n" +
			"nothing is removed, and it is printed what would be.",
		RunE: func(cmd *cobra.Command, names []string) error { return o.run(cmd.Context(), names, out) },
	}
	fs := cmd.Flags()
	o.kube.AddFlags(fs)
	fs.Var(&o.sources.OME, "ome-config-map", "OME's ConfigMap, as namespace/name: it says whether OME makes routes.")
	fs.StringVarP(&o.namespace, "namespace", "n", "", "Only of services of one namespace. Empty: all.")
	fs.BoolVar(&o.dryRun, "dry-run", o.dryRun, "Print what would be removed, and remove nothing.")
	fs.BoolVar(&o.unexposed, "unexposed", false, "Also of services that are not exposed by us: they may be left without a route.")
	return cmd
}

func (o *adoptOptions) run(ctx context.Context, names []string, out io.Writer) error {
	cfg, err := o.kube.RESTConfig("fairlead-ingress-reconciler-adopt")
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	w, err := readCluster(ctx, cfg, o.sources.Kinds, cache.ObjectName(o.sources.OME))
	if err != nil {
		return err
	}
	a := &adopter{adoptOptions: o, client: client, applier: apply.New(client, render.Manager), out: out}
	a.config.Document = &settings.Document{}
	if text, found := w.configMap(cache.ObjectName(o.sources.OME), settings.KeyOME); found {
		if a.config.Inherited, err = settings.ParseInherited([]byte(text), o.sources.ClusterDomain); err != nil {
			return err //nolint:wrapcheck // it says all
		}
	}
	var errs []error
	for _, u := range w.objects {
		if o.selects(u, names) {
			errs = append(errs, a.service(ctx, u))
		}
	}
	if a.found == 0 && errors.Join(errs...) == nil {
		fmt.Fprintln(out, "OME has left nothing behind")
	}
	return errors.Join(errs...)
}

// selects reports whether an object is a service that was asked for.
func (o *adoptOptions) selects(u *unstructured.Unstructured, names []string) bool {
	return u.GetKind() == "InferenceService" && (o.namespace == "" || u.GetNamespace() == o.namespace) &&
		(len(names) == 0 || slices.Contains(names, u.GetName()))
}

// adopter removes what OME has left behind of one service after the other.
type adopter struct {
	*adoptOptions

	client  dynamic.Interface
	applier *apply.Applier
	config  settings.Config
	out     io.Writer
	found   int
}

func (a *adopter) service(ctx context.Context, u *unstructured.Unstructured) error {
	s, err := isvc.Read(u)
	if err != nil {
		return fmt.Errorf("%s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	if a.config.OMEActs(s) {
		return nil
	}
	names := []string{s.Name}
	for _, r := range isvc.Roles {
		names = append(names, s.Name+"-"+string(r))
	}
	var errs []error
	for _, resource := range []schema.GroupVersionResource{render.Ingresses, render.VirtualServices, render.HTTPRoutes} {
		for _, name := range names {
			errs = append(errs, a.object(ctx, s, resource, name))
		}
	}
	return errors.Join(errs...)
}

// object removes one object, if it is what OME has left of a service.
func (a *adopter) object(ctx context.Context, s *isvc.Service, resource schema.GroupVersionResource, name string) error {
	live, err := a.client.Resource(resource).Namespace(s.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get %s %s/%s: %w", resource.Resource, s.Namespace, name, err)
	}
	owner := metav1.GetControllerOf(live)
	if owner == nil || owner.UID != s.UID || live.GetLabels()[render.LabelManagedBy] == render.Manager {
		return nil
	}
	a.found++
	what := fmt.Sprintf("%s %s/%s", live.GetKind(), s.Namespace, name)
	c := condition.Find(s)
	switch {
	case !a.unexposed && (c == nil || c.Status != metav1.ConditionTrue):
		fmt.Fprintf(a.out, "%s stays: the service is not exposed by us yet\n", what)
		return nil
	case a.dryRun:
		fmt.Fprintf(a.out, "%s would be removed (--dry-run=false removes it)\n", what)
		return nil
	}
	if err := a.applier.Delete(ctx, resource, live, s.UID); err != nil {
		return err //nolint:wrapcheck // it says all
	}
	fmt.Fprintf(a.out, "%s is removed\n", what)
	return nil
}
