package dataplane

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// closed is a body that its server closes after the last byte.
type closed struct{ io.Reader }

func (c closed) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if n == 0 {
		err = errors.New("invalid Read on closed Body")
	}
	return n, err
}

func (closed) Close() error { return nil }

func TestABodyIsNotReadAfterItsLastByte(t *testing.T) {
	t.Parallel()
	text, err := io.ReadAll(&once{ReadCloser: closed{strings.NewReader("abc")}, left: 3})
	require.NoError(t, err)
	assert.Equal(t, "abc", string(text))
	_, err = io.ReadAll(&once{ReadCloser: closed{strings.NewReader("abc")}, left: -1})
	require.Error(t, err, "a body of unknown length is read to its end")
	text, err = io.ReadAll(&once{})
	require.NoError(t, err)
	assert.Empty(t, text)
}
