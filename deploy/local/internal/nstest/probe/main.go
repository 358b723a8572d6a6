// probe is the program of containers in tests: it runs its arguments, pairs of an action and its argument, and prints the
// result of each on a line.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// fetchTimeout is the timeout of a server's answer.
const fetchTimeout = 3 * time.Second

// actions take one argument each; some ignore it.
var actions = map[string]func(arg string) string{
	"print":    func(arg string) string { return arg },
	"complain": complain,
	"fill":     fill,
	"pid":      func(string) string { return strconv.Itoa(os.Getpid()) },
	"user":     user,
	"cwd":      func(string) string { return outcome(os.Getwd()) },
	"hostname": func(string) string { return outcome(os.Hostname()) },
	"env":      os.Getenv,
	"cat":      cat,
	"write":    write,
	"list":     list,
	"stat":     stat,
	"status":   status,
	"exit":     exit,
	"fetch":    fetch,
	"serve":    serve,
	"allocate": allocate,
	"burn":     burn,
	"wait":     wait,
	"stay":     stay,
}

func main() {
	for args := os.Args[1:]; len(args) > 0; args = args[min(2, len(args)):] {
		do, ok := actions[args[0]]
		if !ok {
			fmt.Println("probe cannot", args[0])
			os.Exit(2)
		}
		arg := ""
		if len(args) > 1 {
			arg = args[1]
		}
		if out := do(arg); out != "" {
			fmt.Println(out)
		}
	}
}

func outcome(out string, err error) string {
	if err != nil {
		return err.Error()
	}
	return out
}

func complain(arg string) string {
	fmt.Fprintln(os.Stderr, arg)
	return ""
}

// fill prints an unterminated line of arg bytes.
func fill(arg string) string {
	n, err := strconv.Atoi(arg)
	if err == nil {
		_, err = os.Stdout.WriteString(strings.Repeat("x", n))
	}
	return outcome("", err)
}

func user(string) string {
	groups, err := os.Getgroups()
	return outcome(fmt.Sprint(os.Getuid(), os.Getgid(), groups), err)
}

func cat(arg string) string {
	raw, err := os.ReadFile(arg)
	return outcome(strings.TrimSuffix(string(raw), "\n"), err)
}

// write writes the text after the file's name and a colon to the file.
func write(arg string) string {
	name, text, _ := strings.Cut(arg, ":")
	return outcome("written", os.WriteFile(name, []byte(text), 0o644))
}

func list(arg string) string {
	entries, err := os.ReadDir(arg)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return outcome(strings.Join(names, " "), err)
}

func stat(arg string) string {
	info, err := os.Lstat(arg)
	if err != nil {
		return err.Error()
	}
	return info.Mode().String()
}

// status returns a field of /proc/self/status.
func status(arg string) string {
	raw, err := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, arg+":"); ok {
			return arg + " " + strings.TrimSpace(v)
		}
	}
	return outcome("no "+arg, err)
}

func exit(arg string) string {
	code, err := strconv.Atoi(arg)
	if err == nil {
		os.Exit(code)
	}
	return err.Error()
}

// fetch requests a URL and prints the answer.
func fetch(arg string) string {
	client := &http.Client{Timeout: fetchTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, arg, nil) //nolint:gosec // the test names the address
	if err != nil {
		return err.Error()
	}
	resp, err := client.Do(req) //nolint:gosec // likewise
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return outcome(strings.TrimSpace(string(body)), err)
}

// serve serves the caller's address on a port, until it is killed.
func serve(arg string) string {
	server := &http.Server{Addr: ":" + arg, ReadHeaderTimeout: fetchTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		_, _ = io.WriteString(w, outcome("hello "+host, err)) //nolint:gosec // plain text
	})}
	return server.ListenAndServe().Error()
}

// allocate allocates that many MB of memory, and keeps them.
func allocate(arg string) string {
	n, err := strconv.Atoi(arg)
	if err != nil {
		return err.Error()
	}
	for range n {
		memory = append(memory, bytes.Repeat([]byte{1}, 1<<20))
	}
	return "allocated"
}

// burn uses the CPU for a time and prints the CPU time that it got, and the time that passed.
func burn(arg string) string {
	limit, err := time.ParseDuration(arg)
	if err != nil {
		return err.Error()
	}
	begun := time.Now()
	for time.Since(begun) < limit {
	}
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return err.Error()
	}
	return fmt.Sprint(time.Duration(used.Utime.Nano()+used.Stime.Nano()), " of ", time.Since(begun))
}

// memory is the memory of allocate.
var memory [][]byte

// wait waits for SIGTERM or SIGINT.
func wait(string) string {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	fmt.Println("waiting")
	return (<-c).String()
}

// stay waits and ignores all signals except SIGKILL.
func stay(string) string {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	fmt.Println("staying")
	for range c { // ignored
	}
	return ""
}
