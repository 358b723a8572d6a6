package control

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParentOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		want       int
		wantOK     bool
	}{
		{name: "an ordinary command", give: "12 (etcd) S 7 12 12 0", want: 7, wantOK: true},
		{name: "a command that looks like fields", give: "12 (a) S 99 (b)) R 7 12", want: 7, wantOK: true},
		{name: "cut off", give: "12 (etcd) S"},
		{name: "no number", give: "12 (etcd) S x 1"},
		{name: "nothing", give: ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ok := parentOf([]byte(tt.give))
			assert.Equal(t, tt.wantOK, ok)
			if tt.wantOK {
				assert.Equal(t, tt.want, got)
			}
		})
	}
}

func TestDescendants_AllOfTheTreeAndNoOther(t *testing.T) {
	t.Parallel()
	parents := map[int]int{2: 1, 3: 1, 4: 2, 5: 4, 6: 3, 7: 6}
	assert.ElementsMatch(t, []int{2, 4, 5}, descendants(2, parents))
	assert.Equal(t, 2, descendants(2, parents)[0], "parents first")
	assert.Equal(t, []int{7}, descendants(7, parents))
	assert.Equal(t, []int{99}, descendants(99, parents), "one that has just ended")
}
