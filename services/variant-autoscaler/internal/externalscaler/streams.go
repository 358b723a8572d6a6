package externalscaler

import "sync"

const (
	// maxStreams is the number of streams at a time. A stream takes about 20 KiB, so a caller that opens all takes 40 MiB. From 2.21 on,
	// KEDA opens two for each ScaledObject.
	maxStreams = 2048
	// maxStreamsOfNamespace is the part of them that ScaledObjects of a namespace can take: eight namespaces take all.
	maxStreamsOfNamespace = 256
)

// streamCounter counts the open streams, which one namespace cannot use up.
type streamCounter struct {
	observer observer

	mu     sync.Mutex
	total  int
	counts map[string]int // by namespace
}

func newStreamCounter(o observer) *streamCounter {
	return &streamCounter{observer: o, counts: map[string]int{}}
}

// tryOpen returns false if there are too many streams.
func (s *streamCounter) tryOpen(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= maxStreams || s.counts[namespace] >= maxStreamsOfNamespace {
		return false
	}
	s.total++
	s.counts[namespace]++
	s.observer.SetStreams(s.total)
	return true
}

func (s *streamCounter) closeStream(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.counts[namespace]--; s.counts[namespace] == 0 {
		delete(s.counts, namespace)
	}
	s.observer.SetStreams(s.total)
}
