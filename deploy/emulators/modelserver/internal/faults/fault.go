package faults

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The names of faults. A status from 400 to 599 is the name of another one.
const (
	ErrorSGLang    = "error-sglang"
	ErrorOpenAI    = "error-openai"
	ErrorAnthropic = "error-anthropic"
	EmptyBody      = "empty-body"
	EmptyStream    = "empty-stream"
	Comments       = "comments"
	Login          = "login"
	Page           = "page"
	Half           = "half"
	Drop           = "drop"
	Stall          = "stall"
	Hang           = "hang"
	Silence        = "silence"
)

// Names are the names of faults, with what the server does.
var Names = []struct{ Name, Meaning string }{
	{"400 to 599", "answers with this status"},
	{ErrorSGLang, "answers 200 and an error in SGLang's form, then [DONE]"},
	{ErrorOpenAI, "answers 200 and an error in OpenAI's form"},
	{ErrorAnthropic, "answers 200 and an error in the form of Anthropic's Messages"},
	{EmptyBody, "answers 200 without a body"},
	{EmptyStream, "answers 200 and a stream without an event"},
	{Comments, "answers 200 and a stream of comments only"},
	{Login, "redirects to a login page"},
	{Page, "answers 200 and a page of HTML"},
	{Half, "ends the answer after some tokens, as if it was whole"},
	{Drop, "closes the connection after some tokens"},
	{Stall, "sends nothing more after some tokens"},
	{Hang, "accepts requests and never answers"},
	{Silence, "answers with headers only, and never sends a body"},
}

// Syntax is the text form of a Fault.
const Syntax = "NAME[,delay=DURATION][,rate=SHARE][,tokens=N]"

// Fault is a fault of a share of the answers. The zero value is none. It implements pflag.Value and encoding.TextMarshaler.
type Fault struct {
	Name   string
	Delay  time.Duration // from the request to the fault
	Rate   float64       // share of the affected requests, from 0 to 1
	Tokens int           // of the answer before Half, Drop and Stall
}

// ParseFault parses a text of the form Syntax. By default the fault affects all requests at once, and comes after one token.
func ParseFault(text string) (Fault, error) {
	name, params, _ := strings.Cut(text, ",")
	f := Fault{Name: name, Rate: 1, Tokens: 1}
	if !known(name) {
		return Fault{}, fmt.Errorf("%q is no fault: give %s", name, listNames())
	}
	if params == "" {
		return f, nil
	}
	for param := range strings.SplitSeq(params, ",") {
		if err := f.set(strings.Cut(param, "=")); err != nil {
			return Fault{}, fmt.Errorf("fault %s: %w", name, err)
		}
	}
	return f, nil
}

// set sets a parameter.
func (f *Fault) set(name, value string, _ bool) (err error) {
	switch name {
	case "delay":
		if f.Delay, err = time.ParseDuration(value); err != nil || f.Delay < 0 {
			return fmt.Errorf("delay must be a duration such as 50ms, got %q", value)
		}
	case "rate":
		if f.Rate, err = strconv.ParseFloat(value, 64); err != nil || !(f.Rate >= 0 && f.Rate <= 1) {
			return fmt.Errorf("rate must be between 0 and 1, got %q", value)
		}
	case "tokens":
		if f.Tokens, err = strconv.Atoi(value); err != nil || f.Tokens < 0 {
			return fmt.Errorf("tokens must be a number, got %q", value)
		}
	default:
		return fmt.Errorf("%q is no parameter: give delay, rate or tokens", name)
	}
	return nil
}

// Status returns the status that is the fault, 0 if it is another fault.
func (f Fault) Status() int {
	status, err := strconv.Atoi(f.Name)
	if err != nil {
		return 0
	}
	return status
}

// Cuts reports whether the answer begins.
func (f Fault) Cuts() bool { return f.Name == Half || f.Name == Drop || f.Name == Stall }

// String returns the text form.
func (f Fault) String() string {
	if f.Name == "" {
		return ""
	}
	text := f.Name
	if f.Delay > 0 {
		text += ",delay=" + f.Delay.String()
	}
	if f.Rate < 1 {
		text += ",rate=" + strconv.FormatFloat(f.Rate, 'g', -1, 64)
	}
	if f.Cuts() {
		text += ",tokens=" + strconv.Itoa(f.Tokens)
	}
	return text
}

// Set implements pflag.Value.
func (f *Fault) Set(text string) (err error) {
	*f, err = ParseFault(text)
	return err
}

// Type implements pflag.Value.
func (*Fault) Type() string { return "fault" }

// MarshalText implements encoding.TextMarshaler.
func (f Fault) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *Fault) UnmarshalText(text []byte) error { return f.Set(string(text)) }

func known(name string) bool {
	if status, err := strconv.Atoi(name); err == nil {
		return status >= 400 && status <= 599
	}
	for _, n := range Names[1:] {
		if n.Name == name {
			return true
		}
	}
	return false
}

// Usage returns the help of a flag for a Fault.
func Usage() string {
	return "Fault of answers from the start, as " + Syntax + ". Names: " + listNames() + "."
}

func listNames() string {
	var b strings.Builder
	for i, n := range Names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(n.Name)
	}
	return b.String()
}
