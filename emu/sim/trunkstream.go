package sim

import "github.com/fabrictest/fabrictest/emu/mono"

// trunkWalk is how far a segment of a stream has come between switches. Streams
// share the bandwidth of trunks with packets, but queues do not lose segments.
type trunkWalk struct {
	at    *Switch // nil before the first
	on    *way    // that it is crossing
	epoch uint32  // of that trunk
	hops  int
	lost  bool // a trunk went down under it, or none was up
}

// maxStreamHops bounds the trunks of a way for which a stream keeps its order
// exactly; fat trees have two.
const maxStreamHops = 8

// walked takes seg one switch further, and reports whether it has come to that
// of the receiver, or to where no trunk leads.
func (n *Net) walked(now mono.Time, seg *segment, far *Port) bool {
	s, walk := seg.from, &seg.trunks
	if walk.at == nil {
		walk.at = s.port.sw
	} else {
		walk.lost = walk.lost || walk.epoch != walk.on.trunk.epoch
		walk.at = walk.on.to
	}
	if walk.at == far.sw {
		return true
	}
	w := walk.at.choose(far.sw, flowHash(s.local, s.remote))
	if w == nil { // it goes on as if it were not lost, so that it overtakes nothing
		walk.lost = true
		ways := walk.at.next[far.sw.id]
		if len(ways) == 0 {
			return true
		}
		w = ways[0]
	}
	walk.on, walk.epoch = w, w.trunk.epoch
	// A trunk that goes down forgets its queue, so order is kept here.
	order := &s.atHop[min(walk.hops, maxStreamHops-1)]
	*order = max(*order, w.wire.send(now, s.wireBytes(seg)))
	walk.hops++
	n.w.At(*order, (*segmentAtSwitch)(n), uint64(seg.id))
	return false
}

// trunksPass reports whether seg got over the trunks between the switches, and
// they lead there still.
func (s *Stream) trunksPass(seg *segment, far *Port) bool {
	if s.port.sw == far.sw {
		return true
	}
	return !seg.trunks.lost && s.net.path(s.port.sw, far.sw, flowHash(s.local, s.remote), func(*way) {})
}
