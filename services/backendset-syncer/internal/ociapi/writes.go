package ociapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/oracle/oci-go-sdk/v65/loadbalancer"

	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// customizedSuite is a cipher suite of reads that the service refuses in writes.
const customizedSuite = "oci-customized-ssl-cipher-suite"

// Write is one mutation of a load balancer: of a backend set, or of another object.
type Write struct {
	loadBalancer string
	etag         string
	action       lblayout.Action
	kind         lbrecord.Kind
	object       string // name
	backend      string // name of a backend of the backend set; empty: the write is one of the object
	body         any
}

// Operation returns the operation of the API.
func (w *Write) Operation() string {
	if w.backend != "" {
		return string(w.action) + "Backend"
	}
	return string(w.action) + nouns[w.kind]
}

// ReplacesObject reports whether the write replaces the whole object, with the fields that were read.
func (w *Write) ReplacesObject() bool {
	return w.action == lblayout.Update && w.backend == ""
}

// NewWrite returns the write that turns the backends of a set into the wanted ones: a call for one backend if it is the only change,
// else one that replaces the set. health is nil if the health checker stays. A set with a cipher suite that cannot be written is
// never replaced: then the write makes one of the changes. NewWrite returns nil if the set needs no change.
func (l *LoadBalancer) NewWrite(set *BackendSet, wanted []plan.Backend, health *plan.HealthChecker) (*Write, error) {
	if health != nil && health.IsEqual(set.HealthChecker) {
		health = nil
	}
	changes := plan.Diff(set.Backends, wanted)
	if changes.Len() == 0 && health == nil {
		return nil, nil
	}
	w := &Write{loadBalancer: l.ID, kind: lbrecord.BackendSet, object: set.Name, etag: l.ETag}
	fixed := set.raw.SslConfiguration != nil && valueOf(set.raw.SslConfiguration.CipherSuiteName) == customizedSuite
	switch {
	case fixed && health != nil:
		return nil, fmt.Errorf("backend set %s has the cipher suite %s, with which its health checker cannot be changed: name a "+
			"predefined suite",
			set.Name, customizedSuite)
	case fixed || changes.Len() == 1 && health == nil:
		w.changeOne(&changes)
	default:
		w.action, w.body = lblayout.Update, buildReplacement(set, wanted, health)
	}
	return w, nil
}

// changeOne makes the most urgent change: a new backend, one that drains, one that goes.
func (w *Write) changeOne(c *plan.Changes) {
	switch {
	case len(c.Create) > 0:
		w.action, w.backend = lblayout.Create, c.Create[0].Address.String()
		w.body = loadbalancer.CreateBackendDetails(backendDetails(c.Create[0]))
	case len(c.Update) > 0:
		w.action, w.backend = lblayout.Update, c.Update[0].Address.String()
		w.body = convertDetails[loadbalancer.UpdateBackendDetails](backendDetails(c.Update[0]))
	default:
		w.action, w.backend = lblayout.Delete, c.Delete[0].Address.String()
	}
}

func backendDetails(b plan.Backend) loadbalancer.BackendDetails {
	d := loadbalancer.BackendDetails{
		IpAddress: common.String(b.Address.Addr().String()), Port: common.Int(int(b.Address.Port())), Weight: &b.Weight,
		Drain: &b.Drain, Backup: &b.Backup, Offline: &b.Offline,
	}
	if b.MaxConnections > 0 {
		d.MaxConnections = &b.MaxConnections
	}
	return d
}

// buildReplacement returns a whole set with other backends. Fields that are left out would be removed.
func buildReplacement(set *BackendSet, wanted []plan.Backend, health *plan.HealthChecker) loadbalancer.UpdateBackendSetDetails {
	d := convertDetails[loadbalancer.UpdateBackendSetDetails](set.raw)
	d.Backends = make([]loadbalancer.BackendDetails, 0, len(wanted))
	for _, b := range wanted {
		d.Backends = append(d.Backends, backendDetails(b))
	}
	if health != nil {
		d.HealthChecker = healthDetails(health, d.HealthChecker)
	}
	return d
}

// convertDetails returns a part of a load balancer as another type of the SDK: reads and writes have types of their own, whose fields have
// the same names in JSON.
func convertDetails[T any](part any) T {
	var details T
	text, err := json.Marshal(part)
	if err == nil {
		err = json.Unmarshal(text, &details)
	}
	if err != nil {
		panic(fmt.Sprintf("%T is no %T: %v", part, details, err)) // unreachable: the fields have the same types
	}
	return details
}

// healthDetails returns the health checker of a write. What a plan does not have stays.
func healthDetails(h *plan.HealthChecker, before *loadbalancer.HealthCheckerDetails) *loadbalancer.HealthCheckerDetails {
	d := &loadbalancer.HealthCheckerDetails{
		Protocol: &h.Protocol, Port: &h.Port, ReturnCode: &h.ReturnCode, Retries: &h.Retries,
		TimeoutInMillis: common.Int(int(h.Timeout / time.Millisecond)), IntervalInMillis: common.Int(int(h.Interval / time.Millisecond)),
	}
	if h.URLPath != "" {
		d.UrlPath = &h.URLPath
	}
	if before != nil {
		d.ResponseBodyRegex, d.IsForcePlainText = before.ResponseBodyRegex, before.IsForcePlainText
	}
	return d
}

// RetryToken returns a retry token. The same write, after the same state of the load balancer, has the same token, even after a restart:
// a write whose answer was lost has no second effect. attempt makes another one after the service has refused or failed a write.
func (w *Write) RetryToken(attempt int) string {
	body, err := json.Marshal(w.body)
	if err != nil {
		panic(fmt.Sprintf("write is not JSON: %v", err)) // unreachable: it consists of strings and numbers
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s\n%s\n%d\n%s", w.loadBalancer, w.object, w.etag, w.Operation(), w.backend, attempt,
		body))
	return hex.EncodeToString(sum[:])[:tokenLength]
}

// tokenLength is less than the limit of 64.
const tokenLength = 32
