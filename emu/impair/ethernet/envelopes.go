package ethernet

// A Pipe that keeps a packet back for others to overtake knows its payload and the
// fields of a datagram, not its frame. The rest is kept here meanwhile, and found
// again by a number that travels in the datagram's flow label, above the twenty
// bits that a label has.
const (
	slotShift = 20
	maxSlots  = 1<<(32-slotShift) - 1
)

// envelopes keeps those of packets that a Pipe may be holding.
type envelopes struct {
	on   bool // some event reorders
	all  []*envelope
	free []uint32
	busy int
}

// keep stores the envelope of a packet and returns its slot, 0 if there is no room
// for more.
func (s *envelopes) keep(h *headers, b []byte, partial bool) uint32 {
	slot := uint32(0)
	if k := len(s.free); k > 0 {
		slot, s.free = s.free[k-1], s.free[:k-1]
	} else if len(s.all) < maxSlots {
		s.all = append(s.all, &envelope{})
		slot = uint32(len(s.all))
	} else {
		return 0
	}
	s.busy++
	s.all[slot-1].wrap(h, b, partial)
	return slot
}

// open returns what keep stored, nil if nothing.
func (s *envelopes) open(slot uint32) *envelope {
	if slot == 0 || int(slot) > len(s.all) {
		return nil
	}
	return s.all[slot-1]
}

// settle says what the Pipe did with the packet of a slot: kept it back, perhaps,
// or surely not. When it keeps none at all every slot is free.
func (s *envelopes) settle(slot uint32, perhaps, none bool) {
	switch {
	case none && s.busy > 0:
		s.free = s.free[:0]
		for i := range s.all {
			s.free = append(s.free, uint32(i+1))
		}
		s.busy = 0
	case slot != 0 && !perhaps:
		s.free = append(s.free, slot)
		s.busy--
	}
}
