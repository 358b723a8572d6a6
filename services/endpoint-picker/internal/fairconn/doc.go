// Package fairconn counts the connections of HTTP clients in the ledger of package fairshare, for listeners of net/http.
//
// A connection counts for the address of its client from the moment it is accepted until it is closed, and the headers of its next
// request count while they arrive. Once they have arrived, the handler counts the request: it calls Begin first, and End last.
//
// A client that has overdrawn its share of bytes gets no further connection, and a connection on which it sends headers is closed.
// Every connection has the account of its client for as long as it is open.
package fairconn
