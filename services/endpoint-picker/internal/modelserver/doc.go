// Package modelserver reads how busy model servers are from their metrics pages.
//
// A Scraper is told which endpoints there are. One goroutine, the scheduler, wakes up in short beats and starts the
// scrapes that are due, each in a goroutine that lasts as long as the scrape: a server that answers slowly, or not at
// all, delays nobody else. What a page says is recorded in the endpoint; a page that fails is counted there, and after a
// while said once.
//
// How often an endpoint is scraped follows from what its pages are good for:
//
//	pages tell what our own leases did not foresee      the fastest interval
//	pages confirm what we know                          doubling, up to the slowest
//	no request was placed anywhere for a while          the slowest
//	scrapes fail                                        the fastest, doubling, up to a second
//
// and all endpoints share a budget of scrapes a second, which grows with nothing. Picks do not tell the scheduler: it
// looks at the endpoints' counters at every beat.
//
// Engine says what is wanted of the pages of one kind of server. It is compiled once; a page is scanned as it arrives for
// the lines that are wanted; it is never built, and a scan allocates nothing.
package modelserver
