package engine

import "slices"

// span is octets [from, to) of a message.
type span struct{ from, to uint32 }

// maxRanges is how many separate spans of a message are kept track of.
const maxRanges = 64

// ranges is a set of octets: spans in order that neither touch nor overlap, at
// most maxRanges of them.
type ranges struct{ spans []span }

// add enters a span. It reports false, and changes nothing, if that would take
// too many spans.
func (r *ranges) add(s span) bool {
	if s.from >= s.to {
		return true
	}
	// Those from i to j-1 touch or overlap it.
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

// fits reports whether add would take s.
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

// whole reports whether all of the first n octets are there.
func (r *ranges) whole(n uint32) bool {
	return n == 0 || len(r.spans) == 1 && r.spans[0] == span{0, n}
}
