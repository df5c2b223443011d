package udplink

import (
	"sync/atomic"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/process"
)

// A link with a ring receives from two queues, the ring and the UDP socket. This file reads them in the
// order in which datagrams arrived: each message of the socket has an index entry in the ring.
// Two kinds of messages have none: those that did not arrive at the link's interface, such as
// messages of the host to itself and to multicast groups, and those that came when the ring was full.

// socketPolls says when to read the socket although the ring has no index entry.
type socketPolls struct {
	empty int // calls in a row that found the ring empty
	due   int // of the next calls, how many read the socket
	// woken is set by the goroutine that slept until one of the sockets became readable.
	woken atomic.Bool
}

const (
	// pollSocketEvery is how many polls of an empty ring follow each other before the socket is read.
	pollSocketEvery = 64
	// pollsAfterMessage is the number of polls that read the socket after one found a message without
	// index entry: another one probably follows.
	pollsAfterMessage = 64
	// maxEntryWaits is how many reads of the socket may find nothing before an index entry is dropped.
	// The kernel fills the ring just before the socket, unless the socket drops the datagram.
	maxEntryWaits = 64
)

// isDue reports whether to read the socket now. The ring has no entry.
func (s *socketPolls) isDue() bool {
	s.empty++
	if s.woken.Load() && s.woken.Swap(false) {
		s.due = max(s.due, 1)
	}
	if s.due > 0 {
		s.due--
		return true
	}
	return s.empty%pollSocketEvery == 0
}

// recvInOrder fills ds with datagrams of the ring and of the socket, in the order of their arrival.
func (l *Link) recvInOrder(ds []link.Datagram) (n int, err error) {
	g, r := &l.ring, &l.in
	g.release()
	for n < len(ds) {
		e, ok := g.entryAt(g.next)
		switch {
		case r.off > 0: // the rest of a super-packet
			n += l.deliver(ds[n:], 1)
		case ok && e.whole:
			g.socket.empty = 0
			n += l.takeWhole(&e, &ds[n])
		case r.pending():
			n += l.deliverMessage(ds[n:], &e, ok)
		case n > 0 || !ok && len(l.groups) == 0 && !g.socket.isDue():
			return n, nil
		default:
			if err := l.readAny(len(ds)); err != nil {
				return 0, err
			}
			if r.pending() {
				continue
			}
			if g.waits++; !ok || g.waits < maxEntryWaits {
				return 0, nil
			}
			g.advance() // the socket has dropped the datagram: its buffer was full, or the checksum wrong
		}
	}
	return n, nil
}

// takeWhole reads the datagram of the current entry into d, and makes the next entry the current one. It
// returns the number of datagrams read: 0 if the packet is not valid.
func (l *Link) takeWhole(e *entry, d *link.Datagram) (n int) {
	l.ring.taken++
	l.ring.advance()
	if !e.decode(d) {
		return 0
	}
	process.RaceReceived() // for the race detector, which does not see the ring
	l.stats.RecvDatagrams++
	l.stats.RecvBytes += uint64(len(d.Payload))
	l.stats.RecvFrames++
	l.frames.received(d.Src.Addr())
	return 1
}

// deliverMessage delivers the next message that was read from the socket, if the current entry of the
// ring describes it, or none does. If a later one does, the socket has dropped the datagram of
// the current entry, and the next entry becomes the current one. ok says whether there is a
// current entry e.
func (l *Link) deliverMessage(ds []link.Datagram, e *entry, ok bool) (n int) {
	g, r := &l.ring, &l.in
	message := r.slots[r.next*slotStride:][:r.headers[r.next].n]
	switch {
	case ok && e.describes(message):
		g.advance()
		g.socket.empty = 0
	case ok && g.hasLater(message):
		g.advance()
		return 0
	default:
		g.socket.due = pollsAfterMessage
	}
	n = l.deliver(ds, 1)
	if n > 0 {
		l.frames.received(ds[0].Src.Addr())
	}
	return n
}
