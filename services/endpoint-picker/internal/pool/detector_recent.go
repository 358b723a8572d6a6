package pool

import "go.uber.org/zap"

// maxRecent is the number of failures that the log shows: enough to tell one kind from a mixture.
const maxRecent = 5

// recentFailures are the last failures of an endpoint, for the log.
type recentFailures struct {
	failures [maxRecent]string
	next     int
}

func (r *recentFailures) addFailure(failure string) {
	r.failures[r.next%maxRecent] = failure
	r.next++
}

// failureList returns the failures, the oldest first.
func (r *recentFailures) failureList() []string {
	var list []string
	for i := max(r.next-maxRecent, 0); i < r.next; i++ {
		list = append(list, r.failures[i%maxRecent])
	}
	return list
}

// ejectionFields are the fields of the log that explain an ejection, and say what to do.
func (h *history) ejectionFields(cause string) []zap.Field {
	if cause == causeScrape {
		return []zap.Field{zap.String("cause", cause),
			zap.String("advice", "nothing listens on the metrics port: check that the model server runs")}
	}
	return []zap.Field{
		zap.String("cause", cause), zap.Strings("lastFailures", h.recent.failureList()),
		zap.String("advice", "check the log of the model server; it gets a request again after a pause, to see whether it works"),
	}
}
