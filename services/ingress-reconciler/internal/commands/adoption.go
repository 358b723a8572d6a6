package commands

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"fairlead.dev/services/ingress-reconciler/internal/condition"
	"fairlead.dev/services/ingress-reconciler/internal/controller"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// adoption decides which left-overs of one service to delete:
//
//	a left-over                                                          action
//	with a host that no planned object has                               keep; delete with --unexposed
//	of a service whose planned objects all exist, condition True         delete
//	Ingress with the host and path of a planned Ingress of its class,
//	  if the planned Ingress cannot be written or served because of it   delete
//	any other                                                            keep; delete with --unexposed
//	policy (BackendTrafficPolicy, DestinationRule)                       keep as long as a route of OME stays
//
// Call decideLeftOver for routes before policies.
type adoption struct {
	*result

	unexposed      bool
	remainingRoute string // kind and name of a route that stays
}

// decideLeftOver reports whether to delete a left-over, and why.
func (a *adoption) decideLeftOver(l *leftOver) (deletes bool, explanation string) {
	reason := a.notExposedReason()
	exposed := reason == ""
	switch {
	case l.isPolicy() && a.remainingRoute != "":
		return false, a.remainingRoute + " stays"
	case l.isPolicy():
		return true, "no route of OME is left that needs it"
	}
	replaced := a.blockedReason(l)
	if exposed {
		replaced = "this program exposes the service"
	}
	lost := a.lostHosts(l)
	switch {
	case replaced != "" && lost == "":
		return true, replaced
	case replaced != "":
		reason = "nothing would replace " + lost + ": set componentHosts or additionalIngressDomains, or give --unexposed"
	}
	if a.unexposed {
		return true, "--unexposed: " + reason
	}
	if a.remainingRoute == "" {
		a.remainingRoute = fmt.Sprintf("%s %s", l.GetKind(), l.GetName())
	}
	return false, reason
}

// lostHosts returns the hosts of a left-over that no planned object has, comma-separated. Hosts inside the cluster are those of Services.
func (a *adoption) lostHosts(l *leftOver) string {
	lost := slices.DeleteFunc(render.RouteHosts(l.Unstructured), func(host string) bool {
		return a.observed.Input.Settings.ClusterLocal(host) || slices.ContainsFunc(a.objects, func(o render.Object) bool {
			return slices.Contains(render.RouteHosts(o.Object), host)
		})
	})
	return strings.Join(lost, ", ")
}

// notExposedReason returns the reason why this program does not expose the service, or "" if it does.
func (a *adoption) notExposedReason() string {
	if len(a.objects) == 0 {
		for _, r := range a.Reasons {
			return fmt.Sprintf("the plan exposes nothing: %s: %s", r.Reason, r.Message)
		}
		return "the plan exposes nothing"
	}
	for i := range a.objects {
		if o := &a.objects[i]; a.findLive(o) == nil {
			return fmt.Sprintf("%s %s is not written yet", o.Object.GetKind(), o.Object.GetName())
		}
	}
	switch c := condition.Find(a.observed.Input.Service); {
	case c == nil:
		return "the service has no condition " + condition.Type + " yet"
	case c.Status != metav1.ConditionTrue:
		return fmt.Sprintf("the condition is %s %s: %s", c.Status, c.Reason, c.Message)
	}
	return ""
}

// blockedReason returns the reason why a planned Ingress cannot be written or served because of a left-over, or "" if all of them can.
func (a *adoption) blockedReason(l *leftOver) string {
	if l.resource != render.Ingresses {
		return ""
	}
	class := ingressclass.ClassOfIngress(a.observed.Input.Classes, l.Unstructured)
	for i := range a.objects {
		o := &a.objects[i]
		if o.Resource != render.Ingresses ||
			ingressclass.ClassOfIngress(a.observed.Input.Classes, o.Object).Identity() != class.Identity() ||
			!sharesPath(o.Object, l.Unstructured) {
			continue
		}
		name := "Ingress " + o.Object.GetName()
		live := a.findLive(o)
		switch {
		case live != nil && sharesPath(live.Object, l.Unstructured):
			return name + " exists, and the controller serves this one for the same host and path"
		case class.Controller != nil && class.Controller.RefusesDuplicates:
			return fmt.Sprintf("%s cannot be written: %s refuses a second Ingress for the same host and path", name, class.Controller.Name)
		case a.isNotWritten(a.observed.Input.Service):
			return name + " cannot be written: the condition says " + controller.ReasonNotWritten +
				", and this one has the same host and path"
		}
	}
	return ""
}

// isNotWritten reports whether the condition says that the API server rejected an object.
func (a *adoption) isNotWritten(s *isvc.Service) bool {
	c := condition.Find(s)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == controller.ReasonNotWritten
}

// sharesPath reports whether two Ingresses have a host and path in common.
func sharesPath(a, b *unstructured.Unstructured) bool {
	return hostPaths(a).HasAny(hostPaths(b).UnsortedList()...)
}

// hostPaths returns the pairs of host and path of an Ingress.
func hostPaths(u *unstructured.Unstructured) sets.Set[[2]string] {
	paths := sets.New[[2]string]()
	render.EachIngressPath(u, func(host string, entry map[string]any) {
		if entry != nil {
			path, _ := entry["path"].(string)
			paths.Insert([2]string{host, cmp.Or(path, "/")})
		}
	})
	return paths
}
