// Package pool is what picks know of one pool of model servers: its endpoints (Store, Snapshot), the endpoints that are ejected
// (Detector), the settings of requests by objectives and rewrites (Rules), and the requests that wait for an endpoint (Queue).
//
// Package pools starts and stops pools, and package pick chooses among the endpoints.
package pool
