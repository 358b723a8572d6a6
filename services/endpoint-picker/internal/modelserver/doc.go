// Package modelserver reads the load of model servers from their metrics pages.
//
// A Scraper gets the list of endpoints. One goroutine, the scheduler, wakes up in short beats and starts the due scrapes,
// each in its own goroutine: a slow or silent server does not delay others. The endpoint records the values of a page. It
// counts failures; continued failures are logged once.
//
// The scrape interval of an endpoint depends on the information in its pages:
//
//	pages have news that our leases did not predict     the fastest interval
//	pages confirm known values                          doubling, up to the slowest
//	no request was placed anywhere for a while          the slowest
//	scrapes fail                                        the fastest, doubling, up to a second
//
// All endpoints share a budget of scrapes per second, independent of their number. Picks do not notify the scheduler: it
// reads the endpoints' counters at every beat. Schedule has all of these decisions and nothing else, so package simulation uses it, too.
//
// Beside the pages, each server is asked once for the tokens of a sample text (sampling), so that the tokens of a model are known before
// the first answer.
//
// Engine names the needed metrics of one kind of server. It is compiled once. A page is scanned for these lines as it
// arrives, without storing the page; a scan allocates nothing.
package modelserver
