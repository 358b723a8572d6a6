package ocilb

import (
	"net/http"
	"slices"
	"strings"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
	"fairlead.dev/deploy/emulators/ocilb/internal/state"
)

// balancerMutations returns the operations that create, change and delete load balancers themselves, by pattern.
func (e *Emulator) balancerMutations() map[string]named {
	const lb = " " + onBalancerPath
	return map[string]named{
		"POST " + base + "/loadBalancers": {"CreateLoadBalancer", e.createLoadBalancer},
		"PUT" + lb:                        e.mutation("UpdateLoadBalancer", onItself((*lbapi.LoadBalancer).Update)),
		"DELETE" + lb:                     e.mutation("DeleteLoadBalancer", deleteLoadBalancer),
		"PUT" + lb + "/updateShape":       e.mutation("UpdateLoadBalancerShape", onItself((*lbapi.LoadBalancer).UpdateShape)),
		"PUT" + lb + "/networkSecurityGroups": e.mutation("UpdateNetworkSecurityGroups",
			onItself((*lbapi.LoadBalancer).UpdateNetworkSecurityGroups)),
		"POST" + lb + "/changeCompartment": e.mutation("ChangeLoadBalancerCompartment", onItself((*lbapi.LoadBalancer).ChangeCompartment)),
	}
}

// onItself returns a change of a load balancer itself.
func onItself[D any](apply func(lb *lbapi.LoadBalancer, d *D) *lbapi.Error) change {
	return func(r *request) (state.Mutation, *lbapi.Error) {
		d := new(D)
		if err := decode(r, d); err != nil {
			return state.Mutation{}, err
		}
		return state.Mutation{
			Resource: lbapi.Itself, Apply: func(lb *lbapi.LoadBalancer, _ lbapi.Limits) *lbapi.Error { return apply(lb, d) },
		}, nil
	}
}

func deleteLoadBalancer(*request) (state.Mutation, *lbapi.Error) {
	return state.Mutation{Resource: lbapi.Itself, Deletes: true, Apply: func(lb *lbapi.LoadBalancer, _ lbapi.Limits) *lbapi.Error {
		return lb.CheckDelete()
	}}, nil
}

// createLoadBalancer creates a load balancer. Only its work request tells its OCID.
func (e *Emulator) createLoadBalancer(r *request) (answer, *lbapi.Error) {
	token, err := retryToken(r)
	if err != nil {
		return answer{}, err
	}
	d := &lbapi.CreateLoadBalancerDetails{}
	if err := decode(r, d); err != nil {
		return answer{}, err
	}
	id, err := e.state.Create(state.Creation{Type: "CreateLoadBalancer", Body: r.body, Token: token, Build: d.LoadBalancer})
	return answer{workRequest: id}, err
}

// maxToken is the length of retry tokens.
const maxToken = 64

// retryToken returns the retry token of a request, or nothing.
func retryToken(r *request) (string, *lbapi.Error) {
	token := r.Header.Get(headerRetryToken)
	if len(token) > maxToken {
		return "", lbapi.Errorf(http.StatusBadRequest, lbapi.CodeInvalidParameter, "Invalid opc-retry-token: it is longer than %d characters", maxToken)
	}
	return token, nil
}

// inCompartment returns the compartment of a list, or refuses the request.
func inCompartment(r *request) (string, *lbapi.Error) {
	compartment := r.URL.Query().Get("compartmentId")
	if compartment == "" {
		return "", lbapi.Errorf(http.StatusBadRequest, lbapi.CodeMissingParameter, "The required parameter 'compartmentId' is missing")
	}
	return compartment, nil
}

// listLoadBalancers lists the load balancers of a compartment. The order of a list that asks for none is that of their creation.
func (e *Emulator) listLoadBalancers(r *request) (answer, *lbapi.Error) {
	compartment, err := inCompartment(r)
	if err != nil {
		return answer{}, err
	}
	q := r.URL.Query()
	for name, values := range map[string][]string{
		"detail": {"full", "simple"}, "sortBy": {sortByTime, sortByName}, "sortOrder": {ascending, descending},
	} {
		if text := q.Get(name); text != "" && !slices.Contains(values, text) {
			return answer{}, lbapi.Errorf(http.StatusBadRequest, lbapi.CodeInvalidParameter, "Invalid value '%.60s' of %s", text, name)
		}
	}
	all := slices.DeleteFunc(e.state.List(compartment), func(lb *lbapi.LoadBalancer) bool {
		name, lifecycle := q.Get("displayName"), q.Get("lifecycleState")
		return name != "" && name != lb.DisplayName || lifecycle != "" && lifecycle != lb.LifecycleState
	})
	sortBalancers(all, q.Get("sortBy"), q.Get("sortOrder"))
	p, err := paged(r, all)
	return answer{object: p}, err
}

// Orders of lists.
const (
	sortByTime = "TIMECREATED"
	sortByName = "DISPLAYNAME"
	ascending  = "ASC"
	descending = "DESC"
)

// sortBalancers sorts load balancers, which are in the order of their creation: times descend by default, and names ascend.
func sortBalancers(all []*lbapi.LoadBalancer, by, order string) {
	switch {
	case by == sortByName:
		slices.SortStableFunc(all, func(a, b *lbapi.LoadBalancer) int { return strings.Compare(a.DisplayName, b.DisplayName) })
		if order == descending {
			slices.Reverse(all)
		}
	case by == sortByTime && order != ascending, by == "" && order == descending:
		slices.Reverse(all)
	}
}
