package sim

import "github.com/fabrictest/fabrictest/emu/mono"

// trunkTransit is the position of a segment between switches. Segments share
// the bandwidth of trunks with packets, but queues do not drop them.
type trunkTransit struct {
	at    *Switch   // nil before the first switch
	dir   *trunkDir // trunk that it crosses
	epoch uint32    // of that trunk when sent
	hops  int
	lost  bool // a trunk went down, or no next hop was up
}

// maxStreamHops is the number of trunks on a path for which segments are kept
// strictly in order; fat trees have two.
const maxStreamHops = 8

// crossTrunk sends seg over the next trunk. It returns true if seg is at the
// receiver's switch, or if no trunk leads there.
func (n *Net) crossTrunk(now mono.Time, seg *segment, far *Port) bool {
	s, walk := seg.sender, &seg.transit
	if walk.at == nil {
		walk.at = s.port.sw
	} else {
		walk.lost = walk.lost || walk.epoch != walk.dir.trunk.epoch
		walk.at = walk.dir.to
	}
	if walk.at == far.sw {
		return true
	}
	w := walk.at.nextHop(far.sw, flowHash(s.local, s.remote))
	if w == nil { // no trunk is up: forward seg as lost, so that later segments do not overtake it
		walk.lost = true
		hops := walk.at.nextHops[far.sw.id]
		if len(hops) == 0 {
			return true
		}
		w = hops[0]
	}
	walk.dir, walk.epoch = w, w.trunk.epoch
	// A trunk that goes down flushes its queue, so its next segment could arrive before
	// earlier ones: it arrives no earlier than they.
	order := &s.hopArrival[min(walk.hops, maxStreamHops-1)]
	*order = max(*order, w.wire.send(now, s.wireBytes(seg)))
	walk.hops++
	n.w.At(*order, (*segmentAtSwitch)(n), uint64(seg.id))
	return false
}

// trunkPathUp reports whether seg was not lost on a trunk and there is still a
// path.
func (s *Stream) trunkPathUp(seg *segment, far *Port) bool {
	if s.port.sw == far.sw {
		return true
	}
	return !seg.transit.lost && s.net.walkPath(s.port.sw, far.sw, flowHash(s.local, s.remote), func(*trunkDir) {})
}
