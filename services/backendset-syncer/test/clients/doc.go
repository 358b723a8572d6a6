// Package clients tests the emulator of OCI Load Balancers with Oracle's own clients: what the tests of the syncer learn from the emulator
// is worth as much as the emulator is like the service.
package clients
