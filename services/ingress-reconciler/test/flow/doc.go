// Package flow tests the whole reconciler with a real API server, and with emulators of OME 1.2, OME 1.3 and data planes.
package flow
