//go:build system || long

package lanes

func TestBoth(t *testing.T) {
	httptest.NewServer(nil)
}
