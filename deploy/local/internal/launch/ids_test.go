package launch

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMapsRange(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		want       bool
	}{
		{name: "the machine's own root", give: "         0          0 4294967295\n", want: true},
		{name: "a container with a range", give: "         0     100000      65536\n", want: true},
		{name: "a container with one id", give: "         0       1000          1\n"},
		{name: "a range that is split", give: "0 1000 1\n1 100000 65535\n"},
		{name: "a range of other ids", give: "1000 1000 65536\n"},
		{name: "nothing", give: ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, mapsRange(tt.give))
		})
	}
}
