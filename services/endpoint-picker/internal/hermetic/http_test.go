package hermetic

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSmoke(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			r := start(t, world{mode: m, pages: []string{pageOf(3, 3, 0.5, ""), pageOf(0, 0, 0.1, "")}})
			picked := r.serve(request{body: `{"model": "m", "prompt": "hello"}`}, response{pieces: []string{`{"usage": {}}`}})
			assert.Equal(t, r.at(1), picked)
		})
	}
}
