package ib

import (
	"github.com/fabrictest/fabrictest/conformance/packet"
)

// Port is the UDP port of RoCEv2.
const Port = 4791

// Packet is one of RoCEv2: what to send, what to expect, or what came.
//
// When building, the headers that the opcode has and that are nil are made of
// defaults, and headers that are set are sent even if the opcode has none such.
// When comparing, nil is anything.
type Packet struct {
	// IP and UDP. The ports are 4791 and the first of those that Linux uses, 0xC000;
	// the UDP checksum is 0.
	IP  packet.IP
	UDP packet.UDP
	BTH BTH

	RDETH     *RDETH
	XRCETH    *XRCETH
	DETH      *DETH
	FETH      *FETH
	RETH      *RETH
	AtomicETH *AtomicETH
	AETH      *AETH
	AtomicAck *AtomicAckETH
	Imm       *ImmDt
	IETH      *IETH

	// Payload without padding. Nil is no payload, and any when comparing: an
	// expectation of no payload is an empty slice.
	Payload []byte
	// Pad are the bytes between payload and ICRC: zeros, as many as it takes to make
	// the payload a multiple of four bytes long.
	Pad []byte
	// Body, if not nil, is all that is between BTH and ICRC, instead of extension
	// headers, payload and padding.
	Body []byte
	// ICRC is the right one. As a number it is what the CRC is; its least significant
	// byte is sent first.
	ICRC *uint32
	// Behind is what the IP packet has beyond the length of the UDP header, and the
	// ICRC: nothing.
	Behind []byte
	// Trailer is what follows the IP packet in its frame: nothing.
	Trailer []byte

	raw       []byte // what it was parsed from, without trailer
	odd       []func(*Packet)
	damage    []func([]byte)
	seal      func(right uint32) uint32
	udpSummed bool
	unseen    bool // by the wire, in part: see Unseen
}

// Opcode of the packet.
func (p Packet) Opcode() Opcode { return value(p.BTH.Opcode, 0) }

// PSN of the packet.
func (p Packet) PSN() PSN { return value(p.BTH.PSN, 0) }

// DestQP is the number of the queue pair to which the packet goes.
func (p Packet) DestQP() uint32 { return value(p.BTH.DestQP, 0) }

// HasAckReq reports whether the packet asks for an acknowledgement.
func (p Packet) HasAckReq() bool { return value(p.BTH.AckReq, false) }

// HasSE reports whether the packet asks for a solicited event.
func (p Packet) HasSE() bool { return value(p.BTH.SE, false) }

// MSN of a packet with an AETH; 0 of others.
func (p Packet) MSN() uint32 {
	if p.AETH == nil {
		return 0
	}
	return value(p.AETH.MSN, 0)
}

// Syndrome of a packet with an AETH; 0 of others.
func (p Packet) Syndrome() uint8 {
	if p.AETH == nil {
		return 0
	}
	return p.AETH.Syndrome()
}

// IsAck reports whether it is an acknowledgement of this kind.
func (p Packet) IsAck(kind AckKind) bool {
	return p.Opcode().Operation() == OpAcknowledge && p.AETH != nil && value(p.AETH.Kind, AckPositive) == kind
}

// IsNak reports whether it is a NAK with this code.
func (p Packet) IsNak(code NakCode) bool {
	return p.IsAck(AckNegative) && value(p.AETH.Value, 0) == uint8(code)
}

// Info returns what is known of the packet's opcode.
func (p Packet) Info() (info OpInfo, ok bool) { return p.Opcode().Info() }

// Raw returns the IP packet that p was parsed from, without padding of the frame, or
// nil. It is not to be written to.
func (p Packet) Raw() []byte { return p.raw }

func value[T any](p *T, def T) T { return packet.Get(p, def) }
