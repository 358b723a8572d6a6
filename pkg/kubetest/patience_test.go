package kubetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPatience(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 2*time.Minute, scaledPatience(""))
	assert.Equal(t, 2*time.Minute, scaledPatience("0.1"), "never less")
	assert.Equal(t, 2*time.Minute, scaledPatience("fast"))
	assert.Equal(t, 5*time.Minute, scaledPatience("2.5"))
}
