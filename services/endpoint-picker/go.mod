module fairlead.dev/services/endpoint-picker

go 1.26.0

require (
	fairlead.dev/pkg v0.0.0-00010101000000-000000000000
	github.com/envoyproxy/go-control-plane/envoy v1.40.0
	go.uber.org/dig v1.19.0
	go.uber.org/zap v1.28.0
	google.golang.org/grpc v1.85.0
	k8s.io/client-go v0.37.1
	sigs.k8s.io/gateway-api-inference-extension v1.6.0
)

replace fairlead.dev/pkg => ../../pkg
