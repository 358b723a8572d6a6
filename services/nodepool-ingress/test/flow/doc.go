// Package flow tests the whole program with a real API server. The tests act for the controllers that the API server lacks.
package flow
