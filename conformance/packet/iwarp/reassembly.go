package iwarp

import (
	"cmp"
	"slices"
)

// PartialMessages has the segments of incomplete messages, which a network may reorder. P is a
// packet with a segment.
type PartialMessages[P interface{ DDPSegment() *Segment }] struct {
	WriteTO uint64 // the tagged offset at which Writes begin

	byMSN map[uint32][]P // tagged segments, which have no MSN, are at 0
}

// DDPSegment returns the segment of the packet.
func (p Packet) DDPSegment() *Segment { return p.Segment }

// Add adds a segment. If its message is then complete, Add removes the message and returns its
// segments, sorted by offset; else nil.
func (m *PartialMessages[P]) Add(p P) []P {
	if m.byMSN == nil {
		m.byMSN = make(map[uint32][]P)
	}
	msn := Val(p.DDPSegment().DDP.MSN)
	all := append(m.byMSN[msn], p)
	slices.SortFunc(all, func(a, b P) int { return cmp.Compare(m.offset(a), m.offset(b)) })
	if m.isComplete(all) {
		delete(m.byMSN, msn)
		return all
	}
	m.byMSN[msn] = all
	return nil
}

// offset returns the offset of a segment in its message.
func (m *PartialMessages[P]) offset(p P) uint64 {
	d := &p.DDPSegment().DDP
	if d.TO != nil {
		return *d.TO - m.WriteTO
	}
	return uint64(Val(d.MO))
}

// isComplete reports whether sorted segments have no gaps, and end with the last of the message.
func (m *PartialMessages[P]) isComplete(all []P) bool {
	end := uint64(0)
	for _, p := range all {
		if m.offset(p) != end {
			return false
		}
		end += uint64(len(p.DDPSegment().Payload))
	}
	return Val(all[len(all)-1].DDPSegment().DDP.Last)
}
