package ingressclass

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/depcheck"
)

func TestItIsPure(t *testing.T) {
	t.Parallel()
	depcheck.AssertNoDependency(t, ".", "k8s.io/client-go/...", "go.uber.org/zap/...", "go.uber.org/dig/...", "github.com/prometheus/...")
}

func TestKnown(t *testing.T) {
	t.Parallel()
	tests := []struct {
		give     string
		want     Controller
		rewrites bool
	}{
		{give: "k8s.io/ingress-nginx", want: IngressNGINX, rewrites: true},
		{give: "k8s.io/ingress-nginx-internal", want: Unknown},
		{give: "nginx.org/ingress-controller", want: NGINX},
		{give: "traefik.io/ingress-controller", want: Traefik, rewrites: true},
		{give: "haproxy.org/ingress-controller/internal", want: HAProxy, rewrites: true},
		{give: "haproxy-ingress.github.io/controller", want: HAProxyIngress, rewrites: true},
		{give: "projectcontour.io/contour-external", want: Contour},
		{give: "istio.io/ingress-controller", want: Istio},
		{give: "example.com/mine", want: Unknown},
	}
	for _, tt := range tests {
		t.Run(tt.give, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, Known(tt.give))
			assert.Equal(t, tt.rewrites, Known(tt.give).Rewrites())
		})
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	class := func(name string, created int64, isDefault string) *networkingv1.IngressClass {
		return &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.NewTime(time.Unix(created, 0)),
			Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: isDefault},
		}}
	}
	all := []*networkingv1.IngressClass{class("old", 1, "true"), class("b", 2, "true"), class("a", 2, "true"), class("none", 3, "false")}
	name := "none"
	assert.Equal(t, "none", Find(all, &name).Name)
	assert.Equal(t, "a", Find(all, nil).Name, "the newest, of two the first by name")
	assert.Nil(t, Find(all[3:], nil))
	name = "missing"
	assert.Nil(t, Find(all, &name))
}
