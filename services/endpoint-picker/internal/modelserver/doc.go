// Package modelserver reads how busy model servers are from their metrics pages.
//
// A Scraper is told which endpoints there are and keeps one goroutine for each, with its own connection and its own
// pace: a server that answers slowly, or not at all, delays nobody else. What a page says is recorded in the
// endpoint; a page that fails is counted there, and after a while said once.
//
// The page is scanned as it arrives for the few lines that are wanted (vLLM's gauges, under their old and new
// names); it is never built, and a scan allocates nothing.
package modelserver
