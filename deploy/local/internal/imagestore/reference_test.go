package imagestore

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseReference(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("0", 64)
	tests := []struct {
		name string
		give string
		want Reference
	}{
		{name: "name and tag", give: "modelserver:dev", want: Reference{"modelserver", "dev"}},
		{name: "no tag", give: "fairlead/modelserver", want: Reference{"fairlead/modelserver", "latest"}},
		{name: "digest alone", give: "fairlead/modelserver" + digest, want: Reference{"fairlead/modelserver", "latest"}},
		{name: "tag and digest", give: "fairlead/modelserver:dev" + digest, want: Reference{"fairlead/modelserver", "dev"}},
		{name: "registry host", give: "ghcr.io/fairlead/modelserver:dev", want: Reference{"fairlead/modelserver", "dev"}},
		{name: "registry host with port", give: "registry:5000/fairlead/modelserver:dev", want: Reference{"fairlead/modelserver", "dev"}},
		{name: "registry host with port, no tag", give: "registry:5000/modelserver", want: Reference{"modelserver", "latest"}},
		{name: "registry by IPv6 address", give: "[::1]:5000/modelserver:dev", want: Reference{"modelserver", "dev"}},
		{name: "registry on this machine", give: "localhost/modelserver:dev", want: Reference{"modelserver", "dev"}},
		{name: "implied library", give: "docker.io/library/busybox:1.37", want: Reference{"busybox", "1.37"}},
		{name: "library that is no registry's", give: "library/busybox:1.37", want: Reference{"library/busybox", "1.37"}},
		{name: "mirror of a registry", give: "mirror.example/docker.io/library/busybox:1.37", want: Reference{"busybox", "1.37"}},
		{name: "name with a dot, which is no host", give: "my.image:1", want: Reference{"my.image", "1"}},
		{name: "separators", give: "a-b/c__d/e.f:V1.0_x-y", want: Reference{"a-b/c__d/e.f", "V1.0_x-y"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseReference(tt.give)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestParseReference_RefusesWhatIsNone(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give string }{
		{name: "nothing", give: ""},
		{name: "tag alone", give: ":dev"},
		{name: "empty tag", give: "modelserver:"},
		{name: "host alone", give: "registry.example/"},
		{name: "capitals", give: "ModelServer:dev"},
		{name: "empty component", give: "a//b:dev"},
		{name: "way out of the store", give: "../../etc/passwd:dev"},
		{name: "tag that leads elsewhere", give: "modelserver:../dev"},
		{name: "tag that is a folder", give: "modelserver:.."},
		{name: "tag too long", give: "modelserver:" + strings.Repeat("a", 129)},
		{name: "space", give: "model server:dev"},
		{name: "line break", give: "modelserver:dev\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseReference(tt.give)
			require.ErrorContains(t, err, "is not an image reference (name:tag)")
		})
	}
}

func FuzzParseReference(f *testing.F) {
	for _, s := range []string{
		"modelserver", "registry:5000/a/b:c", "docker.io/library/busybox@sha256:0", "h.com/a.b/c:t", "localhost/localhost/x", ":", "a:b/c:d", "..",
	} {
		f.Add(s)
	}
	refs := filepath.Join("store", "refs")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseReference(s)
		if err != nil {
			return
		}
		again, err := ParseReference(r.String())
		require.NoError(t, err)
		assert.Equal(t, r, again, "a reference must read as itself")
		file := Open("store").ref(r)
		assert.True(t, strings.HasPrefix(file, refs+"/"), "%s is outside of the store", file)
	})
}
