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
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	tests := []struct {
		name string
		give string
		want Reference
	}{
		{name: "name and tag", give: "modelserver:dev", want: Reference{"docker.io/library/modelserver", "dev"}},
		{name: "no tag", give: "fairlead/modelserver", want: Reference{"docker.io/fairlead/modelserver", "latest"}},
		{name: "the default registry", give: "docker.io/fairlead/modelserver:dev", want: Reference{"docker.io/fairlead/modelserver", "dev"}},
		{name: "its other name", give: "index.docker.io/fairlead/modelserver:dev", want: Reference{"docker.io/fairlead/modelserver", "dev"}},
		{name: "its library", give: "docker.io/library/busybox:1.37", want: Reference{"docker.io/library/busybox", "1.37"}},
		{name: "digest", give: "fairlead/modelserver@" + digest, want: Reference{"docker.io/fairlead/modelserver", digest}},
		{name: "digest beside a tag", give: "fairlead/modelserver:dev@" + digest, want: Reference{"docker.io/fairlead/modelserver", digest}},
		{name: "registry host", give: "ghcr.io/fairlead/modelserver:dev", want: Reference{"ghcr.io/fairlead/modelserver", "dev"}},
		{name: "registry host with port", give: "registry:5000/fairlead/modelserver:dev", want: Reference{"registry:5000/fairlead/modelserver", "dev"}},
		{name: "registry host with port, no tag", give: "registry:5000/modelserver", want: Reference{"registry:5000/modelserver", "latest"}},
		{name: "registry on this machine", give: "localhost/modelserver:dev", want: Reference{"localhost/modelserver", "dev"}},
		{name: "library of another registry", give: "ghcr.io/library/busybox:1.37", want: Reference{"ghcr.io/library/busybox", "1.37"}},
		{name: "mirror of a registry", give: "mirror.example/docker.io/library/busybox:1", want: Reference{"mirror.example/docker.io/library/busybox", "1"}},
		{name: "name with a dot, which is no host", give: "my.image:1", want: Reference{"docker.io/library/my.image", "1"}},
		{name: "separators", give: "a-b/c__d/e.f:V1.0_x-y", want: Reference{"docker.io/a-b/c__d/e.f", "V1.0_x-y"}},
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
		{name: "way out of the store", give: "../../etc/passwd:dev"},
		{name: "way out of the store behind a host", give: "registry.example/../../etc:dev"},
		{name: "tag that leads elsewhere", give: "modelserver:../dev"},
		{name: "tag that is a folder", give: "modelserver:.."},
		{name: "tag too long", give: "modelserver:" + strings.Repeat("a", 129)},
		{name: "space", give: "model server:dev"},
		{name: "line break", give: "modelserver:dev\n"},
		{name: "short digest", give: "modelserver@sha256:00"},
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
		"modelserver", "registry:5000/a/b:c", "docker.io/library/busybox@sha256:0", "h.com/a.b/c:t", "localhost/localhost/x", ":", "a:b/c:d", "..", "./a", "a.b/../c",
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
