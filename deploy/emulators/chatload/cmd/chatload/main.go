// Chatload sends streaming chat completions to an OpenAI-compatible server, and prints a table of the servers that answered.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/deploy/emulators/internal/cli"
)

var errFailures = errors.New("some requests failed: see the table")

func main() { cli.Main("chatload", run) }

func run(ctx context.Context, args []string) error {
	o := chatload.Options{
		BaseURL: "http://127.0.0.1:8000", Model: "meta-llama/Llama-3.1-8B-Instruct", Requests: 100, MaxTokens: 100, IgnoreEOS: true, KeepAlive: true,
		Prompts: chatload.Prompts{Groups: 8, SharedTokens: 512, OwnTokens: 64, Seed: 1},
	}
	var headers []string
	fs := pflag.NewFlagSet("chatload", pflag.ContinueOnError)
	addFlags(fs, &o)
	fs.StringArrayVarP(&headers, "header", "H", nil, "Header of each request, as NAME: VALUE. The flag can be repeated.")
	verbose := fs.BoolP("verbose", "v", false, "Print a line for each request when it ends.")
	if done, err := cli.Parse(fs, args, os.Stdout); done {
		return err
	}
	if !fs.Changed("concurrency") && !fs.Changed("rate") {
		o.Concurrency = 10
	}
	header, err := parseHeaders(headers)
	if err != nil {
		return err
	}
	o.Header = header
	if *verbose {
		o.OnResult = printResult
	}
	return load(ctx, o)
}

func addFlags(fs *pflag.FlagSet, o *chatload.Options) {
	fs.StringVar(&o.BaseURL, "url", o.BaseURL, "URL of the server, without /v1/chat/completions.")
	fs.StringVar(&o.Model, "model", o.Model, "Name of the model.")
	fs.IntVarP(&o.Concurrency, "concurrency", "c", 0, "Number of concurrent requests (closed loop). The default is 10 without --rate.")
	fs.Float64Var(&o.Rate, "rate", 0, "Average number of requests per second (open loop, Poisson process).")
	fs.IntVarP(&o.Requests, "requests", "n", o.Requests, "Total number of requests; 0 for no limit.")
	fs.DurationVar(&o.Duration, "duration", 0, "Time after which no request starts; 0 for no limit.")
	fs.DurationVar(&o.Timeout, "timeout", 0, "Timeout of one request; 0 for 10 minutes.")
	fs.IntVar(&o.MaxTokens, "max-tokens", o.MaxTokens, "Maximum number of tokens of each answer.")
	fs.BoolVar(&o.IgnoreEOS, "ignore-eos", o.IgnoreEOS, "Request exactly --max-tokens tokens, and fail other answers.")
	fs.BoolVar(&o.RequirePicked, "require-picked", false, "Fail answers without the headers of the picked and the serving endpoint.")
	fs.BoolVar(&o.KeepAlive, "keep-alive", o.KeepAlive, "Reuse connections.")
	fs.BoolVar(&o.HTTP2, "http2", false, "Use HTTP/2 without TLS.")
	fs.IntVar(&o.Prompts.Groups, "groups", o.Prompts.Groups, "Number of groups of prompts; the prompts of a group share a prefix.")
	fs.IntVar(&o.Prompts.SharedTokens, "shared-tokens", o.Prompts.SharedTokens, "Number of tokens of a shared prefix.")
	fs.IntVar(&o.Prompts.OwnTokens, "own-tokens", o.Prompts.OwnTokens, "Number of tokens of each prompt after the shared prefix.")
	fs.Uint64Var(&o.Prompts.Seed, "seed", o.Prompts.Seed, "Seed of prompts and arrivals.")
}

func parseHeaders(lines []string) (http.Header, error) {
	header := make(http.Header)
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("header %q has no colon: give NAME: VALUE", line)
		}
		header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return header, nil
}

// load sends requests until a limit or a signal, and prints the table in both cases.
func load(ctx context.Context, o chatload.Options) error {
	report, err := chatload.Run(ctx, o)
	if err != nil {
		return err
	}
	if err := report.WriteTable(os.Stdout); err != nil {
		return err
	}
	if report.Failed() > 0 {
		return errFailures
	}
	return nil
}

func printResult(r chatload.Result) {
	outcome := "ok"
	if r.Err != nil {
		outcome = fmt.Sprintf("%s: %s", r.Class, r.Err)
	}
	fmt.Fprintf(os.Stderr, "%d %s %d tokens in %.3f s, first after %.3f s: %s\n",
		r.Index, r.ServedBy, r.Tokens, r.Duration.Seconds(), r.TTFT.Seconds(), outcome)
}
