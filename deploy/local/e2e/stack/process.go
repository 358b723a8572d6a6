package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ProcessOf finds the process of a pod by POD_NAME in its environment: containers are processes of this machine.
func ProcessOf(pod string) (pid int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return 0, err
	}
	var found []string
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(raw), "POD_NAME="+pod+"\x00") {
			continue // it has ended, belongs to another user, or is another program
		}
		found = append(found, filepath.Base(filepath.Dir(file)))
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("pod %s has %d processes, want 1", pod, len(found))
	}
	return strconv.Atoi(found[0])
}
