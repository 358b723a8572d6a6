package kube

import (
	"errors"
	"fmt"

	"k8s.io/client-go/discovery"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Clientset is the part of client-go's clientset that services use; its fake implements it, too. The whole clientset
// includes the clients of all Kubernetes groups, a third of a service's build time.
type Clientset interface {
	AuthenticationV1() authenticationv1.AuthenticationV1Interface
	AuthorizationV1() authorizationv1.AuthorizationV1Interface
	CoordinationV1() coordinationv1.CoordinationV1Interface
	CoreV1() corev1.CoreV1Interface
	Discovery() discovery.DiscoveryInterfaces
}

// clientset implements Clientset.
type clientset struct {
	authentication *authenticationv1.AuthenticationV1Client
	authorization  *authorizationv1.AuthorizationV1Client
	coordination   *coordinationv1.CoordinationV1Client
	core           *corev1.CoreV1Client
	discovery      *discovery.DiscoveryClient
}

// NewClientset returns clients of an API server that share connections and the rate limit.
func NewClientset(config *rest.Config) (Clientset, error) {
	config = rest.CopyConfig(config)
	if config.RateLimiter == nil && config.QPS > 0 {
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, config.Burst)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client of the API server: %w", err)
	}
	var made clientset
	var errs [5]error
	made.authentication, errs[0] = authenticationv1.NewForConfigAndClient(config, client)
	made.authorization, errs[1] = authorizationv1.NewForConfigAndClient(config, client)
	made.coordination, errs[2] = coordinationv1.NewForConfigAndClient(config, client)
	made.core, errs[3] = corev1.NewForConfigAndClient(config, client)
	made.discovery, errs[4] = discovery.NewDiscoveryClientForConfigAndClient(config, client)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("make client of the API server: %w", err)
	}
	return &made, nil
}

func (c *clientset) AuthenticationV1() authenticationv1.AuthenticationV1Interface {
	return c.authentication
}

func (c *clientset) AuthorizationV1() authorizationv1.AuthorizationV1Interface {
	return c.authorization
}

func (c *clientset) CoordinationV1() coordinationv1.CoordinationV1Interface { return c.coordination }

func (c *clientset) CoreV1() corev1.CoreV1Interface { return c.core }

func (c *clientset) Discovery() discovery.DiscoveryInterfaces { return c.discovery }
