package routing

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBestPath(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		paths []Path
		want  map[string]int // by the path of the request
	}{
		{name: "none", want: map[string]int{"/": -1}},
		{name: "exact", paths: []Path{{ExactMatch, "/tame/"}, {ExactMatch, "/feral/"}}, want: map[string]int{"/tame/": 0, "/feral/": 1, "/": -1, "/tame": -1, "/tame/a": -1, "/TAME/": 0}},
		{
			name: "an exact match wins", paths: []Path{{PrefixMatch, "/a"}, {ForceLongestPrefixMatch, "/a/b"}, {ExactMatch, "/a/b"}},
			want: map[string]int{"/a/b": 2, "/a/b/c": 1, "/a/c": 0},
		},
		{
			name: "the longest prefix wins in any order", paths: []Path{{ForceLongestPrefixMatch, "/"}, {ForceLongestPrefixMatch, "/v1/chat"}, {ForceLongestPrefixMatch, "/v1"}},
			want: map[string]int{"/v1/chat/completions": 1, "/v1/models": 2, "/health": 0},
		},
		{
			name: "the first prefix or suffix wins", paths: []Path{{SuffixMatch, ".png"}, {PrefixMatch, "/v1"}, {PrefixMatch, "/v1/images"}},
			want: map[string]int{"/v1/images/a.png": 0, "/v1/images/a.jpg": 1, "/a.PNG": 0, "/v2": -1},
		},
		{name: "a forced prefix wins over others", paths: []Path{{PrefixMatch, "/v1/images"}, {ForceLongestPrefixMatch, "/v1"}}, want: map[string]int{"/v1/images/a": 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for request, want := range tt.want {
				assert.Equal(t, want, BestPath(tt.paths, request), request)
			}
		})
	}
}
