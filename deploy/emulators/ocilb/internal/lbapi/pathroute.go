package lbapi

import (
	"slices"
	"strings"

	"fairlead.dev/deploy/emulators/ocilb/internal/routing"
)

// PathRouteSet is a path route set. Its request form has the same fields; Name is only in requests that create it.
type PathRouteSet struct {
	Name       string      `json:"name"`
	PathRoutes []PathRoute `json:"pathRoutes"`
}

// PathRoute is a rule of a path route set.
type PathRoute struct {
	Path           string        `json:"path"`
	PathMatchType  PathMatchType `json:"pathMatchType"`
	BackendSetName string        `json:"backendSetName"`
}

// PathMatchType is how a rule compares the path of a request.
type PathMatchType struct {
	MatchType string `json:"matchType"`
}

// notInNames are the characters that the name of a path route set cannot have.
const notInNames = `;?#%/\[]`

func (p *PathRouteSet) targets() []string {
	if p == nil {
		return nil
	}
	names := make([]string, 0, len(p.PathRoutes))
	for i := range p.PathRoutes {
		names = append(names, p.PathRoutes[i].BackendSetName)
	}
	return names
}

// PutPathRouteSet creates a path route set, or replaces its rules.
func (lb *LoadBalancer) PutPathRouteSet(p *PathRouteSet, create bool, limits Limits) *Error {
	if err := present(lb.PathRouteSets, "path route set", p.Name, create); err != nil {
		return err
	}
	var c check
	c.has(p.Name != "", "name")
	c.that(len(p.Name) <= maxName && !strings.HasPrefix(p.Name, ".") && !strings.ContainsAny(p.Name, notInNames),
		"Invalid path route set name '%.60s'", p.Name)
	c.has(len(p.PathRoutes) > 0, "pathRoutes")
	c.limit(len(p.PathRoutes), limits.PathRoutesPerSet, "path-routes-per-path-route-set")
	if c.err != nil {
		return c.err
	}
	for i := range p.PathRoutes {
		c.also(p.PathRoutes[i].validate(p, lb))
		same := func(other PathRoute) bool { return p.PathRoutes[i].repeats(other) }
		c.that(!slices.ContainsFunc(p.PathRoutes[:i], same), "Path '%.60s' is listed twice in path route set '%s'", p.PathRoutes[i].Path, p.Name)
	}
	if c.err != nil {
		return c.err
	}
	set := *p
	lb.PathRouteSets[p.Name] = &set
	c.limit(len(lb.PathRouteSets), limits.Listeners, "path-route-sets-per-load-balancer")
	c.also(lb.checkCookies(func(l *Listener) bool { return valueOr(l.PathRouteSetName, "") == p.Name }))
	return c.err
}

func (r *PathRoute) validate(p *PathRouteSet, lb *LoadBalancer) *Error {
	var c check
	c.has(r.Path != "", "path")
	c.that(validPath(r.Path), "Invalid path '%.60s' in path route set '%s'", r.Path, p.Name)
	c.has(r.PathMatchType.MatchType != "", "matchType")
	c.that(routing.IsMatchType(r.PathMatchType.MatchType), "Invalid matchType '%.60s' in path route set '%s'", r.PathMatchType.MatchType,
		p.Name)
	c.has(r.BackendSetName != "", "backendSetName")
	c.that(lb.BackendSets[r.BackendSetName] != nil, "Path route set '%s' refers to backend set '%.60s', which does not exist in load balancer %s", p.Name, r.BackendSetName, lb.ID)
	return c.err
}

// validPath reports whether a path can be compared: it has no wildcards.
func validPath(path string) bool {
	return path != "" && len(path) <= maxPath && !strings.Contains(path, "*") && !strings.ContainsFunc(path, notInPath)
}

func (r *PathRoute) repeats(other PathRoute) bool {
	return strings.EqualFold(r.Path, other.Path) && r.PathMatchType == other.PathMatchType
}

// DeletePathRouteSet removes a path route set that no listener uses.
func (lb *LoadBalancer) DeletePathRouteSet(name string) *Error {
	if lb.PathRouteSets[name] == nil {
		return NotFound("path route set", name)
	}
	if err := lb.usedBy("path route set", name, func(l *Listener) bool { return valueOr(l.PathRouteSetName, "") == name }); err != nil {
		return err
	}
	delete(lb.PathRouteSets, name)
	return nil
}
