package informers

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/services/variant-autoscaler/internal/inventory"
)

const groupResource = "resource.k8s.io"

const (
	// maxDevices is the most devices of a slice, or of a claim, that are read. The API permits 128.
	maxDevices = 1024
	// maxAttributes is the most attributes of a device, or of a request, that are read. The API permits 32 of a device.
	maxAttributes = 64
	// maxSelectors is the most selectors of a class or a request. The API permits 32.
	maxSelectors = 32
	// maxExpression is the longest expression of a selector, in bytes, as the API has it.
	maxExpression = 10 << 10
)

// DeviceSlice is a ResourceSlice.
type DeviceSlice struct {
	Identity
	inventory.DeviceSlice
}

// DeviceClaim is a ResourceClaim. One without devices is only an Identity.
type DeviceClaim struct {
	Identity
	inventory.DeviceClaim
}

// DeviceRequest is a DeviceClass, or what a ResourceClaimTemplate requests.
type DeviceRequest struct {
	Identity

	Class  string // of a template
	Number int64  // of a template
	// Driver and Attributes are what its selectors say.
	Driver     string
	Attributes []string
	// Unsupported says what cannot be counted. Empty: nothing.
	Unsupported string
}

// PodClaims is what the pods of a workload request by claims.
type PodClaims struct {
	Template string // ResourceClaimTemplate of each pod
	Pods     int64  // of a replica
	// Placement is what their templates say of nodes, as inventory.Placements.Key has it.
	Placement string
	// Unsupported says what cannot be counted. Empty: nothing.
	Unsupported string
}

// readSlice keeps the devices that one node alone can use, all of them, and onto which pods may be put.
func readSlice(u *unstructured.Unstructured) any {
	f := newFields(u)
	s := &DeviceSlice{Identity: identityOf(u)}
	s.Driver, s.Node = internText(f.textAt("spec", "driver")), internText(f.textAt("spec", "nodeName"))
	s.Pool = f.textAt("spec", "pool", "name")
	s.Generation, s.Count = f.numberAt("spec", "pool", "generation").Value, f.numberAt("spec", "pool", "resourceSliceCount").Value
	devices := f.listAt("spec", "devices")
	s.Invalid = len(devices) > maxDevices
	for _, element := range devices[:min(len(devices), maxDevices)] {
		entry := itemOf(element)
		d := inventory.Device{Name: entry.textAt("name")}
		if f.flagAt("spec", "perDeviceNodeSelection") {
			d.Node = internText(entry.textAt("nodeName"))
		}
		if s.Node == "" && d.Node == "" || isRestricted(entry) {
			continue
		}
		d.Attributes = attributesOf(entry, s.Driver)
		s.Devices = append(s.Devices, d)
	}
	return s
}

// internText returns the one copy of a text that all objects share.
func internText(text string) string { return unique.Make(text).Value() }

// isRestricted reports whether a device is a part of another one, is one for several claims, or has a taint that keeps pods from it.
func isRestricted(device *fields) bool {
	if len(device.listAt("consumesCounters")) > 0 || device.flagAt("allowMultipleAllocations") {
		return true
	}
	for taint := range device.itemsAt("taints") {
		if taint.object["effect"] != "None" {
			return true
		}
	}
	return false
}

// attributesOf returns the attributes of a device. The domain of a name without one is the driver.
func attributesOf(f *fields, driver string) []string {
	object, _ := f.value("attributes").(map[string]any)
	var attributes []string
	for _, key := range firstKeys(object, maxAttributes) {
		value, _ := object[key].(map[string]any)
		domain, name, found := strings.Cut(key, "/")
		if !found {
			domain, name = driver, key
		}
		for _, field := range []string{"string", "bool", "int"} {
			if v := value[field]; v != nil {
				attributes = append(attributes, internText(cutText(inventory.AttributeText(domain, name, valueText(v)))))
			}
		}
	}
	return attributes
}

// valueText returns a value as an expression has it.
func valueText(value any) string {
	if text, ok := value.(string); ok {
		return strconv.Quote(text)
	}
	return fmt.Sprint(value)
}

// readClaim keeps the devices that a claim has for itself.
func readClaim(u *unstructured.Unstructured) any {
	c := &DeviceClaim{Identity: identityOf(u)}
	results := newFields(u).listAt("status", "allocation", "devices", "results")
	for _, element := range results[:min(len(results), maxDevices)] {
		if entry := itemOf(element); !entry.flagAt("adminAccess") {
			c.Devices = append(c.Devices, inventory.DeviceName{
				Driver: internText(entry.textAt("driver")), Pool: internText(entry.textAt("pool")),
				Name: internText(entry.textAt("device")),
			})
		}
	}
	return c
}

