// Command testlanes checks and lists the lanes of tests (docs/testing.md). The build constraint of a test file decides its lane: files
// without the tags system and long belong to the first one.
//
// Usage:
//
//	testlanes check <folder>...        report what a lane forbids, and exit with 1 if there is anything
//	testlanes list <lane> <folder>     print each package that has tests of the lane, with a regular expression of their names
//	testlanes quarantine <file>        report entries that are malformed or older than 14 days, and exit with 1 if there are any
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	problems, err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testlanes:", err)
		os.Exit(2)
	}
	for _, p := range problems {
		fmt.Fprintln(os.Stderr, p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) ([]string, error) {
	if len(args) < 2 {
		return nil, errors.New("usage: testlanes check <folder>... | list <lane> <folder> | quarantine <file>")
	}
	switch command, rest := args[0], args[1:]; {
	case command == "check":
		return checkFolders(rest)
	case command == "list" && len(rest) == 2:
		return nil, printTests(out, rest[0], rest[1])
	case command == "quarantine" && len(rest) == 1:
		file, err := os.ReadFile(rest[0])
		if err != nil {
			return nil, err
		}
		return checkQuarantine(string(file), time.Now()), nil
	default:
		return nil, fmt.Errorf("unknown arguments %q", args)
	}
}
