// Package linktest has the tests that every link.PacketLink ([TestPacketLink]) and every
// link.StreamNet ([TestStreamNet]) must pass, and a fake link for other tests: [Pair]
// returns two ends joined in memory, which deliver datagrams at once and in order.
//
// A fake is not safe for concurrent use.
package linktest

import (
	"bytes"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Link is a fake link, one end of a Pair. Its exported fields may be changed at any time.
type Link struct {
	// QueueLimit is how many datagrams the other end queues before the link is full.
	QueueLimit int
	// MaxIPBytes is the MTU; larger packets are taken and lost.
	MaxIPBytes int
	// Caps is returned by Features. Header fields that it excludes are not carried.
	Caps link.Features
	// Drop, if set, decides which sent datagrams are lost.
	Drop func(*link.Datagram) bool

	peer     *Link
	queue    []link.Datagram
	received int // datagrams that the last Recv returned, still at the front
	closed   bool
}

var _ link.PacketLink = (*Link)(nil)

// Pair returns the two ends of a link with queues of 1024 datagrams, MTU 9000 and all features.
func Pair() (a, b *Link) {
	allFeatures := link.Features{SeesIPID: true, SeesHeader: true, SetsIPID: true, SetsHeader: true, Deterministic: true}
	a = &Link{QueueLimit: 1024, MaxIPBytes: 9000, Caps: allFeatures}
	b = &Link{QueueLimit: 1024, MaxIPBytes: 9000, Caps: allFeatures, peer: a}
	a.peer = b
	return a, b
}

// Send implements link.PacketLink. It delivers copies of the datagrams to the other end at once,
// until that end's queue is full. Datagrams beyond the MTU, to a closed end, or that l.Drop selects
// are lost, and count as sent.
func (l *Link) Send(_ mono.Time, ds []link.Datagram) (int, error) {
	if l.closed {
		return 0, link.ErrClosed
	}
	for i := range ds {
		if l.peer.Queued() >= l.QueueLimit {
			return i, nil
		}
		d := ds[i]
		if d.IPBytes() > l.MaxIPBytes || l.peer.closed || (l.Drop != nil && l.Drop(&d)) {
			continue
		}
		d.Payload = bytes.Clone(d.Payload)
		l.peer.queue = append(l.peer.queue, l.peer.asReceived(l.asSent(d)))
	}
	return len(ds), nil
}

// asSent returns d with only the header fields that l can set; the others have defaults.
func (l *Link) asSent(d link.Datagram) link.Datagram {
	if !l.Caps.SetsHeader || d.HopLimit == 0 {
		d.HopLimit = 64
	}
	if !l.Caps.SetsHeader {
		d.TClass, d.FlowLabel = 0, 0
	}
	if !l.Caps.SetsIPID || d.IPID >= link.IPIDUnknown {
		d.IPID = 0
	}
	return d
}

// asReceived returns d with only the header fields that l can see.
func (l *Link) asReceived(d link.Datagram) link.Datagram {
	if !l.Caps.SeesIPID {
		d.IPID = link.IPIDUnknown
	}
	if !l.Caps.SeesHeader {
		d.TClass, d.HopLimit, d.FlowLabel = 0, 0, 0
	}
	return d
}

// Recv implements link.PacketLink. It overwrites the payloads of the previous Recv, so that
// tests find code that keeps them.
func (l *Link) Recv(_ mono.Time, ds []link.Datagram) (int, error) {
	if l.closed {
		return 0, link.ErrClosed
	}
	for _, d := range l.queue[:l.received] {
		for i := range d.Payload {
			d.Payload[i] = 0xdb // arbitrary: the old contents must not stay
		}
	}
	l.queue = l.queue[l.received:]
	l.received = copy(ds, l.queue)
	return l.received, nil
}

// Queued returns the number of datagrams that Recv has not returned yet.
func (l *Link) Queued() int { return len(l.queue) - l.received }

// MTU implements link.PacketLink.
func (l *Link) MTU() int { return l.MaxIPBytes }

// Features implements link.PacketLink.
func (l *Link) Features() link.Features { return l.Caps }

// Close implements link.PacketLink. Later datagrams to this end are lost.
func (l *Link) Close() error {
	if l.closed {
		return link.ErrClosed
	}
	l.closed = true
	return nil
}
