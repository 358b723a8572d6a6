// Package flow tests the whole program against a real API server. Tests play the controllers that the API server does not have.
package flow
