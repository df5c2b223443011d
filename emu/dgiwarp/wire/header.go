package wire

import (
	"encoding/binary"
	"fmt"
)

// Version is the protocol version, in the upper half of the first octet.
const Version uint8 = 1

// Kind is the kind of a packet, in the lower half of its first octet. 0 is invalid.
type Kind uint8

// The kinds.
const (
	KindUD        Kind = 1 // an unreliable ULPDU
	KindRD        Kind = 2 // a ULPDU, an acknowledgement, or both, of a flow
	KindChallenge Kind = 3 // asks the sender of a new flow to prove its address
	KindRefusal   Kind = 4 // refuses a flow that does not exist
)

// String returns the name of the kind.
func (k Kind) String() string {
	if names := [...]string{"kind 0", "UD", "RD", "Challenge", "Refusal"}; int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Flags are the second octet of a packet, of KindRD only.
type Flags uint8

// The flags.
const (
	FlagData      Flags = 0x80 // the packet has a Data block and a ULPDU
	FlagAck       Flags = 0x40 // the packet has an Ack block
	FlagStart     Flags = 0x20 // no packet of the flow has been acknowledged: Data has a proof
	FlagAckNow    Flags = 0x10 // acknowledge at once: the sender has no more to send
	FlagMarked    Flags = 0x08 // in an Ack: a received packet was CE-marked
	FlagDuplicate Flags = 0x04 // in an Ack: a duplicate packet was received
)

// Has reports whether all flags of want are set in f.
func (f Flags) Has(want Flags) bool { return f&want == want }

// Header is the header of every packet.
//
//	0 version(4) kind(4) | 1 flags | 2-3 reserved
//	4 destination QP | 8 source QP | 12 key
type Header struct {
	Version  uint8 // four bits
	Kind     Kind  // four bits
	Flags    Flags
	Reserved uint16
	// DstQP is the destination queue pair: 0 for the only one of the device, MulticastQP for
	// those attached to the group.
	DstQP uint32
	SrcQP uint32
	// Key is the key of the destination QP, which drops packets with another one.
	Key uint32
}

var errShortHeader = shortError("header", HeaderLen)

// NewHeader returns the header of a packet of this version. key is that of the destination
// QP, which drops packets with another one.
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
