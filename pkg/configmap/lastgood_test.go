package configmap

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// upper decodes a text into upper case. Texts that begin with "bad" are invalid.
func upper(text []byte) (string, error) {
	if s := string(text); strings.HasPrefix(s, "bad") {
		return "", errors.New("line 1: " + s + "\nline 2: worse")
	}
	return strings.ToUpper(string(text)), nil
}

func assertCurrent(t *testing.T, g *LastGood[string], value string, present bool, problem string) {
	t.Helper()
	gotValue, gotPresent, gotProblem := g.Current()
	assert.Equal(t, value, gotValue)
	assert.Equal(t, present, gotPresent)
	assert.Equal(t, problem, gotProblem)
}

func TestLastGood(t *testing.T) {
	t.Parallel()
	g := NewLastGood("file a", upper)
	assertCurrent(t, g, "", false, "")

	changed, err := g.Set([]byte("bad"))
	require.True(t, changed)
	require.EqualError(t, err, "line 1: bad\nline 2: worse")
	assertCurrent(t, g, "", false, "file a: line 1: bad; line 2: worse")

	changed, err = g.Set([]byte("odd"))
	require.True(t, changed)
	require.NoError(t, err)
	assertCurrent(t, g, "ODD", true, "")
	changed, _ = g.Set([]byte("odd"))
	assert.False(t, changed, "the same text")

	changed, _ = g.Set([]byte("bad"))
	assert.True(t, changed)
	assertCurrent(t, g, "ODD", true, "file a: line 1: bad; line 2: worse")
	changed, _ = g.Set([]byte("bad"))
	assert.False(t, changed, "the same invalid text")

	assert.True(t, g.Reject(errors.New("unreadable")))
	assertCurrent(t, g, "ODD", true, "file a: unreadable")
	assert.False(t, g.Reject(errors.New("unreadable")), "the same problem")
	changed, _ = g.Set([]byte("unreadable"))
	assert.True(t, changed, "a text is not a problem")
	assertCurrent(t, g, "UNREADABLE", true, "")
	changed, _ = g.Set(nil)
	assert.True(t, changed, "an empty text is a text")
	assertCurrent(t, g, "", true, "")
}

func TestLastGoodThatIsLost(t *testing.T) {
	t.Parallel()
	g := NewLastGood("file a", upper)
	_, _ = g.Set([]byte("bad"))
	g.MarkDeleted()
	assertCurrent(t, g, "", false, "")
	_, _ = g.Set([]byte("good"))
	g.MarkDeleted()
	assertCurrent(t, g, "GOOD", true, "file a was deleted")
	changed, _ := g.Set([]byte("good"))
	assert.True(t, changed, "it came back with the same text")
	assertCurrent(t, g, "GOOD", true, "")
}
