// Package fairshare counts what the clients of the picker's listeners hold, and shares the limits among them.
//
// A client is an IP address. A Ledger has one Account for each address with connections to any listener, or with open picks of the
// decision API. So a client cannot get more by using several listeners, and the totals of all listeners together stay within
// the limits.
//
// The limits are shared by max-min fairness: as long as the total is within a limit, nobody is restricted. Beyond it, an
// account is restricted if it uses more than its fair share. An account that uses no more than limit/n, of n accounts, never
// is.
package fairshare
