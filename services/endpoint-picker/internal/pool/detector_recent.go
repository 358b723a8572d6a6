package pool

import (
	"fmt"
	"math/bits"

	"go.uber.org/zap"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

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
func (h *history) ejectionFields(cause, reason string) []zap.Field {
	fields := []zap.Field{zap.String("cause", cause), zap.String("reason", reason)}
	if cause == causeScrape {
		return append(fields, zap.String("advice", "check that the model server runs"))
	}
	return append(fields, zap.Strings("lastFailures", h.recent.failureList()),
		zap.String("advice", "check the log of the model server; it gets a request again after a pause, to see whether it works"))
}

// explainStreak says how many failures the endpoint had, and what all endpoints did.
func (s *streak) explainStreak(all *tally) string {
	return fmt.Sprintf("%d failed requests since its last answer, while other endpoints gave %d answers; usual are %.1f failures before an answer",
		s.failures, s.othersAnswers(all), all.usual)
}

// explainShare says which part of the responses of the endpoint has a signal, and which part of those of the others.
func (h *history) explainShare(v request.HealthSignal, all *signalCounts) string {
	own, total := h.bySignal[v], h.totalCount()
	return fmt.Sprintf("%.0f of its last %.0f responses failed, and %.0f of %.0f of the other endpoints; older ones count less",
		own, total, max(all.bySignal[v]-own, 0), all.totalCount()-total)
}

// explainAll says how many answers ended early, while others were whole.
func (e *earlyEnds) explainAll(w *wholeAnswers) string {
	return fmt.Sprintf("all answers ended early, to %d prompts at least, while other endpoints gave %d whole answers",
		bits.OnesCount64(e.prompts), w.n-e.wholeBefore)
}
