//go:build system

package lanes

import "os/exec"

func TestSystem(t *testing.T) {
	net.Listen("tcp", "127.0.0.1:0")
	exec.Command("true")
	time.Sleep(1)
	require.Eventually(t, f, time.Minute, 1) // want require.Eventually
	assert.Less(t, time.Since(begun), 1)     // want time.Since
}

func TestMain(m *testing.M) {}

func FuzzSystem(f *testing.F) {}
