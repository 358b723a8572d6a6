// Package flow tests the whole program with a real API server and an emulator of OCI. It has no code of its own.
package flow
