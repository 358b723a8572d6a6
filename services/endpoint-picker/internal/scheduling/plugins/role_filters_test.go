package plugins

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRole(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"encode", "prefill", "decode", "both", "encode-prefill", "prefill-decode", "encode-prefill-decode"} {
		assert.Equal(t, role, Role(map[string]string{RoleLabel: role}))
	}
	assert.Equal(t, "other", Role(map[string]string{RoleLabel: "anything"}), "tenants must not make series")
	assert.Equal(t, "other", Role(map[string]string{RoleLabel: ""}))
	assert.Empty(t, Role(nil))
}
