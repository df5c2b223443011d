package ib

import "github.com/fabrictest/fabrictest/conformance/packet"

// Port is the UDP port of RoCEv2.
const Port = 4791

// Packet is a RoCEv2 packet: to be sent, expected, or received.
//
// When building, nil headers that the opcode needs get default values, and headers that
// are set are sent even if the opcode does not have them. When comparing, nil matches any.
type Packet struct {
	// IP and UDP. The default ports are 4791, and 0xC000 as the source as in Linux; the
	// default UDP checksum is 0.
	IP  packet.IP
	UDP packet.UDP
	BTH BTH
	Extensions

	// Payload without padding. nil is no payload when building, and matches any when
	// comparing; an empty slice matches no payload.
	Payload []byte
	// Pad are the bytes between payload and ICRC: zeros up to a multiple of four if nil.
	Pad []byte
	// Body, if not nil, replaces extension headers, payload and padding.
	Body []byte
	// ICRC is the correct one if nil. Its least significant byte is sent first.
	ICRC *uint32
	// Behind are bytes of the IP packet after the UDP datagram.
	Behind []byte
	// Trailer are bytes after the IP packet in its frame.
	Trailer []byte

	raw         []byte                      // parsed bytes, without trailer
	inFlight    []func(*Packet)             // changes after the ICRC was computed
	damage      []func([]byte)              // changes to the finished IP packet
	chooseICRC  func(correct uint32) uint32 // see ChooseICRC
	udpChecksum bool                        // send the correct UDP checksum, not 0
	fromSocket  bool                        // see AsFromSocket
}

// Extensions are the extension headers of a packet, in their order after the BTH: field h is
// that of [Header] h.
type Extensions struct {
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
}

// Opcode returns the opcode.
func (p Packet) Opcode() Opcode { return value(p.BTH.Opcode, 0) }

// PSN returns the PSN.
func (p Packet) PSN() PSN { return value(p.BTH.PSN, 0) }

// DestQP returns the destination QPN.
func (p Packet) DestQP() uint32 { return value(p.BTH.DestQP, 0) }

// HasAckReq reports whether AckReq is set.
func (p Packet) HasAckReq() bool { return value(p.BTH.AckReq, false) }

// MSN returns the MSN of the AETH; 0 if there is none.
func (p Packet) MSN() uint32 {
	if p.AETH == nil {
		return 0
	}
	return value(p.AETH.MSN, 0)
}

// Syndrome returns the syndrome of the AETH; 0 if there is none.
func (p Packet) Syndrome() uint8 {
	if p.AETH == nil {
		return 0
	}
	return p.AETH.Syndrome()
}

// IsAck reports whether the packet is an acknowledgement of this kind.
func (p Packet) IsAck(kind AckKind) bool {
	return p.Opcode().Operation() == OpAcknowledge && p.AETH != nil && value(p.AETH.Kind, AckPositive) == kind
}

// IsNak reports whether the packet is a NAK with this code.
func (p Packet) IsNak(code NakCode) bool {
	return p.IsAck(AckNegative) && value(p.AETH.Value, 0) == uint8(code)
}

// Info returns the description of the opcode.
func (p Packet) Info() (info OpInfo, ok bool) { return p.Opcode().Info() }

// Raw returns the IP packet that p was parsed from, without padding of the frame, or nil.
// Callers must not modify it.
func (p Packet) Raw() []byte { return p.raw }

func value[T any](p *T, def T) T { return packet.Get(p, def) }

// PSN is a 24-bit packet sequence number. It wraps: use its methods to compare.
type PSN uint32

const mask24 = 1<<24 - 1

// AnyPSN matches any PSN.
const AnyPSN PSN = 1<<32 - 1

// AnyMSN matches any MSN.
const AnyMSN uint32 = 1<<32 - 1

// Add returns the PSN n packets later, or earlier.
func (p PSN) Add(n int) PSN { return PSN(uint32(int64(p)+int64(n))) & mask24 }

// Sub returns the signed distance from q to p, from -2^23 to 2^23-1.
func (p PSN) Sub(q PSN) int { return int(int32((p-q)<<8) >> 8) }

// Less reports whether p is before q.
func (p PSN) Less(q PSN) bool { return p.Sub(q) < 0 }
