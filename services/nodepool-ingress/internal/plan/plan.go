package plan

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/services/nodepool-ingress/internal/profile"
)

// Input is everything that a plan depends on.
type Input struct {
	Object   *v1alpha1.YurtIngress
	Policy   Policy
	Manifest Manifest
	Pools    map[string]Observed // of each pool in the specification
	Live     []Object            // all objects that the YurtIngress controls
	// TraefikKinds is whether the API server serves all custom resources of Traefik.
	TraefikKinds bool
}

// Manifest is the custom manifest that the specification names.
type Manifest struct {
	Source string // where it is, for messages
	Found  bool
	Text   string
}

// Observed is the state of a pool outside of the objects that the operator writes.
type Observed struct {
	Exists     bool // there is a NodePool of the name, or a node with the label
	Nodes      int
	ReadyNodes int
	Claim      Claim
}

// Plan is the desired state of a YurtIngress and the changes due now.
type Plan struct {
	Settings Settings
	Pools    []Pool // in the order of the specification, each once
	Removed  []Removed
}

// Removed is a pool that is no longer in the specification, or that belongs to another YurtIngress.
type Removed struct {
	Name    string
	Objects []Object // in the order of deletion
}

// Pool is a pool of a plan.
type Pool struct {
	Name      string
	Class     string
	Image     string
	Addresses []string // as in the specification
	Replicas  int32
	Observed  Observed

	Owned    bool     // the YurtIngress has the pool, or may claim it
	Problem  *Problem // the pool is not accepted, and does not change
	Deferral deferral // the pool is accepted, and does not change now
	Workload string
	Service  string
	Wanted   []Object
	Stale    []Object // delete them after the wanted objects have been applied, in this order
	Revision string
	Before   Readiness // of the Deployment as it is
}

// CanChange reports whether the objects of the pool are applied now.
func (p *Pool) CanChange() bool { return p.Problem == nil && p.Deferral.Reason == "" }

// IsCurrent reports whether the last apply was of the wanted revision.
func (p *Pool) IsCurrent() bool { return p.Before.Exists && p.Before.Revision == p.Revision }

// IsOffline reports whether no node of the pool is ready.
func (p *Pool) IsOffline() bool { return p.Observed.ReadyNodes == 0 }

// Build returns the plan for a YurtIngress.
func Build(in *Input) Plan {
	spec := &in.Object.Spec
	plan := Plan{Settings: ResolveSettings(spec, &in.Policy)}
	listed := map[string]int{}
	for i := range spec.Pools {
		listed[spec.Pools[i].Name]++
	}
	live := groupByPool(in.Live)
	seen := sets.New[string]()
	for i := range spec.Pools {
		if p := &spec.Pools[i]; !seen.Has(p.Name) && seen.Len() < MaxPools {
			seen.Insert(p.Name)
			plan.Pools = append(plan.Pools, plan.planPool(in, p, listed[p.Name]))
		}
	}
	wanted := plan.wantedKeys()
	for i := range plan.Pools {
		plan.Pools[i].compareLive(in.Live, live[plan.Pools[i].Name], wanted)
	}
	plan.planRollout()
	plan.planRemovals(live, listed, wanted)
	return plan
}

// groupByPool returns the live objects of each pool.
func groupByPool(objects []Object) map[string][]Object {
	pools := map[string][]Object{}
	for _, l := range objects {
		pools[l.PoolName()] = append(pools[l.PoolName()], l)
	}
	return pools
}

// planPool plans one pool, without regard to the others.
func (plan *Plan) planPool(in *Input, spec *v1alpha1.IngressPool, listed int) Pool {
	settings, problems := plan.Settings.poolSettings(&in.Object.Spec, spec, &in.Policy)
	observed := in.Pools[spec.Name]
	settings.Nodes = observed.Nodes
	settings.CustomResources = settings.Profile == v1alpha1.ProfileTraefik && in.TraefikKinds
	p := Pool{
		Name: spec.Name, Class: settings.Class, Addresses: PoolAddresses(spec), Replicas: settings.Replicas, Observed: observed,
		Image: settings.Image,
	}
	problems = slices.Concat(plan.Settings.Problems, problems)
	if listed > 1 {
		problems = append(problems,
			*profile.NewProblem(v1alpha1.ReasonInvalid, "pool %s is listed %d times", quoteInput(spec.Name), listed))
	}
	if in.Object.Spec.CustomManifest != nil && len(problems) == 0 {
		settings.Manifest, problems = in.Manifest.profileManifest()
	}
	if len(problems) == 0 {
		problems = p.buildObjects(in, &settings)
	}
	claimed := p.claimPool(in)
	switch {
	case len(problems) > 0:
		p.Problem = &problems[0]
	case claimed != nil:
		p.Problem = claimed
	case !observed.Exists:
		p.Problem = profile.NewProblem(v1alpha1.ReasonPoolNotFound,
			"neither NodePool %s nor a node with the label %s=%s exists", spec.Name, settings.LabelKey, spec.Name)
	}
	return p
}

// wantedKeys returns the keys of the wanted objects of all pools. An object that one pool wants is never deleted for another pool, whatever
// its label says: the apply corrects the label.
func (plan *Plan) wantedKeys() sets.Set[Key] {
	wanted := sets.New[Key]()
	for i := range plan.Pools {
		for j := range plan.Pools[i].Wanted {
			wanted.Insert(plan.Pools[i].Wanted[j].Key())
		}
	}
	return wanted
}

