package redirect

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	values := map[string]string{Protocol: "http", Host: "example.com", Port: "8080", Path: "/video", Query: "lang=en"}
	for text, want := range map[string]string{
		"":                              "",
		"/a":                            "/a",
		"{path}":                        "/video",
		"{path}123":                     "/video123",
		"in{host}":                      "inexample.com",
		"{port}{host}":                  "8080example.com",
		"/{host}/{port}":                "/example.com/8080",
		`/example{path}123\{path\}`:     "/example/video123{path}",
		`\\{path}`:                      `\/video`,
		"protocol={protocol}&q={query}": "protocol=http&q=lang=en",
	} {
		parsed, err := Parse(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, parsed.Expand(values), text)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{HOST}":   "unknown token",
		"{":        "unknown token",
		"{host":    "unknown token \"{host\"",
		"a}":       "expected {",
		`\`:        "a backslash must precede",
		`\a`:       "a backslash must precede",
		"{{path}}": "unknown token",
	} {
		_, err := Parse(text)
		assert.ErrorContains(t, err, want, text)
	}
}
