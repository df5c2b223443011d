package engine

import "slices"

// span is octets [from, to) of a message.
type span struct{ from, to uint32 }

// maxRanges is the maximum number of spans in ranges.
const maxRanges = 64

// ranges is a set of octets: sorted spans that neither touch nor overlap.
type ranges struct{ spans []span }

// add adds a span. It reports false, without a change, if there would be too many spans.
func (r *ranges) add(s span) bool {
	if s.from >= s.to {
		return true
	}
	// Spans i to j-1 touch or overlap s, and become one with it.
	i := 0
	for i < len(r.spans) && r.spans[i].to < s.from {
		i++
	}
	j := i
	for j < len(r.spans) && r.spans[j].from <= s.to {
		s.from, s.to = min(s.from, r.spans[j].from), max(s.to, r.spans[j].to)
		j++
	}
	if i == j && len(r.spans) == maxRanges {
		return false
	}
	r.spans = slices.Replace(r.spans, i, j, s)
	return true
}

// fits reports whether add would succeed.
func (r *ranges) fits(s span) bool {
	if len(r.spans) < maxRanges {
		return true
	}
	for _, o := range r.spans {
		if o.from <= s.to && s.from <= o.to {
			return true
		}
	}
	return false
}

// whole reports whether the set is exactly the first n octets, or n is 0.
func (r *ranges) whole(n uint32) bool {
	return n == 0 || len(r.spans) == 1 && r.spans[0] == span{0, n}
}
