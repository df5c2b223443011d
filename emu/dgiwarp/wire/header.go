package wire

import (
	"encoding/binary"
	"fmt"
)

// Version is that of the packets, in the upper half of their first octet.
const Version uint8 = 1

// Kind is what a packet is, in the lower half of its first octet. 0 is none, so
// that octets of zero are no packet.
type Kind uint8

// The kinds.
const (
	KindUD        Kind = 1 // a ULPDU, unreliably
	KindRD        Kind = 2 // a ULPDU, an acknowledgement or both, of a flow
	KindChallenge Kind = 3 // asks who starts a flow to prove its address
	KindRefusal   Kind = 4 // says that a flow does not exist here
)

// String prints the kind's name.
func (k Kind) String() string {
	switch k {
	case KindUD:
		return "UD"
	case KindRD:
		return "RD"
	case KindChallenge:
		return "Challenge"
	case KindRefusal:
		return "Refusal"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Flags are the second octet of a packet. All are about packets of KindRD.
type Flags uint8

// The flags.
const (
	FlagData      Flags = 0x80 // a Data block and a ULPDU are there
	FlagAck       Flags = 0x40 // an Ack block is there
	FlagStart     Flags = 0x20 // no packet of the flow has been acknowledged: a proof is there
	FlagAckNow    Flags = 0x10 // the sender has no more to send: acknowledge at once
	FlagMarked    Flags = 0x08 // in an Ack: a packet came with a congestion mark
	FlagDuplicate Flags = 0x04 // in an Ack: a packet came that had come before
)

// Has reports whether f holds all of want.
func (f Flags) Has(want Flags) bool { return f&want == want }

// Header begins every packet.
//
//	0 version(4) kind(4) | 1 flags | 2-3 reserved
//	4 destination QP | 8 source QP | 12 key
type Header struct {
	Version  uint8 // four bits
	Kind     Kind  // four bits
	Flags    Flags
	Reserved uint16
	// DstQP names a queue pair behind the socket that the packet goes to: 0 the
	// only one there is, MulticastQP those that are attached to the group.
	DstQP uint32
	SrcQP uint32
	// Key is that of the destination: a QP takes no packet with another.
	Key uint32
}

var errShortHeader = shortError("header", HeaderLen)

// NewHeader returns the header of a packet of this version.
func NewHeader(kind Kind, dstQP, srcQP, key uint32) Header {
	return Header{Version: Version, Kind: kind, DstQP: dstQP, SrcQP: srcQP, Key: key}
}

// Append appends h in wire order and returns the extended slice.
func (h *Header) Append(b []byte) []byte {
	b = append(b, h.Version<<4|uint8(h.Kind)&0x0F, uint8(h.Flags))
	b = binary.BigEndian.AppendUint16(b, h.Reserved)
	b = binary.BigEndian.AppendUint32(b, h.DstQP)
	b = binary.BigEndian.AppendUint32(b, h.SrcQP)
	return binary.BigEndian.AppendUint32(b, h.Key)
}

// Parse decodes h from the front of b and returns the octets that follow.
func (h *Header) Parse(b []byte) (rest []byte, err error) {
	if len(b) < HeaderLen {
		return nil, errShortHeader
	}
	*h = Header{
		Version: b[0] >> 4, Kind: Kind(b[0] & 0x0F), Flags: Flags(b[1]), Reserved: binary.BigEndian.Uint16(b[2:]),
		DstQP: binary.BigEndian.Uint32(b[4:]), SrcQP: binary.BigEndian.Uint32(b[8:]), Key: binary.BigEndian.Uint32(b[12:]),
	}
	return b[HeaderLen:], nil
}
