package plugins

import "fairlead.dev/services/endpoint-picker/internal/scheduling"

// Sources of the estimated times to first token.
const (
	ttftFromLoad      = "prefillThroughput" // the uncomputed tokens divided by peakPrefillThroughput
	ttftFromPredictor = "latencyPredictor"  // the picker's own prediction
)

// prefixCacheAffinityFilter keeps requests on the endpoints with their prompt in the cache, unless those are much busier than
// others.
type prefixCacheAffinityFilter struct {
	AffinityThreshold                 float64 `yaml:"affinityThreshold"`      // minimum share of the prompt in the cache
	ExplorationProbability            float64 `yaml:"explorationProbability"` // share of the requests that may go to every endpoint
	MaxTTFTPenaltyMs                  float64 `yaml:"maxTTFTPenaltyMs"`       // maximum delay of the first token for the cache; 0 for no limit
	TTFTSource                        string  `yaml:"ttftSource"`
	PeakPrefillThroughput             float64 `yaml:"peakPrefillThroughput"`              // tokens per second
	MaxTokensInFlightPenalty          float64 `yaml:"maxTokensInFlightPenalty,omitempty"` // uncomputed tokens; 0 for no limit
	PrefillCalibrationFile            string  `yaml:"prefillCalibrationFile,omitempty"`
	PrefillCalibrationFingerprint     string  `yaml:"prefillCalibrationFingerprint,omitempty"`
	PrefillCalibrationRequired        bool    `yaml:"prefillCalibrationRequired,omitempty"`
	PrefixMatchInfoProducerName       string  `yaml:"prefixMatchInfoProducerName,omitempty"`
	LatencyPredictionInfoProducerName string  `yaml:"latencyPredictionInfoProducerName,omitempty"`
	InFlightLoadProducerName          string  `yaml:"inFlightLoadProducerName,omitempty"`

	predicted bool // TTFTSource is ttftFromPredictor
}

// Validate checks the parameters.
func (f *prefixCacheAffinityFilter) Validate(c *Check) {
	c.Share("affinityThreshold", f.AffinityThreshold)
	c.Share("explorationProbability", f.ExplorationProbability)
	c.NotNegative("maxTTFTPenaltyMs", f.MaxTTFTPenaltyMs)
	c.NotNegative("maxTokensInFlightPenalty", f.MaxTokensInFlightPenalty)
	c.Positive("peakPrefillThroughput", f.PeakPrefillThroughput)
	c.OneOf("ttftSource", f.TTFTSource, ttftFromLoad, ttftFromPredictor)
	c.requireProducer("prefixMatchInfoProducerName", f.PrefixMatchInfoProducerName, typeApproxPrefixCacheProducer)
	c.requireProducer("inFlightLoadProducerName", f.InFlightLoadProducerName, typeInflightLoadProducer)
	c.Require(f.LatencyPredictionInfoProducerName == "", "latencyPredictionInfoProducerName",
		"the picker predicts latency itself: leave it out")
	f.predicted = f.TTFTSource == ttftFromPredictor
	if f.predicted {
		c.noEffect("peakPrefillThroughput", "ttftSource is "+ttftFromPredictor)
	}
	f.checkCalibration(c)
}

// checkCalibration refuses a file with the throughput, unless something else sets it.
func (f *prefixCacheAffinityFilter) checkCalibration(c *Check) {
	c.Require(f.PrefillCalibrationFile == "" || f.predicted || c.HasField("peakPrefillThroughput"), "prefillCalibrationFile",
		"the picker reads no calibration: give the measured throughput as peakPrefillThroughput, or set ttftSource to %s, which learns it",
		ttftFromPredictor)
	for _, field := range []string{"prefillCalibrationFile", "prefillCalibrationFingerprint", "prefillCalibrationRequired"} {
		c.noEffect(field, "the picker reads no calibration")
	}
}

// ApplyTo counts the index of prefixes as used.
func (f *prefixCacheAffinityFilter) ApplyTo(b *Builder) { b.useProducer(f.PrefixMatchInfoProducerName) }

// streamExplore is the random stream of exploration.
const streamExplore = 1

// Filter keeps the candidates with enough of the prompt in their caches. It keeps all candidates if no cache has enough, or if
// those candidates are too busy.
func (f *prefixCacheAffinityFilter) Filter(r *scheduling.Request, candidates []scheduling.Candidate) []scheduling.Candidate {
	if r.Tokens <= 0 || f.ExplorationProbability > 0 && scheduling.Unit(r.DrawRandom(streamExplore, 0)) < f.ExplorationProbability {
		return candidates
	}
	if f.MaxTTFTPenaltyMs > 0 && f.penalty(r, candidates, f.waitOf)*1000 > f.MaxTTFTPenaltyMs {
		return candidates
	}
	if f.MaxTokensInFlightPenalty > 0 && f.penalty(r, candidates, tokensInFlight) > f.MaxTokensInFlightPenalty {
		return candidates
	}
	return scheduling.PreferAccepted(candidates, func(c *scheduling.Candidate) bool { return cachedShare(r, c) >= f.AffinityThreshold })
}

// penalty returns the additional cost of the best endpoint with the prompt, compared with the best one without. It is 0 if all endpoints
// have the prompt, or none.
func (f *prefixCacheAffinityFilter) penalty(r *scheduling.Request, candidates []scheduling.Candidate,
	cost func(*scheduling.Candidate) float64) float64 {
	var best [2]float64 // without and with the prompt
	var found [2]bool
	for i := range candidates {
		c, with := &candidates[i], 0
		if cachedShare(r, c) >= f.AffinityThreshold {
			with = 1
		}
		if cost := cost(c); !found[with] || cost < best[with] {
			best[with], found[with] = cost, true
		}
	}
	if !found[0] || !found[1] {
		return 0
	}
	return best[1] - best[0]
}

// waitOf returns the expected seconds to the first token.
func (f *prefixCacheAffinityFilter) waitOf(c *scheduling.Candidate) float64 {
	if f.predicted {
		return c.Load.Wait
	}
	return c.Load.Tokens / f.PeakPrefillThroughput
}

// tokensInFlight returns the tokens that an endpoint has to compute.
func tokensInFlight(c *scheduling.Candidate) float64 { return c.Load.Tokens }

// ReadsEstimates reports that the filter reads Candidate.Matched.
func (*prefixCacheAffinityFilter) ReadsEstimates() bool { return true }
