package configmap

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestName(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"name", "/name", "namespace/", "/", "a/b/c", "A/b", "a/B", "a.b/c", " a/b"} {
		var n Name
		require.EqualError(t, n.Set(wrong), "must be namespace/name", wrong)
	}
	for _, right := range []string{"", "a/b", "a/b.c-d"} {
		var n Name
		require.NoError(t, n.Set("other/one"))
		require.NoError(t, n.Set(right))
		assert.Equal(t, right, n.String())
		assert.Equal(t, "namespace/name", n.Type())
	}
}
