package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/apply"
	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// adoptOptions are the flags of adopt.
type adoptOptions struct {
	selection

	kube      connection
	sources   sources
	dryRun    bool
	unexposed bool
}

func newAdopt(out, log io.Writer, transport http.RoundTripper) *cobra.Command {
	o := &adoptOptions{
		kube: connection{kube.DefaultOptions(), transport}, sources: sources{Sources: config.Default().Sources}, dryRun: true,
	}
	cmd := &cobra.Command{
		Use:   "adopt [NAME...]",
		Short: "Delete routes that OME left behind",
		Long: "When OME stops creating routes, it leaves the existing ones: Ingresses, VirtualServices, HTTPRoutes, and in release 1.3\n" +
			"BackendTrafficPolicies and DestinationRules. adopt deletes them, for services for which OME creates no routes any more.\n" +
			"It deletes only objects that the InferenceService controls by its uid, that have a name that OME gives, and that this\n" +
			"program did not write.\n\n" +
			"adopt compares them with the plan. A left-over goes if the service is exposed by this program with all its hosts, or if\n" +
			"it keeps an Ingress of the plan from being written or served: ingress controllers refuse a second Ingress for one host\n" +
			"and path. The program then writes its own at its next attempt, at most --max-retry-delay later. Every other left-over\n" +
			"stays.\n\n" +
			"By default adopt only prints for each object whether it stays or goes, and why.",
		Example: "  ingress-reconciler adopt --config-map=fairlead/ingress-reconciler\n" +
			"  ingress-reconciler adopt -n models chat --config-map=fairlead/ingress-reconciler --dry-run=false",
		RunE: func(cmd *cobra.Command, names []string) error {
			if !cmd.Flags().Changed("config-map") && !cmd.Flags().Changed("config") {
				return errors.New("adopt compares with the plan: give --config-map or --config (--config-map= if OME's configuration is " +
					"the only one)")
			}
			if err := errors.Join(o.sources.validate(), o.parseFlags(names)); err != nil {
				return err
			}
			return o.runAdopt(cmd.Context(), out, log)
		},
	}
	fs := cmd.Flags()
	o.kube.AddFlags(fs)
	o.sources.addFlags(fs)
	o.addFlags(fs)
	fs.BoolVar(&o.dryRun, "dry-run", o.dryRun, "Print what would be deleted, and delete nothing.")
	fs.BoolVar(&o.unexposed, "unexposed", false,
		"Also delete left-overs of services, and with hosts, that this program does not expose. Clients then cannot reach these.")
	return cmd
}

// runAdopt deletes left-overs of the selected services.
func (o *adoptOptions) runAdopt(ctx context.Context, out, log io.Writer) error {
	client, err := o.kube.newClient("adopt")
	if err != nil {
		return err
	}
	w, err := o.sources.readCluster(ctx, client)
	if err != nil {
		return err
	}
	w.Print(log)
	p, err := o.sources.newPlanner(w, log)
	if err != nil {
		return err
	}
	leftOvers, err := listLeftOvers(ctx, client, log)
	if err != nil {
		return err
	}
	a := &adopter{adoptOptions: o, planner: p, applier: apply.New(client, render.Manager), out: out}
	var errs []error
	for _, name := range o.selectNames(w.Objects) {
		errs = append(errs, a.adoptService(ctx, name, leftOvers))
	}
	err = errors.Join(errs...)
	if a.found == 0 && err == nil {
		fmt.Fprintln(out, "OME left nothing behind")
	}
	return err
}

// Policies of OME 1.3. They have no host. adopt deletes them after the routes.
var (
	trafficPolicies  = schema.GroupVersionResource{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Resource: "backendtrafficpolicies"}
	destinationRules = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1beta1", Resource: "destinationrules"}
)