func readDeviceClass(u *unstructured.Unstructured) any {
	f := newFields(u)
	r := &DeviceRequest{Identity: identityOf(u)}
	r.readSelectors(f, "spec", "selectors")
	return r
}

// readClaimTemplate reads a template with one request of a number of devices of a class.
func readClaimTemplate(u *unstructured.Unstructured) any {
	f := newFields(u)
	r := &DeviceRequest{Identity: identityOf(u)}
	requests := f.listAt("spec", "spec", "devices", "requests")
	if len(requests) != 1 || len(f.listAt("spec", "spec", "devices", "constraints")) > 0 {
		r.Unsupported = "it has no request, several ones, or constraints"
		return r
	}
	entry := itemOf(itemOf(requests[0]).object["exactly"])
	count := entry.numberAt("count")
	r.Class, r.Number = entry.textAt("deviceClassName"), max(count.Value, 1)
	switch mode := entry.textAt("allocationMode"); {
	case entry.object == nil:
		r.Unsupported = "its request has no field exactly"
	case entry.flagAt("adminAccess"):
		r.Unsupported = "its request has adminAccess, which takes no devices"
	case mode != "" && mode != "ExactCount":
		r.Unsupported = fmt.Sprintf("its request has the allocationMode %q", mode)
	case entry.invalid != "" || r.Number > maxDevices || r.Class == "":
		r.Unsupported = "its request has no usable count or deviceClassName"
	case entry.object["capacity"] != nil:
		r.Unsupported = "its request has a capacity"
	default:
		r.readSelectors(entry, "selectors")
	}
	return r
}

// Expressions that say which devices they select without being evaluated: they are joined by &&.
var (
	driverExpression    = regexp.MustCompile(`^device\.driver\s*==\s*("[^"\\]*"|'[^'\\]*')$`)
	attributeExpression = regexp.MustCompile(`^device\.attributes\[("[^"\\]*"|'[^'\\]*')\]\.(\w+)\s*==\s*("[^"\\]*"|'[^'\\]*'|true|false|-?\d+)$`)
)

// readSelectors reads the selectors of CEL of a list, all of which a device must match.
func (r *DeviceRequest) readSelectors(f *fields, path ...string) {
	selectors := f.listAt(path...)
	if len(selectors) > maxSelectors {
		r.Unsupported = fmt.Sprintf("it has more than %d selectors", maxSelectors)
		return
	}
	for _, element := range selectors {
		expression, _ := itemOf(element).value("cel", "expression").(string)
		if len(expression) > maxExpression || !r.readTerms(expression) {
			r.Unsupported = fmt.Sprintf("of the expression %q, only comparisons of device.driver and device.attributes[domain].name with ==, joined by &&, are read, at most %d of them",
				cutText(expression), maxAttributes)
			return
		}
	}
	slices.Sort(r.Attributes)
	r.Attributes = slices.Compact(r.Attributes)
}

// readTerms reads comparisons that are joined by &&, and reports whether an expression is that.
func (r *DeviceRequest) readTerms(expression string) bool {
	for term := range strings.SplitSeq(expression, "&&") {
		if !r.readTerm(strings.TrimSpace(term)) {
			return false
		}
	}
	return len(r.Attributes) <= maxAttributes
}

// readTerm reads a comparison, and reports whether it is one.
func (r *DeviceRequest) readTerm(term string) bool {
	if parts := driverExpression.FindStringSubmatch(term); parts != nil {
		driver := internText(cutText(unquote(parts[1])))
		if r.Driver != "" && r.Driver != driver {
			return false // no device has two drivers
		}
		r.Driver = driver
		return true
	}
	parts := attributeExpression.FindStringSubmatch(term)
	if parts == nil {
		return false
	}
	value := parts[3]
	if strings.ContainsAny(value[:1], `'"`) {
		value = strconv.Quote(unquote(value))
	}
	r.Attributes = append(r.Attributes, internText(cutText(inventory.AttributeText(unquote(parts[1]), parts[2], value))))
	return true
}

func unquote(text string) string { return text[1 : len(text)-1] }

// claimsOf returns what the pods of a replica request by claims, nil if they request nothing so.
func claimsOf(templates []template) *PodClaims {
	var claims *PodClaims
	var placements inventory.Placements
	for _, t := range templates {
		items := t.listAt("spec", "resourceClaims")
		if len(items) == 0 {
			continue
		}
		name := itemOf(items[0]).textAt("resourceClaimTemplateName")
		if claims == nil {
			claims = &PodClaims{Template: name}
		}
		if len(items) > 1 || name == "" || name != claims.Template {
			claims.Unsupported = "the pods have several claims, or one that is not made from a ResourceClaimTemplate: use one template with one request"
		}
		claims.Pods += t.pods
		placements = append(placements, placementOf(t))
	}
	if claims != nil {
		claims.Placement = internText(placements.Key())
	}
	return claims
}
