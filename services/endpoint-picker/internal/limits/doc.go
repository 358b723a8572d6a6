// Package limits counts what the clients of the picker's listeners hold, and shares the limits among them.
//
// A client is an IP address. A Ledger has one Account for each address with connections to any listener, or with open picks of the
// decision API. So a client cannot get more by using several listeners, and the totals of all listeners together stay within
// the limits.
//
// The limits are shared by max-min fairness: as long as the total is within a limit, nobody is restricted. Beyond it, an
// account is restricted if it uses more than its fair share. An account that uses no more than limit/n, of n accounts, never
// is.
//
// An HTTPListener serves HTTP and counts the connections of its clients in the Ledger. A connection counts for the address of its client
// from the moment it is accepted until it is closed, and the headers of its next request count while they arrive. Once they have arrived,
// the handler counts the request: it calls BeginRequest first, and EndRequest last.
//
// The requests of HTTP/1.1 are followed as they arrive: what RFC 9112 forbids and net/http accepts (both lengths of a body,
// folded headers, lines that end with LF) fails, and net/http answers 400 and closes the connection.
//
// A client that has overdrawn its share of bytes gets no further connection, and a connection on which it sends headers is closed.
// Every connection has the account of its client for as long as it is open.
package limits
