package fading_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/fading"
)

func TestMean(t *testing.T) {
	t.Parallel()
	var m fading.Mean
	assert.Zero(t, m.Value())
	m.Set(10)
	m.See(20, 0.25)
	assert.InDelta(t, 12.5, m.Value(), 1e-9)
	for range 100 {
		m.See(4, 0.25)
	}
	assert.InDelta(t, 4, m.Value(), 1e-9, "what was long ago is forgotten")
}
