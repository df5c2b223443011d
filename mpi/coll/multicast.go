package coll

// multicastTag is the tag of multicast segments: they are not ordered with other messages.
const multicastTag = 1

// maxSegments is the number of segments of a round.
const maxSegments = 128

// multicastOut multicasts the segments of Out from the root.
var multicastOut = phase{
	func(c *Call) int {
		if c.Size == 1 {
			return 0
		}
		return batches(c.segments(), maxSegments)
	},
	func(c *Call, i int, r *Round) {
		for k := i * maxSegments; k < min((i+1)*maxSegments, c.segments()); k++ {
			off := k * c.Segment
			s := Slice{Out, off, min(c.Segment, c.Bytes-off)}
			if c.Rank == c.Root {
				r.Steps = append(r.Steps, Step{Kind: Multicast, Tag: multicastTag, Src: s})
			} else {
				r.Steps = append(r.Steps, Step{Kind: RecvMulticast, Peer: c.Root, Tag: multicastTag, Dst: s})
			}
		}
	},
}

// segments is the number of segments of Out. An empty vector has one.
func (c *Call) segments() int { return max(1, batches(c.Bytes, c.Segment)) }

// ifRendezvous returns a phase of calls with Rendezvous.
func (p phase) ifRendezvous() phase {
	return phase{
		func(c *Call) int {
			if !c.Rendezvous {
				return 0
			}
			return p.rounds(c)
		},
		p.round,
	}
}
