// Package fairconn counts the connections of HTTP clients in the ledger of package fairshare, for listeners of net/http.
//
// A connection counts for the address of its client from the moment it is accepted until it is closed, and the headers of its next
// request count while they arrive. Once they have arrived, the handler counts the request: it calls BeginRequest first, and EndRequest last.
//
// The requests of HTTP/1.1 are followed as they arrive: what RFC 9112 forbids and net/http accepts (both lengths of a body,
// folded headers, lines that end with LF) fails, and net/http answers 400 and closes the connection.
//
// A client that has overdrawn its share of bytes gets no further connection, and a connection on which it sends headers is closed.
// Every connection has the account of its client for as long as it is open.
package fairconn
