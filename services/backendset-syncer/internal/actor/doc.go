// Package actor writes the backend sets of load balancers. Each load balancer has one actor, a goroutine that makes one request at a
// time, because the API serializes all writes of a load balancer by one ETag.
//
// Owners of backend sets call Actors.WantSet with the desired state; only the newest one of each set counts. An actor repeats these steps:
//
//	follow   the work request in progress, until it has ended
//	list     the work requests of others, and of an earlier leader: wait until they have ended
//	read     the load balancer, if its state may have changed
//	plan     the targets of all sets, and the first write that is needed
//	write    if this replica still leads
//
// Everything that arrives during a work request is merged into the next write. An actor keeps nothing that it needs after a restart:
// work requests in progress are listed, and retry tokens depend only on the write and on the state that it changes.
//
// A failure                              does
//
//	409, busy                             waits, 2 s to 30 s
//	409, the retry token was used         reads, and writes with another token
//	409, it exists; 404 of a set          reads
//	412, the load balancer has changed    lists and reads at once; waits if that happens again
//	429                                   waits as long as the service asks for, or 1 s to 60 s; the limit of all requests halves
//	401                                   waits, 10 s to 5 min
//	404 of the load balancer              waits, 30 s to 5 min
//	400, 501                              delays the set, 1 min to 10 min, or until its owner wants something else
//	5xx, no answer, an answer cut off     lists and reads after 1 s to 60 s: the write may have had its effect
//	a work request fails                  lists and reads, and delays the set, 1 s to 10 min
//	a work request does not end           lists and reads after 10 min
//	a read is older than the last write   reads again, for 30 s
//	others change a set again and again   repairs after 10 s, 20 s, ... 10 min
package actor
