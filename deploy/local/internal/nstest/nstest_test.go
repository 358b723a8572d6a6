package nstest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestInside_SkipIsASkipOutside(t *testing.T) {
	tests := []struct {
		name string
		give func(t *testing.T)
		want bool
	}{
		{name: "it skips", give: func(t *testing.T) { t.Skip("not here") }, want: true}, //nolint:thelper // the test itself
		{name: "it runs", give: func(*testing.T) {}},
		{name: "a part of it skips", give: func(t *testing.T) { t.Run("part", func(t *testing.T) { t.Skip("not here") }) }}, //nolint:thelper // likewise
	}
	for _, tt := range tests {
		var got bool
		t.Run(tt.name, func(t *testing.T) {
			t.Cleanup(func() { got = t.Skipped() })
			Inside(t, tt.give)
		})
		if _, inside := os.LookupEnv(insideEnv); !inside { // there only one of them runs
			assert.Equal(t, tt.want, got, tt.name)
		}
	}
}
