// Package proxybench compares the proxy listener of the picker with nginx: the same requests, model servers and rate, one after
// the other and several times. It runs where nginx is installed (Debian: nginx-light), in about a minute:
//
//	go test -tags system -run '^$' -bench . -benchtime 1x ./test/proxybench
//
// Model servers and clients are in the process of the test and share the processors with the proxy, so latencies are for
// comparison only. Clients of nginx connect to a unix socket, because nginx cannot choose a port: this costs it a little less. The
// processor time is that of the proxy's processes alone.
package proxybench
