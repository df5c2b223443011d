package interop

// stream puts one direction of a connection together from its segments.
type stream struct {
	begun bool
	next  uint32            // sequence number of the octet after those in hand
	early map[uint32][]byte // segments that came before their turn
	held  int               // octets in early
	lost  bool              // too much is missing: nothing more is read
	acked uint32            // up to where the other end has acknowledged
	bytes []byte            // in order, not yet read
}

// maxHeld bounds what waits for a segment that may never be seen.
const maxHeld = 4 << 20

// add takes a segment's octets, whatever their order. Octets that were there before
// do not count again.
func (s *stream) add(seg *segment) {
	seq := seg.seq
	if seg.flags&tcpSYN != 0 {
		s.begun, s.next = true, seq+1
		seq++
	}
	if !s.begun || s.lost || len(seg.payload) == 0 {
		return
	}
	if int32(seq-s.next) > 0 {
		s.keep(seq, seg.payload)
		return
	}
	s.take(seq, seg.payload)
	for again := true; again; {
		again = false
		for seq, b := range s.early {
			if int32(seq-s.next) <= 0 {
				delete(s.early, seq)
				s.held -= len(b)
				s.take(seq, b)
				again = true
			}
		}
	}
}

// keep keeps a segment that arrived before its turn.
func (s *stream) keep(seq uint32, payload []byte) {
	if len(s.early[seq]) >= len(payload) {
		return
	}
	if s.early == nil {
		s.early = make(map[uint32][]byte)
	}
	s.held += len(payload) - len(s.early[seq])
	s.early[seq] = append([]byte(nil), payload...)
	if s.held > maxHeld {
		s.lost, s.early = true, nil
	}
}

// take appends what of b is new.
func (s *stream) take(seq uint32, b []byte) {
	if known := int(s.next - seq); known < len(b) {
		s.bytes = append(s.bytes, b[known:]...)
		s.next += uint32(len(b) - known)
	}
}

// whole reports whether all octets in hand have been acknowledged, and none is
// missing.
func (s *stream) whole() bool { return !s.lost && len(s.early) == 0 && s.acked == s.next }
