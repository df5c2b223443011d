package ethernet

// A Pipe that holds a packet for reordering stores only its payload and
// datagram fields. The rest of the frame is stored in a slot, whose number is
// carried in the datagram's flow label above its 20 bits.
const (
	slotShift = 20
	maxSlots  = 1<<(32-slotShift) - 1
)

// templateStore holds the frame templates of packets that a Pipe may hold.
type templateStore struct {
	enabled bool // some event reorders packets
	all     []*frameTemplate
	free    []uint32
	busy    int
}

// store stores the template of a packet and returns its slot; 0 if full.
func (s *templateStore) store(h *headers, b []byte, partial bool) uint32 {
	slot := uint32(0)
	if k := len(s.free); k > 0 {
		slot, s.free = s.free[k-1], s.free[:k-1]
	} else if len(s.all) < maxSlots {
		s.all = append(s.all, &frameTemplate{})
		slot = uint32(len(s.all))
	} else {
		return 0
	}
	s.busy++
	s.all[slot-1].set(h, b, partial)
	return slot
}

// get returns the template of a slot, nil if there is none.
func (s *templateStore) get(slot uint32) *frameTemplate {
	if slot == 0 || int(slot) > len(s.all) {
		return nil
	}
	return s.all[slot-1]
}

// release frees a slot unless mayHold is set. If noneHeld is set, it frees all
// slots.
func (s *templateStore) release(slot uint32, mayHold, noneHeld bool) {
	switch {
	case noneHeld && s.busy > 0:
		s.free = s.free[:0]
		for i := range s.all {
			s.free = append(s.free, uint32(i+1))
		}
		s.busy = 0
	case slot != 0 && !mayHold:
		s.free = append(s.free, slot)
		s.busy--
	}
}
