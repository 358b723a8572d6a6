//go:build long && linux

package lanes

func TestLong(t *testing.T) {
	time.Sleep(1)
	assert.Less(t, time.Since(begun), 1)
}
