package kubetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPatience(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 2*time.Minute, patience(""))
	assert.Equal(t, 2*time.Minute, patience("0.1"), "never less")
	assert.Equal(t, 2*time.Minute, patience("fast"))
	assert.Equal(t, 5*time.Minute, patience("2.5"))
}
