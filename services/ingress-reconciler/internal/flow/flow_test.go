package flow

import (
	"testing"
)

const gatewayAPI = "ingressDomain: example.com\nomeIngressGateway: gateways/public\nholdSeconds: 1\n"

const gateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: test}
spec: {controllerName: example.com/test}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: gateways}
spec:
  gatewayClassName: test
  listeners:
  - {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
`

func TestOneDomainAndOneGateway(t *testing.T) {
	t.Parallel()
	r := newRig(t, gatewayAPI)
	r.apply(gateway)
	r.start()
	r.service(ns, "chat", "engine")
	r.has("httproute chat.models.example.com/ -> chat-engine by public")
	r.says("chat", "True Programmed: http://chat.models.example.com/; Gateway gateways/public: accepted")
	r.settles()
}
