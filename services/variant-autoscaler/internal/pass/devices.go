package pass

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/inventory"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// requestDevices finds which devices the pods of variants claim, and gives the variants their shape. Pods that request cards of nodes, too,
// are limited by these alone.
func (p *Passes) requestDevices(variants []*foundVariant) []*inventory.DeviceRequest {
	requests := make([]*inventory.DeviceRequest, len(variants))
	for i, v := range variants {
		claims := v.found.Claims
		if claims == nil || v.found.Shape.Cards > 0 {
			continue
		}
		request, number, problem := p.deviceRequest(v.Namespace, claims)
		if problem != nil {
			v.SetProblem(problem)
			continue
		}
		requests[i] = request
		v.found.Shape = inventory.Shape{Cards: number, Pods: claims.Pods, Placement: claims.Placement}
	}
	return requests
}

// deviceRequest returns the devices that a pod claims, and their number.
func (p *Passes) deviceRequest(namespace string, claims *informers.PodClaims) (*inventory.DeviceRequest, int64, *snapshot.Problem) {
	all := p.p.World
	template := informers.FindObject[informers.DeviceRequest](all.ResourceClaimTemplates,
		cache.ObjectName{Namespace: namespace, Name: claims.Template})
	name := fmt.Sprintf("ResourceClaimTemplate %s/%s", namespace, claims.Template)
	switch {
	case !all.ResourceSlices.Listed() || !all.ResourceClaims.Listed() || !all.ResourceClaimTemplates.Listed() ||
		!all.DeviceClasses.Listed():
		return nil, 0, snapshot.NewProblem(snapshot.InventoryUnknown,
			"the pods claim devices, and ResourceSlices, ResourceClaims, ResourceClaimTemplates and DeviceClasses of resource.k8s.io/v1 cannot be listed: "+
				"grant list and watch of them (limiter.enabled of the chart), use Kubernetes 1.34 or newer, or turn the limiter off")
	case claims.Unsupported != "":
		return nil, 0, snapshot.NewProblem(snapshot.DevicesUnsupported, "%s", claims.Unsupported)
	case template == nil:
		return nil, 0, snapshot.NewProblem(snapshot.DevicesNotFound, "%s does not exist: create it, or correct the pod template", name)
	case template.Unsupported != "":
		return nil, 0, snapshot.NewProblem(snapshot.DevicesUnsupported, "the devices of %s cannot be counted: %s", name,
			template.Unsupported)
	}
	class := informers.FindObject[informers.DeviceRequest](all.DeviceClasses, cache.ObjectName{Name: template.Class})
	switch {
	case class == nil:
		return nil, 0, snapshot.NewProblem(snapshot.DevicesNotFound, "DeviceClass %s does not exist: create it, or correct %s", template.Class, name)
	case class.Unsupported != "":
		return nil, 0, snapshot.NewProblem(snapshot.DevicesUnsupported, "the devices of DeviceClass %s cannot be counted: %s", template.Class,
			class.Unsupported)
	}
	request := mergeRequests(class, template)
	if request == nil {
		return nil, 0, snapshot.NewProblem(snapshot.DevicesUnsupported,
			"DeviceClass %s and %s do not name one driver: compare device.driver in a selector", template.Class, name)
	}
	return request, template.Number, nil
}

// mergeRequests returns the devices that a class and a template select, nil if they do not name one driver.
func mergeRequests(class, template *informers.DeviceRequest) *inventory.DeviceRequest {
	merged := &inventory.DeviceRequest{Driver: cmp.Or(class.Driver, template.Driver),
		Attributes: slices.Concat(class.Attributes, template.Attributes)}
	if merged.Driver == "" || template.Driver != "" && template.Driver != merged.Driver {
		return nil
	}
	slices.Sort(merged.Attributes)
	merged.Attributes = slices.Compact(merged.Attributes)
	return merged
}

// readDevices returns what nodes have of devices, if a variant requests some.
func (p *Passes) readDevices(requests []*inventory.DeviceRequest) inventory.Devices {
	var devices inventory.Devices
	if !slices.ContainsFunc(requests, func(r *inventory.DeviceRequest) bool { return r != nil }) {
		return devices
	}
	for _, s := range informers.ListAll[informers.DeviceSlice](p.p.World.ResourceSlices) {
		devices.Slices = append(devices.Slices, &s.DeviceSlice)
	}
	for _, c := range informers.ListAll[informers.DeviceClaim](p.p.World.ResourceClaims) {
		if len(c.Devices) > 0 {
			devices.Claims = append(devices.Claims, &c.DeviceClaim)
		}
	}
	return devices
}
