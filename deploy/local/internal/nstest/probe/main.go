// probe is the program of containers in tests: it does what its arguments say, one word after the other, and prints what
// came of it, one line each.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

// actions take one argument each, which those that need none ignore.
var actions = map[string]func(arg string) (string, error){
	"print":    func(arg string) (string, error) { return arg, nil },
	"complain": func(arg string) (string, error) { _, err := fmt.Fprintln(os.Stderr, arg); return "", err },
	"fill":     fill,
	"pid":      func(string) (string, error) { return strconv.Itoa(os.Getpid()), nil },
	"user":     user,
	"cwd":      func(string) (string, error) { return os.Getwd() },
	"hostname": func(string) (string, error) { return os.Hostname() },
	"env":      func(arg string) (string, error) { return os.Getenv(arg), nil },
	"cat":      cat,
	"write":    write,
	"stat":     stat,
	"status":   status,
	"exit":     exit,
	"wait":     wait,
	"stay":     stay,
}

func main() {
	for args := os.Args[1:]; len(args) > 0; args = args[2:] {
		if len(args) == 1 {
			args = append(args, "")
		}
		do, ok := actions[args[0]]
		if !ok {
			fmt.Println("probe: cannot", args[0])
			os.Exit(2)
		}
		out, err := do(args[1])
		switch {
		case err != nil:
			fmt.Println(args[0]+":", err)
		case out != "":
			fmt.Println(out)
		}
	}
}

// fill prints a line of arg bytes and does not end it.
func fill(arg string) (string, error) {
	n, err := strconv.Atoi(arg)
	if err == nil {
		_, err = os.Stdout.WriteString(strings.Repeat("x", n))
	}
	return "", err
}

func user(string) (string, error) {
	groups, err := os.Getgroups()
	return fmt.Sprint(os.Getuid(), os.Getgid(), groups), err
}

func cat(arg string) (string, error) {
	raw, err := os.ReadFile(arg)
	return strings.TrimSuffix(string(raw), "\n"), err
}

// write puts the text behind the file's name and a colon into the file.
func write(arg string) (string, error) {
	name, text, ok := strings.Cut(arg, ":")
	if !ok {
		return "", errors.New("no text")
	}
	return "written", os.WriteFile(name, []byte(text), 0o644)
}

func stat(arg string) (string, error) {
	info, err := os.Lstat(arg)
	if err != nil {
		return "", err
	}
	return info.Mode().String(), nil
}

// status is a field of /proc/self/status.
func status(arg string) (string, error) {
	raw, err := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, arg+":"); ok {
			return arg + " " + strings.TrimSpace(v), nil
		}
	}
	return "", err
}

func exit(arg string) (string, error) {
	code, err := strconv.Atoi(arg)
	if err == nil {
		os.Exit(code)
	}
	return "", err
}

// wait waits for SIGTERM or SIGINT.
func wait(string) (string, error) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	fmt.Println("waiting")
	return (<-c).String(), nil
}

// stay waits and hears of nothing but SIGKILL.
func stay(string) (string, error) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	fmt.Println("staying")
	for range c { // heard, and ignored
	}
	return "", nil
}