// profileManifest returns the manifest of the profile custom.
func (m *Manifest) profileManifest() (*profile.Manifest, []Problem) {
	var found problems
	switch {
	case !m.Found:
		found.addProblem(v1alpha1.ReasonInvalidManifest, "%s does not exist, or its ConfigMap does not have "+
			"the label %s: \"true\"", m.Source,
			v1alpha1.LabelCustomManifest)
	case len(m.Text) > MaxManifest:
		found.addProblem(v1alpha1.ReasonInvalidManifest, "%s has %d bytes, more than %d", m.Source, len(m.Text), MaxManifest)
	}
	return &profile.Manifest{Source: m.Source, Text: m.Text}, found
}

// buildObjects builds the objects of the pool.
func (p *Pool) buildObjects(in *Input, settings *profile.Pool) []Problem {
	install := in.Policy.Install
	install.CheckImage = in.Policy.checkAllowedImage
	built, problems := profile.Build(install, *settings)
	if len(problems) > 0 {
		return problems
	}
	p.Image, p.Workload, p.Service = built.Image, built.Workload, built.Service
	var err error
	p.Wanted, p.Revision, err = completeObjects(in.Object, p.Name, built.Objects)
	if err != nil {
		return []Problem{*profile.NewProblem(v1alpha1.ReasonInvalid, "%v", err)}
	}
	return nil
}

// claimPool returns a problem unless the YurtIngress has the pool, or may claim it.
func (p *Pool) claimPool(in *Input) *Problem {
	claim := &p.Observed.Claim
	winner, found := claim.ChooseWinner()
	switch {
	case winner == in.Object.UID:
		p.Owned = true
		return nil
	case !found && claim.Class.Exists:
		return profile.NewProblem(v1alpha1.ReasonNameConflict,
			"IngressClass %s exists, and is not of a pool: delete it, or rename the pool", p.Class)
	}
	return profile.NewProblem(v1alpha1.ReasonPoolConflict,
		"YurtIngress %s has the pool: remove the pool from one of both", claim.NameOf(winner))
}

// compareLive finds the Deployment of the pool, and objects that are no longer wanted.
func (p *Pool) compareLive(objects, live []Object, wanted sets.Set[Key]) {
	deployment := FindObject(objects, Key{Resource: Deployments, Name: p.Workload})
	if p.Workload == "" {
		if i := slices.IndexFunc(live, func(l Object) bool { return l.Resource == Deployments && !wanted.Has(l.Key()) }); i >= 0 {
			deployment = live[i].Object
		}
	}
	p.Before = EvaluateReadiness(deployment)
	if p.Problem != nil {
		return
	}
	p.Stale = slices.DeleteFunc(slices.Clone(live), func(l Object) bool { return wanted.Has(l.Key()) })
	SortForDeletion(p.Stale)
}

// planRollout decides which of the accepted pools change now.
func (plan *Plan) planRollout() {
	var accepted []*Pool
	for i := range plan.Pools {
		if p := &plan.Pools[i]; p.Problem == nil {
			accepted = append(accepted, p)
		}
	}
	scheduleRollout(accepted, plan.Settings.Strategy)
}

// planRemovals finds the pools that are no longer in the specification, and those that belong to another YurtIngress.
func (plan *Plan) planRemovals(live map[string][]Object, listed map[string]int, wanted sets.Set[Key]) {
	lost := sets.New[string]()
	for i := range plan.Pools {
		if p := &plan.Pools[i]; p.Problem != nil && p.Problem.Reason == v1alpha1.ReasonPoolConflict {
			lost.Insert(p.Name)
		}
	}
	for pool, objects := range live {
		if listed[pool] > 0 && !lost.Has(pool) {
			continue
		}
		objects = slices.DeleteFunc(objects, func(o Object) bool { return !lost.Has(pool) && wanted.Has(o.Key()) })
		if len(objects) > 0 {
			SortForDeletion(objects)
			plan.Removed = append(plan.Removed, Removed{Name: pool, Objects: objects})
		}
	}
	slices.SortFunc(plan.Removed, func(a, b Removed) int { return strings.Compare(a.Name, b.Name) })
}

// SortForDeletion sorts objects in the order of deletion: the reverse of the order of creation.
func SortForDeletion(objects []Object) {
	kinds := Kinds()
	rank := func(l *Object) int {
		return slices.IndexFunc(kinds, func(k Kind) bool { return k.Resource == l.Resource })
	}
	slices.SortFunc(objects, func(a, b Object) int {
		if d := rank(&b) - rank(&a); d != 0 {
			return d
		}
		return strings.Compare(a.Object.GetName(), b.Object.GetName())
	})
}

// MustReplace reports whether the live object must be deleted before the wanted one can be applied, because a field cannot change.
func MustReplace(wanted *Object, live *unstructured.Unstructured) bool {
	if live == nil {
		return false
	}
	differs := func(fields ...string) bool {
		a, _, _ := unstructured.NestedFieldNoCopy(wanted.Object.Object, fields...)
		b, _, _ := unstructured.NestedFieldNoCopy(live.Object, fields...)
		return !equalJSON(a, b)
	}
	switch wanted.Resource {
	case IngressClasses:
		return differs("spec", "controller")
	case ClusterRoleBindings, RoleBindings:
		return differs("roleRef")
	case Deployments:
		return differs("spec", "selector")
	case Services:
		kind, _, _ := unstructured.NestedString(live.Object, "spec", "type")
		next, _, _ := unstructured.NestedString(wanted.Object.Object, "spec", "type")
		balancer := string(corev1.ServiceTypeLoadBalancer)
		return kind == balancer && next == balancer && differs("spec", "loadBalancerClass")
	}
	return false
}
