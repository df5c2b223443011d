package carrier

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi/transport"
)

// packet is a packet that was sent or is about to be. It is headerless, that is data alone
// without prefix and header, if it has immediate data.
type packet struct {
	transport.Packet
	peer     *peer
	sentOn   *conn // nil for datagrams
	seq      uint32
	numbered bool
	posted   int           // send requests with it that the NIC has
	acked    bool          // the packet is freed when posted is 0
	owner    any           // that waits until the packet is freed; nil if none does
	sentAt   time.Duration // last time
}

// packetPool holds what packets are made of.
type packetPool struct {
	idle    []*packet
	scratch []byte // contents of the next data packet
}

// take returns an idle packet with old contents, or else a new one.
func (l *packetPool) take() *packet {
	last := len(l.idle) - 1
	if last < 0 {
		return new(packet)
	}
	pkt := l.idle[last]
	l.idle = l.idle[:last]
	return pkt
}

// kind is the type of a packet, the first byte of its prefix.
type kind uint8

const (
	message                 kind = iota + 1 // a wire header, and the data of an eager message
	ackOnly                                 // the prefix alone, without a sequence number
	probe                                   // keepalive probe, without a sequence number: the receiver sends ackOnly
	connREQ                                 // connection request, with the connInfo of the sender
	connREP                                 // accepts a connREQ, or rejects it with noQP
	connRTU                                 // first packet on a connection
	connDREQ                                // last packet of the sender but for connDREP
	connDREP                                // answers connDREQ
	ringOffer                               // address of a ring that the receiver may write to
	putData                                 // data for an address of the receiver
	getRequest                              // request for data at an address of the receiver
	getData                                 // data that getRequest has requested
	coalesced                               // several messages, each with a length before it
	multicastSegment                        // a segment for a group, in a datagram to all members, without a sequence number
	multicastResent                         // a segment for a member that has reported it as missing
	multicastReported                       // a multicastReport
	multicastReportDatagram                 // a multicastReport without a sequence number, which may be lost
	multicastResentDatagram                 // a multicastResent without a sequence number, which may be lost
	kinds

	headerlessData // data of an eager message without prefix; not on the wire as a kind
)

// isNumbered reports whether packets of a kind to one peer have a sequence number, and arrive once and in order.
func (k kind) isNumbered() bool {
	return k != ackOnly && k != probe && k != multicastReportDatagram && k != multicastResentDatagram
}

// prefix is the header of every packet.
type prefix struct {
	kind    kind
	slots   uint8  // freed slots of the ring that the receiver writes to
	credits uint16 // credits for the connection on which the packet is sent
	from    uint32 // rank of the sender
	seq     uint32 // sequence number
	ack     uint32 // all packets before this sequence number were received
}

// PrefixLen is the length of the prefix, the header of every packet.
const PrefixLen = 16

// put encodes the prefix, the header of every packet, to the start of b. slots and credits return
// to the peer what it may use again: ring slots, and receives of the connection.
func (p *prefix) put(b []byte) {
	le := binary.LittleEndian
	b[0], b[1] = byte(p.kind), p.slots
	le.PutUint16(b[2:], p.credits)
	le.PutUint32(b[4:], p.from)
	le.PutUint32(b[8:], p.seq)
	le.PutUint32(b[12:], p.ack)
}

var errMalformed = errors.New("malformed packet")

// parsePrefix decodes the prefix of a packet, and returns the rest of the packet.
func parsePrefix(b []byte) (p prefix, rest []byte, err error) {
	if len(b) < PrefixLen {
		return p, nil, fmt.Errorf("%w: %d bytes", errMalformed, len(b))
	}
	le := binary.LittleEndian
	p = prefix{kind: kind(b[0]), slots: b[1], credits: le.Uint16(b[2:]), from: le.Uint32(b[4:]), seq: le.Uint32(b[8:]), ack: le.Uint32(b[12:])}
	if p.kind == 0 || p.kind >= kinds {
		return p, nil, fmt.Errorf("%w: kind %d", errMalformed, p.kind)
	}
	return p, b[PrefixLen:], nil
}
