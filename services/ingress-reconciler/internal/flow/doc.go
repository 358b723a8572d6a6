// Package flow holds tests of the whole reconciler on a real API server, beside a stand-in for OME and one for data planes.
package flow
