// Package lbrecord stores which objects of a load balancer belong to the Gateways of this cluster.
//
// Each load balancer has one ConfigMap in the namespace of the program. It lists the names of objects by kind, and is written before
// any of them is created. Only objects in the record are changed or deleted: everything else on the load balancer is foreign, even if
// it has a name that the program would choose.
//
// A record that is lost cannot be told from a load balancer that someone else programmed. The program stops then, and subcommand
// adopt writes a new record.
//
// The record also has the claims of namespaces to hosts and paths, with the time since when the load balancer serves them: the
// incumbent keeps its host across restarts.
package lbrecord

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of objects of a load balancer, as it is in paths of the API.
type Kind string

// Kinds of objects.
const (
	Listener      Kind = "listeners"
	RoutingPolicy Kind = "routingPolicies"
	RuleSet       Kind = "ruleSets"
	Hostname      Kind = "hostnames"
	Certificate   Kind = "certificates"
	BackendSet    Kind = "backendSets"
)

var kinds = []Kind{Listener, RoutingPolicy, RuleSet, Hostname, Certificate, BackendSet}

// Object is an object of a load balancer.
type Object struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Key says what the object is for. An object keeps its name as long as something has its key. See ListenerKey, HostnameKey,
	// CertificateKey, routing.PolicyKey and routing.Set.Key.
	Key string `json:"key"`
	// AdoptedRules are the names of rules of another controller in a routing policy, which the rules of the program replace. Other
	// rules that the policy has stay.
	AdoptedRules []string `json:"adoptedRules,omitempty"`
	// Owner is the Gateway of a listener, as namespace/name. Other kinds have none.
	Owner string `json:"owner,omitempty"`
	// Namespaces are the namespaces whose rules a listener serves, sorted.
	Namespaces []string `json:"namespaces,omitempty"`
	// Retired is since when no route needs a backend set, which drains. Zero: it is needed.
	Retired time.Time `json:"retired,omitzero"`
}

// Claim is the claim of a namespace to a host and path.
type Claim struct {
	Namespace string    `json:"namespace"`
	Since     time.Time `json:"since"`
}

// Record is the record of a load balancer.
type Record struct {
	LoadBalancer string   `json:"loadBalancer"`
	Objects      []Object `json:"objects,omitempty"` // sorted by kind and name
	// Claims are claims by the hash of their text: see ClaimHash.
	Claims map[string]Claim `json:"claims,omitempty"`
	// Gateways are the Gateways whose listeners the load balancer has, as namespace/name, sorted. If one of them cannot be read any
	// longer, the load balancer stays as it is.
	Gateways []string `json:"gateways,omitempty"`
}

// FindByKey returns the object with a key, or nil.
func (r *Record) FindByKey(kind Kind, key string) *Object {
	return r.findObject(func(o *Object) bool { return o.Kind == kind && o.Key == key })
}

// FindByName returns the object with a name, or nil.
func (r *Record) FindByName(kind Kind, name string) *Object {
	return r.findObject(func(o *Object) bool { return o.Kind == kind && o.Name == name })
}

// HasObject reports whether an object is in the record. It accepts a nil Record.
func (r *Record) HasObject(kind Kind, name string) bool {
	return r != nil && r.FindByName(kind, name) != nil
}

func (r *Record) findObject(match func(*Object) bool) *Object {
	for i := range r.Objects {
		if match(&r.Objects[i]) {
			return &r.Objects[i]
		}
	}
	return nil
}

// NamesByKey returns the names of all objects of a kind by their keys.
func (r *Record) NamesByKey(kind Kind) map[string]string {
	names := map[string]string{}
	for i := range r.Objects {
		if o := &r.Objects[i]; o.Kind == kind {
			names[o.Key] = o.Name
		}
	}
	return names
}

// PutObject adds an object, or replaces the one with its kind and name.
func (r *Record) PutObject(o Object) {
	if same := r.FindByName(o.Kind, o.Name); same != nil {
		*same = o
		return
	}
	r.Objects = append(r.Objects, o)
	r.sortObjects()
}

// RemoveObject removes an object.
func (r *Record) RemoveObject(kind Kind, name string) {
	r.Objects = slices.DeleteFunc(r.Objects, func(o Object) bool { return o.Kind == kind && o.Name == name })
}

func (r *Record) sortObjects() {
	slices.SortFunc(r.Objects, func(a, b Object) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
}

// Clone returns a copy.
func (r *Record) Clone() *Record {
	c := *r
	c.Objects, c.Gateways = slices.Clone(r.Objects), slices.Clone(r.Gateways)
	c.Claims = map[string]Claim{}
	maps.Copy(c.Claims, r.Claims)
	return &c
}

// Encode returns the text of a record. Equal records have equal texts.
func (r *Record) Encode() string {
	own := r.Clone()
	own.sortObjects()
	slices.Sort(own.Gateways)
	text, err := json.Marshal(own)
	if err != nil {
		panic(fmt.Sprintf("record is not JSON: %v", err)) // unreachable: it consists of texts and times
	}
	return string(text)
}

// Parse parses the text of a record.
func Parse(text string) (*Record, error) {
	var r Record
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, fmt.Errorf("parse record: %w", err)
	}
	if r.LoadBalancer == "" {
		return nil, errors.New("parse record: no loadBalancer")
	}
	for i := range r.Objects {
		if o := &r.Objects[i]; !slices.Contains(kinds, o.Kind) || o.Name == "" || o.Key == "" {
			return nil, fmt.Errorf("parse record: object %d has no known kind, no name or no key", i)
		}
	}
	r.sortObjects()
	return &r, nil
}

// ListenerKey returns the key of a listener. Listeners of a Gateway that get another name keep their listener of the load balancer.
func ListenerKey(port int32, hostname string) string {
	return fmt.Sprintf("listener %d %s", port, strings.ToLower(hostname))
}

// HostnameKey returns the key of a hostname.
func HostnameKey(hostname string) string { return "hostname " + strings.ToLower(hostname) }

// CertificateKey returns the key of a certificate from a Secret. fingerprint is a hash of its content: certificates of load balancers
// cannot be changed, so other content needs another certificate.
func CertificateKey(namespace, name, fingerprint string) string {
	return "certificate " + namespace + "/" + name + " " + fingerprint
}

// RuleSetKey returns the key of the rule set of a listener of a Gateway.
func RuleSetKey(gateway, listener string) string { return "ruleset " + gateway + "/" + listener }

// ClaimHash returns the hash of the text of a claim. Paths of claims are long, and a ConfigMap has a limit.
func ClaimHash(text string) string { return hashText(text)[:claimLength] }

// claimLength is the length of a hash of a claim, in characters of 5 bits: long enough that a tenant cannot find a second text with the
// same hash.
const claimLength = 26

func hashText(text string) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))
}
