package rd

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// segment waits to be sent, or to be acknowledged.
type segment struct {
	next    *segment
	header  []byte   // a copy
	payload [][]byte // the owner's, until it is acknowledged
	seq     wire.Seq
	sentNo  uint32 // of its latest transmission
	sentAt  uint32 // when that was, as its packet says
	length  uint16 // header and payload
	tries   uint8
	sacked  bool
	lost    bool
}

// segmentPool allocates the segments of all peers, and keeps up to keepFree of them for reuse.
type segmentPool struct {
	free      *segment
	freeCount int
	used      int
}

const (
	keepFree = 4096
	// A header is rarely longer than usualHeader, and memory for one that is
	// longer than longHeader is not kept.
	usualHeader = 96
	longHeader  = 512
)

// get returns an unused segment, or allocates one.
func (pool *segmentPool) get() *segment {
	pool.used++
	if s := pool.free; s != nil {
		pool.free = s.next
		pool.freeCount--
		s.next = nil
		return s
	}
	return &segment{header: make([]byte, 0, usualHeader)}
}

// release takes a segment back and returns the next segment of its flow.
func (pool *segmentPool) release(s *segment) *segment {
	next := s.next
	pool.used--
	clear(s.payload) // or the pool would keep the sender's memory from being freed
	s.payload = s.payload[:0]
	if cap(s.header) > longHeader {
		s.header = make([]byte, 0, usualHeader)
	}
	if pool.freeCount < keepFree {
		s.next = pool.free
		pool.free = s
		pool.freeCount++
	}
	return next
}

// Room returns how many segments Send would accept for p now.
func (p *Peer) Room() int {
	l := p.layer
	return max(0, min(l.cfg.Limits.PeerSegments-p.Waiting(), l.cfg.Limits.Segments-l.segments.used))
}

// SetMore tells whether the owner has segments for which there is no Room. Otherwise the segments that were passed to
// Send are all.
func (p *Peer) SetMore(more bool) { p.set(flagMore, more) }

// begin starts a flow with epoch e to a peer to which no segment is queued. If the peer was heard
// of recently (recent) and has a flow to this host, that flow's epoch proves this host's address,
// since only the flow's receiver knows it. A peer that does not accept the proof sends a challenge.
// The RTT and the pace of the former flow are kept, its congestion window is not.
func (p *Peer) begin(e wire.Epoch, recent bool) {
	f := &p.send
	*f = sendFlow{
		epoch: e, window: wire.Window, cc: f.cc,
		rto: retransmitTimer{at: mono.Never}, loss: lossDetection{reorder: firstReorder},
	}
	f.cc.cwnd, f.cc.ssthresh, f.cc.recoveryEnd = firstWindow, wire.Window, 0
	p.set(flagSending|flagStarting, true)
	p.set(flagProved, recent && p.has(flagReceiving))
	if p.has(flagProved) {
		f.proof = uint64(p.recv.epoch)
	}
}

// Send queues a segment: a header, which is copied, and a payload, which must not change until Next
// reports that the segment was acknowledged or the flow failed. Layer.Peer must have returned p
// since the last failure, there must be Room, and the segment must be of at most MaxSegment octets.
func (p *Peer) Send(now mono.Time, header []byte, payload [][]byte) {
	f, l := &p.send, p.layer
	length := len(header)
	for _, b := range payload {
		length += len(b)
	}
	if !p.has(flagSending) || p.Gone() || p.Room() == 0 || length > l.MaxSegment() {
		panic(fmt.Sprintf("rd: Send to %v: flow %v, room %d, segment of %d octets (limit %d)",
			p.Key, p.has(flagSending) && !p.Gone(), p.Room(), length, l.MaxSegment()))
	}
	s := l.segments.get()
	*s = segment{
		header: append(s.header[:0], header...), payload: append(s.payload[:0], payload...),
		seq: f.next, length: uint16(length),
	}
	if f.newest == nil {
		f.oldest = s
		f.rto.madeProgress(now)
	} else {
		f.newest.next = s
	}
	f.newest = s
	if f.unsent == nil {
		f.unsent = s
	}
	f.next++
	if now.Sub(p.recv.lastPureAck) < l.cfg.Timing.AckDelay {
		p.set(flagDelayAcks, true) // the last acknowledgement could have gone with this segment
	}
	l.activate(p)
}
