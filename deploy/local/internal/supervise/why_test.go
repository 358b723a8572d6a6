package supervise

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLastError(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 400)
	tests := []struct{ name, give, want string }{
		{name: "nothing", give: "", want: "its log is empty"},
		{name: "blank lines", give: "\n \n", want: "its log is empty"},
		{name: "last line", give: "one\ntwo\n\n", want: "two"},
		{name: "last line without its end", give: "one\ntwo", want: "two"},
		{name: "error before other lines", give: "one\nError: no room\nshutting down\nbye\n", want: "Error: no room"},
		{name: "last of errors", give: "error one\nerror two\nbye\n", want: "error two"},
		{name: "fatal before other lines", give: "FATAL no room\nbye\n", want: "FATAL no room"},
		{name: "panic before its stack", give: "error one\npanic: no room\n\ngoroutine 1 [running]:\nmain.main()\n\t/x/errors.go:1\n", want: "panic: no room"},
		{name: "end by the runtime before stacks", give: "fatal error: all goroutines are asleep\n\ngoroutine 1:\ngo.errors.New()\n", want: "fatal error: all goroutines are asleep"},
		{name: "last of panics", give: "panic: one\ngoroutine 1\npanic: two\ngoroutine 1\n", want: "panic: two"},
		{name: "long line", give: "error: " + long + "\n", want: "error: " + long[:293] + "..."},
		{name: "end of a long log only", give: "error: long ago\n" + strings.Repeat("line\n", logTail/5) + "bye\n", want: "bye"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "log")
			require.NoError(t, os.WriteFile(file, []byte(tt.give), 0o644))
			assert.Equal(t, tt.want, lastError(file))
		})
	}
	assert.Contains(t, lastError(filepath.Join(t.TempDir(), "none")), "no such file")
}
