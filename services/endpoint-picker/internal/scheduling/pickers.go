package scheduling

// MaxScorePicker picks the best candidates; the request's random number decides between equal ones.
type MaxScorePicker struct {
	Most int // number of picks; less than 1 means 1
}

// Pick appends the indexes of the highest scores.
func (p MaxScorePicker) Pick(r *Request, scores []float64, places []int) []int {
	if p.Most <= 1 {
		return append(places, highest(scores, r.Random))
	}
	places = allPlaces(len(scores), places)
	most := min(p.Most, len(places))
	for i := range most {
		rest := places[i:]
		best, equals := 0, uint64(1)
		for j := 1; j < len(rest); j++ {
			switch score := scores[rest[j]]; {
			case score > scores[rest[best]]:
				best, equals = j, 1
			case score == scores[rest[best]]:
				// Each of k equal candidates must win with probability 1/k.
				if equals++; r.draw(streamPick, i*len(scores)+j)%equals == 0 {
					best = j
				}
			}
		}
		rest[0], rest[best] = rest[best], rest[0]
	}
	return places[:most]
}

// highest returns the index of the highest score. The random number decides between equal ones.
func highest(scores []float64, random uint64) int {
	best, equals := scores[0], uint64(0)
	for _, score := range scores {
		switch {
		case score > best:
			best, equals = score, 1
		case score == best:
			equals++
		}
	}
	skip := random % equals
	for i, score := range scores {
		if score != best {
			continue
		}
		if skip == 0 {
			return i
		}
		skip--
	}
	return 0
}

// RandomPicker picks candidates at random.
type RandomPicker struct {
	Most int // number of picks; less than 1 means 1
}

// Pick appends indexes. All orders are equally likely.
func (p RandomPicker) Pick(r *Request, scores []float64, places []int) []int {
	if p.Most <= 1 {
		return append(places, int(r.draw(streamPick, 0)%uint64(len(scores))))
	}
	places = allPlaces(len(scores), places)
	most := min(p.Most, len(places))
	for i := range most {
		rest := places[i:]
		j := r.draw(streamPick, i) % uint64(len(rest))
		rest[0], rest[j] = rest[j], rest[0]
	}
	return places[:most]
}

// WeightedRandomPicker picks candidates with probabilities proportional to their scores. Candidates with a score of 0 come
// last, in any order.
type WeightedRandomPicker struct {
	Most int // number of picks; less than 1 means 1
}

// Pick appends indexes, each drawn from the remaining ones.
func (p WeightedRandomPicker) Pick(r *Request, scores []float64, places []int) []int {
	places = allPlaces(len(scores), places)
	most := max(min(p.Most, len(places)), 1)
	for i := range most {
		rest := places[i:]
		j := weighted(scores, rest, r.draw(streamPick, i))
		rest[0], rest[j] = rest[j], rest[0]
	}
	return places[:most]
}

// weighted draws one of the indexes by score.
func weighted(scores []float64, places []int, random uint64) int {
	sum := 0.0
	for _, place := range places {
		sum += scores[place]
	}
	if sum <= 0 {
		return int(random % uint64(len(places)))
	}
	left, drawn := unit(random)*sum, 0
	for j, place := range places {
		if scores[place] <= 0 {
			continue
		}
		drawn = j // the last one, because of rounding
		if left -= scores[place]; left < 0 {
			break
		}
	}
	return drawn
}

// allPlaces appends the indexes 0 to n-1.
func allPlaces(n int, places []int) []int {
	for i := range n {
		places = append(places, i)
	}
	return places
}
