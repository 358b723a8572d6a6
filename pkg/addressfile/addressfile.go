// Package addressfile tells other programs on the machine where a program listens: a program that listens on port 0 writes the addresses
// that the system gave it to a file, and tests and demos read them there. Nobody has to choose a port, which may be in use.
package addressfile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Write writes the addresses of listeners, by their names, as a JSON object. Empty addresses, of disabled listeners, are left out. A reader
// sees the whole file or none. Call it when all ports are open.
func Write(path string, addresses map[string]string) error {
	bound := make(map[string]string, len(addresses))
	for name, address := range addresses {
		if address != "" {
			bound[name] = address
		}
	}
	text, err := json.Marshal(bound)
	if err != nil {
		return fmt.Errorf("encode addresses: %w", err) // unreachable: strings have an encoding
	}
	next, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write addresses: %w", err)
	}
	defer os.Remove(next.Name()) // it has another name after a success
	_, err = next.Write(append(text, '\n'))
	if closing := next.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write addresses: %w", err)
	}
	return nil
}

// Read returns the addresses that Write has written. The error is fs.ErrNotExist until then.
func Read(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read addresses: %w", err)
	}
	var addresses map[string]string
	if err := json.Unmarshal(text, &addresses); err != nil {
		return nil, fmt.Errorf("read addresses of %s: %w", path, err)
	}
	return addresses, nil
}
