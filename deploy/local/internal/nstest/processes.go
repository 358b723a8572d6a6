package nstest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Processes lists the command lines that contain a word, of all processes visible to the caller.
func Processes(t *testing.T, word string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, f := range files {
		raw, _ := os.ReadFile(f) // it may just have ended
		if bytes.Contains(raw, []byte(word)) {
			list = append(list, strings.ReplaceAll(string(raw), "\x00", " "))
		}
	}
	return list
}
