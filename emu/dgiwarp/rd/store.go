package rd

import "github.com/fabrictest/fabrictest/emu/dgiwarp/wire"

// stored is a segment received out of order.
type stored struct {
	next *stored
	buf  []byte
	seq  wire.Seq
}

// storePool reuses buffers of two sizes, so that short segments do not use the space of long
// ones.
type storePool struct {
	small, large         *stored
	smallFree, largeFree int
}

const (
	smallSegment = 512
	keepStored   = 512 // of each size
)

func (l *Layer) bufferSize(n int) int {
	if n <= smallSegment {
		return smallSegment
	}
	return l.cfg.MaxPacket
}

// storeSegment stores a copy of a segment, unless it is a duplicate or there is no room. A
// segment without room is not acknowledged and will be retransmitted.
func (p *Peer) storeSegment(seq wire.Seq, segment []byte) {
	l := p.layer
	at := &p.stored
	for *at != nil && (*at).seq.Less(seq) {
		at = &(*at).next
	}
	if *at != nil && (*at).seq == seq {
		l.Count.DropRepeated++
		p.set(flagDuplicate, true)
		return
	}
	size := l.bufferSize(len(segment))
	if size > l.storedByteRoom || len(segment) > size {
		l.Count.DropStore++
		return
	}
	l.storedByteRoom -= size
	s := l.store.get(size)
	s.seq, s.buf = seq, append(s.buf[:0], segment...)
	s.next = *at
	*at = s
}

// unstore removes the first stored segment of p.
func (l *Layer) unstore(p *Peer) {
	s := p.stored
	p.stored = s.next
	l.storedByteRoom += cap(s.buf)
	l.store.put(s)
}

// get returns an empty buffer with a capacity of size, which is smallSegment or the size of large
// ones.
func (f *storePool) get(size int) *stored {
	list, count := &f.large, &f.largeFree
	if size == smallSegment {
		list, count = &f.small, &f.smallFree
	}
	if s := *list; s != nil {
		*list = s.next
		*count--
		return s
	}
	return &stored{buf: make([]byte, 0, size)}
}

// put frees a buffer. The pool keeps up to keepStored free buffers of each size.
func (f *storePool) put(s *stored) {
	list, count := &f.large, &f.largeFree
	if cap(s.buf) == smallSegment {
		list, count = &f.small, &f.smallFree
	}
	s.next = nil
	if *count < keepStored {
		s.next = *list
		*list = s
		*count++
	}
}
