// Package smallfile reads files of credentials. Administrators name them in flags and ConfigMaps, so one may name a device, or a file
// without an end.
package smallfile

import (
	"fmt"
	"os"
)

// MaxSize is the size of a file in bytes: bundles of authorities have a few hundred KiB.
const MaxSize = 1 << 20

// Read returns the content of a regular file of at most MaxSize. Its errors name the file.
func Read(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > MaxSize || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", name, MaxSize)
	}
	return os.ReadFile(name)
}
