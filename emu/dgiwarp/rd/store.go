package rd

import "github.com/fabrictest/fabrictest/emu/dgiwarp/wire"

// stored is a segment received out of order.
type stored struct {
	next *stored
	buf  []byte
	seq  wire.Seq
}

// storePool reuses buffers of two sizes, so that short segments do not occupy long buffers.
type storePool struct {
	small, large         *stored
	smallFree, largeFree int
	room                 int // octets that segments may still take
}

const (
	smallSegment = 512
	keepStored   = 512 // of each size
)

// storeSegment stores a copy of a segment that arrived early, in a small or a large buffer, unless
// it is a duplicate. Without room it drops the segment, which the peer will retransmit.
func (p *Peer) storeSegment(seq wire.Seq, segment []byte) {
	l := p.layer
	at := &p.recv.stored
	for *at != nil && (*at).seq.Less(seq) {
		at = &(*at).next
	}
	if *at != nil && (*at).seq == seq {
		l.Count.DropRepeated++
		p.set(flagDuplicate, true)
		return
	}
	size := smallSegment
	if len(segment) > smallSegment {
		size = l.cfg.MaxPacket
	}
	if size > l.store.room || len(segment) > size {
		l.Count.DropStore++
		return
	}
	s := l.store.get(size)
	s.seq, s.buf = seq, append(s.buf[:0], segment...)
	s.next = *at
	*at = s
}

// unstore removes the first stored segment of p.
func (l *Layer) unstore(p *Peer) {
	s := p.recv.stored
	p.recv.stored = s.next
	l.store.put(s)
}

// list returns the list of free buffers of a size, which is smallSegment or MaxPacket, and its
// length, both for the caller to update.
func (pool *storePool) list(size int) (first **stored, count *int) {
	if size == smallSegment {
		return &pool.small, &pool.smallFree
	}
	return &pool.large, &pool.largeFree
}

// get takes room for a buffer of a size, and returns a free one, or allocates one.
func (pool *storePool) get(size int) *stored {
	pool.room -= size
	list, count := pool.list(size)
	if s := *list; s != nil {
		*list = s.next
		*count--
		return s
	}
	return &stored{buf: make([]byte, 0, size)}
}

// put returns the room that get took for s. It keeps s for reuse, unless keepStored buffers of its
// size, which is the capacity of s.buf, are free already.
func (pool *storePool) put(s *stored) {
	list, count := pool.list(cap(s.buf))
	pool.room += cap(s.buf)
	s.next = nil
	if *count < keepStored {
		s.next = *list
		*list = s
		*count++
	}
}
