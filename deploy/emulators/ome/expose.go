package ome

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// exposure applies OME's own Ingress, or the Service with the service's name.
func (r *reconciler) exposure(ctx context.Context, s *inferenceService, list []component, config configuration) error {
	var err error
	if config.DisableIngressCreation {
		// An existing Ingress stays: it has no label, so clean-up does not find it.
		s.Status.set(condition{Type: conditionIngress, Status: corev1.ConditionTrue, Reason: reasonDisabled, Message: messageDisabled},
			r.now())
	} else {
		err = r.ingress(ctx, s, list, config)
	}
	if err != nil {
		return err
	}
	return r.external(ctx, s, entry(list), config)
}

// entry returns the component that receives client requests: the router, or the engine without a router.
func entry(list []component) *component {
	if router := find(list, Router); router != nil {
		return router
	}
	return find(list, Engine)
}

// find returns a component, or nil.
func find(list []component, r Role) *component {
	if i := slices.IndexFunc(list, func(c component) bool { return c.role == r }); i >= 0 {
		return &list[i]
	}
	return nil
}

// external applies the Service with the service's name if OME's ingress is disabled. Otherwise it deletes any Service with that
// name, regardless of the owner. For a cluster-local service with the ingress disabled it always fails: the URL requires the
// Service, which OME does not create.
func (r *reconciler) external(ctx context.Context, s *inferenceService, entry *component, config configuration) error {
	live := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	found, err := r.store.get(ctx, services, live)
	if err != nil {
		return err
	}
	if !config.DisableIngressCreation || s.clusterLocal() {
		if found {
			err = r.store.delete(ctx, services, s.Namespace, s.Name)
		}
		if err == nil && config.DisableIngressCreation {
			err = fmt.Errorf("set URL of the external Service: Service %s does not exist", s.Name)
		}
		return err
	}
	wanted := buildExternal(s, entry)
	if !found {
		if err = r.store.create(ctx, services, wanted); err == nil && r.options.Release == Release12 {
			err = fmt.Errorf("set URL of the external Service: %w", errStale)
		}
	} else if !sameExternal(live, wanted) {
		live.Spec, live.Labels, live.Annotations = wanted.Spec, wanted.Labels, wanted.Annotations
		err = r.store.update(ctx, services, live)
	}
	url := fmt.Sprintf("http://%s:%d", r.inCluster(s, s.Name), wanted.Spec.Ports[0].Port)
	s.Status.URL, s.Status.Address = url, &address{URL: url}
	return err
}

func sameExternal(live, wanted *corev1.Service) bool {
	return reflect.DeepEqual(live.Spec.Ports, wanted.Spec.Ports) && reflect.DeepEqual(live.Spec.Selector, wanted.Spec.Selector) &&
		live.Spec.Type == wanted.Spec.Type
}

// ingress applies OME's own Ingress once the component of gate is ready. It replaces any Ingress with the service's name. The
// Ingress stays when the component is no longer ready.
func (r *reconciler) ingress(ctx context.Context, s *inferenceService, list []component, config configuration) error {
	switch {
	case config.EnableGatewayAPI && r.options.Release == Release12:
		return errNoRoute
	case config.EnableGatewayAPI:
		return errRoutes
	case entry(list).mode == modeRay:
		return errRay
	case !s.Status.isTrue(readyCondition(gate(list))):
		s.Status.set(condition{Type: conditionIngress, Status: corev1.ConditionFalse, Reason: reasonNotReady, Message: messageNotReady},
			r.now())
		return nil
	}
	rules, err := rulesOf(s, list, config)
	if err != nil {
		return err
	}
	if err := r.applyIngress(ctx, buildIngress(s, config, r.options.Release, rules)); err != nil {
		return err
	}
	port := entry(list).ports()[0].Port
	s.Status.URL = fmt.Sprintf("%s://%s:%d", config.URLScheme, rules[0].host, port)
	s.Status.Address = &address{URL: fmt.Sprintf("%s://%s:%d", config.URLScheme, r.inCluster(s, r.addressed(s, list)), port)}
	s.Status.set(condition{Type: conditionIngress, Status: corev1.ConditionTrue}, r.now())
	return nil
}

// gate returns the component that must be ready before OME creates the Ingress: the router, else the decoder, although the
// engine receives the requests, else the engine.
func gate(list []component) Role {
	for _, r := range []Role{Router, Decoder} {
		if find(list, r) != nil {
			return r
		}
	}
	return Engine
}

// addressed returns the name of the Service in status.address. Without a router, release 1.2 names a missing Service.
func (r *reconciler) addressed(s *inferenceService, list []component) string {
	switch {
	case find(list, Router) != nil:
		return s.Name + "-" + string(Router)
	case r.options.Release == Release13:
		return s.Name + "-" + string(Engine)
	}
	return s.Name
}

// rulesOf returns the rules of an Ingress: one for the service, then one for each component if there are several.
func rulesOf(s *inferenceService, list []component, config configuration) ([]rule, error) {
	host, err := config.host(s, s.Name)
	if err != nil {
		return nil, err
	}
	rules := []rule{{host: host, backend: entry(list)}}
	if len(list) == 1 {
		return rules, nil
	}
	for _, role := range []Role{Router, Engine, Decoder} {
		c := find(list, role)
		if c == nil {
			continue
		}
		if host, err = config.host(s, c.name); err != nil {
			return nil, err
		}
		rules = append(rules, rule{host: host, backend: c})
	}
	return rules, nil
}

// applyIngress creates or updates an Ingress. It compares only the spec, not the owner.
func (r *reconciler) applyIngress(ctx context.Context, wanted *networkingv1.Ingress) error {
	live := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: wanted.Namespace, Name: wanted.Name}}
	found, err := r.store.get(ctx, ingresses, live)
	switch {
	case err != nil:
		return err
	case !found:
		return r.store.create(ctx, ingresses, wanted)
	case apiequality.Semantic.DeepEqual(live.Spec, wanted.Spec):
		return nil
	}
	wanted.ResourceVersion = live.ResourceVersion
	return r.store.update(ctx, ingresses, wanted)
}
