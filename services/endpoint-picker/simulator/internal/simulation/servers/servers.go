// Package servers contains profiles of model servers.
package servers

import _ "embed" // of the default profile

// Usual is the profile of a model of 8 billion parameters on one H100.
//
//go:embed 8b-h100.json
var Usual []byte