// leftOverKinds lists the kinds of left-overs, routes first.
var leftOverKinds = []struct {
	kind     string
	resource schema.GroupVersionResource
}{
	{"Ingress", render.Ingresses}, {"VirtualService", render.VirtualServices}, {"HTTPRoute", render.HTTPRoutes},
	{"BackendTrafficPolicy", trafficPolicies}, {"DestinationRule", destinationRules},
}

// leftOver is an object that OME left behind.
type leftOver struct {
	*unstructured.Unstructured

	resource schema.GroupVersionResource
}

func (l *leftOver) isPolicy() bool {
	return l.resource == trafficPolicies || l.resource == destinationRules
}

// listLeftOvers returns the possible left-overs, by the UID of their controller.
func listLeftOvers(ctx context.Context, client dynamic.Interface, log io.Writer) (map[types.UID][]leftOver, error) {
	leftOvers := map[types.UID][]leftOver{}
	for _, k := range leftOverKinds {
		listed, err := dryrun.List(ctx, client, []schema.GroupVersionResource{k.resource}, "")
		if err != nil {
			return nil, err
		}
		listed.Print(log)
		for _, u := range listed.Objects {
			if owner := metav1.GetControllerOf(u); owner != nil && !informers.IsManaged(u) && u.GetDeletionTimestamp() == nil {
				leftOvers[owner.UID] = append(leftOvers[owner.UID], leftOver{u, k.resource})
			}
		}
	}
	return leftOvers, nil
}

// adopter deletes left-overs, one service at a time.
type adopter struct {
	*adoptOptions

	planner *planner
	applier *apply.Applier
	out     io.Writer
	found   int
}

func (a *adopter) adoptService(ctx context.Context, name cache.ObjectName, leftOvers map[types.UID][]leftOver) error {
	object := a.planner.observer.InferenceService(name)
	if object.Err != nil {
		return fmt.Errorf("%s: %w", name, object.Err)
	}
	s := object.Service
	if s.Deleting || a.planner.config.OMEActs(s) {
		return nil
	}
	candidates := slices.DeleteFunc(slices.Clone(leftOvers[s.UID]), func(l leftOver) bool {
		return l.GetNamespace() != s.Namespace || !namedByOME(&l, s)
	})
	if len(candidates) == 0 {
		return nil
	}
	a.found += len(candidates)
	r, err := a.planner.planService(name)
	if err != nil {
		return err
	}
	decision := adoption{result: r, unexposed: a.unexposed}
	var errs []error
	for i := range candidates {
		deletes, reason := decision.decideLeftOver(&candidates[i])
		errs = append(errs, a.deleteLeftOver(ctx, &candidates[i], s, deletes, reason))
	}
	return errors.Join(errs...)
}

// namedByOME reports whether an object has a name that OME uses for objects of a service.
func namedByOME(l *leftOver, s *isvc.Service) bool {
	if l.isPolicy() && strings.HasPrefix(l.GetName(), s.Name+"-") {
		return true
	}
	names := []string{s.Name, backend.TruncateName(s.Name)}
	for _, r := range isvc.Roles {
		names = append(names, s.Name+"-"+string(r), backend.ServiceName(s.Name, r))
	}
	return slices.Contains(names, l.GetName())
}

// deleteLeftOver deletes a left-over if goes is true, and prints the reason for the decision.
func (a *adopter) deleteLeftOver(ctx context.Context, l *leftOver, s *isvc.Service, deletes bool, reason string) error {
	object := fmt.Sprintf("%s %s/%s", l.GetKind(), l.GetNamespace(), l.GetName())
	switch {
	case !deletes:
		fmt.Fprintf(a.out, "%s stays: %s\n", object, reason)
		return nil
	case a.dryRun:
		fmt.Fprintf(a.out, "%s would be deleted (--dry-run=false deletes it): %s\n", object, reason)
		return nil
	}
	if err := a.applier.Delete(ctx, l.resource, l.Unstructured, s.UID); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%s was deleted: %s\n", object, reason)
	return nil
}
