package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig/reload"
)

func TestConfigSource(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	tests := []struct {
		name string
		give config.Plugins
		want reload.Source
	}{
		{name: "nowhere"},
		{name: "file", give: config.Plugins{File: "/c"}, want: reload.File("/c")},
		{name: "text", give: config.Plugins{Text: "a"}, want: reload.Text("a")},
		{
			name: "ConfigMap", give: config.Plugins{Map: config.ObjectName{ObjectName: cache.NewObjectName("other", "c")}, MapKey: "k"},
			want: reload.NewConfigMap(client, cache.NewObjectName("other", "c"), "k"),
		},
		{
			name: "ConfigMap beside the pool", give: config.Plugins{Map: config.ObjectName{ObjectName: cache.NewObjectName("", "c")}},
			want: reload.NewConfigMap(client, cache.NewObjectName("ns", "c"), ""),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := config.Default()
			cfg.Pool.Name = cache.NewObjectName("ns", "pool")
			cfg.Plugins = tt.give
			assert.Equal(t, tt.want, configSource(cfg, client))
		})
	}
}
