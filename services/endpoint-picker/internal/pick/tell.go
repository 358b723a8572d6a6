package pick

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

const (
	headerExplained = "x-fairlead-pick-explained"
	// maxExplained is the number of candidates in the header.
	maxExplained = 5
)

// destinationHeader names the chosen endpoint, followed by fallbacks.
func (p *pickState) destinationHeader(endpoints []*endpoint.Endpoint) string {
	var most [8]string // usually enough: a pick allocates no list
	list, candidates := most[:0], p.scheduling.Candidates()
	for _, place := range p.scheduling.Places() {
		list = append(list, endpoints[candidates[place].Index].Address())
	}
	return strings.Join(list, ",")
}

// notifyBinders tells the profile of its choice. Headers for the client are added to the reply.
func (p *pickState) notifyBinders() {
	for _, b := range p.config.Profile.Binders {
		if name, value := b.Bind(&p.request, p.result.Endpoint.Server()); name != "" {
			p.result.Reply = append(p.result.Reply, api.Header{Name: name, Value: value})
		}
	}
}

// recordScores records the scores of the candidates, if enabled.
func (p *pickState) recordScores(endpoints []*endpoint.Endpoint) {
	options, result := &p.balancer.params.Options, &p.result
	if n := p.input.RankingSize; n > 0 {
		result.Ranking = p.rankCandidates(endpoints, n)
	}
	if options.Explain {
		result.Reply = append(result.Reply, api.Header{Name: headerExplained, Value: p.formatExplanation(result.Destination)})
	}
	if !options.Scores {
		return
	}
	for i := range p.scheduling.Totals() {
		result.Scores = append(result.Scores, p.scoreOf(i, endpoints))
	}
}

// scoreOf returns the rating of the i-th candidate.
func (p *pickState) scoreOf(i int, endpoints []*endpoint.Endpoint) request.Score {
	c := &p.scheduling.Candidates()[i]
	return request.Score{Endpoint: endpoints[c.Index], Total: p.scheduling.Totals()[i], Wait: c.Load.Wait, Matched: c.Matched}
}

// rankCandidates returns the best candidates, at most most of them.
func (p *pickState) rankCandidates(endpoints []*endpoint.Endpoint, most int) []request.Score {
	order := p.rankingOrder()
	ranking := make([]request.Score, 0, min(len(order), most))
	for _, i := range order[:cap(ranking)] {
		ranking = append(ranking, p.scoreOf(i, endpoints))
	}
	return ranking
}

// rankingOrder returns the indexes of the candidates: the chosen ones, then the others by their scores.
func (p *pickState) rankingOrder() []int {
	places, totals := p.scheduling.Places(), p.scheduling.Totals()
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
func (p *pickState) formatExplanation(destination string) string {
	candidates, totals, order := p.scheduling.Candidates(), p.scheduling.Totals(), p.rankingOrder()
	var text strings.Builder
	fmt.Fprintf(&text, "%s of %d", destination, len(candidates))
	for _, i := range order[:min(len(order), maxExplained)] {
		c := &candidates[i]
		fmt.Fprintf(&text, "; %s score=%.3f wait=%.3fs requests=%.0f cached=%d/%d",
			c.Server.Address, totals[i], c.Load.Wait, c.Load.Requests, c.Matched, p.request.Tokens)
	}
	return text.String()
}
