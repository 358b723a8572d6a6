package balancer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

const (
	headerExplained = "x-fairlead-pick-explained"
	// maxExplained is the number of candidates in the header.
	maxExplained = 5
)

// destinationHeader names the chosen endpoint, followed by fallbacks.
func (m *pick) destinationHeader(endpoints []*endpoint.Endpoint) string {
	candidates, places := m.scheduling.Candidates(), m.scheduling.Places()
	first := endpoints[candidates[places[0]].Index].Address()
	if len(places) == 1 {
		return first
	}
	list := []string{first}
	for _, place := range places[1:] {
		list = append(list, endpoints[candidates[place].Index].Address())
	}
	return strings.Join(list, ",")
}

// notifyBinders tells the profile of its choice. Headers for the client are added to the reply.
func (m *pick) notifyBinders(p *scheduling.Profile) {
	x := m.requestContext
	for _, b := range p.Binders {
		if name, value := b.Bind(&m.request, x.Endpoint.Server()); name != "" {
			x.Reply = append(x.Reply, api.Header{Name: name, Value: value})
		}
	}
}

// recordScores records the scores of the candidates, if enabled.
func (b *Balancer) recordScores(x *exchange.RequestContext, m *pick, endpoints []*endpoint.Endpoint) {
	if n := x.RankingSize(); n > 0 {
		x.Ranking = m.rankCandidates(endpoints, n)
	}
	if !b.options.Scores && !b.options.Explain {
		return
	}
	if b.options.Explain {
		x.Reply = append(x.Reply, api.Header{Name: headerExplained, Value: m.formatExplanation(x.Destination)})
	}
	if !b.options.Scores {
		return
	}
	for i := range m.scheduling.Totals() {
		x.Scores = append(x.Scores, m.scoreOf(i, endpoints))
	}
}

// scoreOf returns the rating of the i-th candidate.
func (m *pick) scoreOf(i int, endpoints []*endpoint.Endpoint) exchange.Score {
	c := &m.scheduling.Candidates()[i]
	return exchange.Score{Endpoint: endpoints[c.Index], Total: m.scheduling.Totals()[i], Wait: c.Load.Wait, Matched: c.Matched}
}

// rankCandidates returns the best candidates, at most most of them.
func (m *pick) rankCandidates(endpoints []*endpoint.Endpoint, most int) []exchange.Score {
	order := m.rankingOrder()
	ranking := make([]exchange.Score, 0, min(len(order), most))
	for _, i := range order[:cap(ranking)] {
		ranking = append(ranking, m.scoreOf(i, endpoints))
	}
	return ranking
}

// rankingOrder returns the indexes of the candidates: the chosen ones, then the others by their scores.
func (m *pick) rankingOrder() []int {
	places, totals := m.scheduling.Places(), m.scheduling.Totals()
	order := slices.Grow(slices.Clone(places), len(totals))
	for i := range totals {
		if !slices.Contains(places, i) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order[len(places):], func(a, b int) int { return cmp.Compare(totals[b], totals[a]) })
	return order
}

// formatExplanation formats the best candidates: their scores, the estimated times to first token, and their cached part of the
// prompt.
func (m *pick) formatExplanation(destination string) string {
	candidates, totals, order := m.scheduling.Candidates(), m.scheduling.Totals(), m.rankingOrder()
	var text strings.Builder
	fmt.Fprintf(&text, "%s of %d", destination, len(candidates))
	for _, i := range order[:min(len(order), maxExplained)] {
		c := &candidates[i]
		fmt.Fprintf(&text, "; %s score=%.3f wait=%.3fs requests=%.0f cached=%d/%d",
			c.Server.Address, totals[i], c.Load.Wait, c.Load.Requests, c.Matched, m.request.Tokens)
	}
	return text.String()
}
