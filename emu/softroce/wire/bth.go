package wire

import "encoding/binary"

// BTH is the Base Transport Header, the first header of every packet.
//
//	0  opcode            | 1  SE(1) M(1) pad(2) TVer(4) | 2-3  P_Key
//	4  FECN BECN resv(6) | 5-7  destination QP
//	8  AckReq resv(7)    | 9-11 PSN
//
// The ICRC does not cover byte 4, which switches may rewrite.
type BTH struct {
	Opcode    Opcode
	Solicited bool // SE: raise an event if the receiver armed for solicited ones
	MigReq    bool // M: state of automatic path migration
	PadCount  uint8
	TVer      uint8
	PKey      uint16
	FECN      bool
	BECN      bool
	Reserved6 uint8 // low six bits of byte 4
	DestQP    uint32
	AckReq    bool
	Reserved7 uint8 // low seven bits of byte 8
	PSN       PSN
}

const (
	bthSolicited = 0x80
	bthMigReq    = 0x40
	bthPadShift  = 4
	bthFECN      = 0x80
	bthBECN      = 0x40
	bthAckReq    = 0x80

	mask24 = 1<<24 - 1
)

var errShortBTH = shortError("BTH", BTHLen)

// Append appends h in wire order, its fields truncated to their width.
func (h BTH) Append(b []byte) []byte {
	flags := bit(h.Solicited, bthSolicited) | bit(h.MigReq, bthMigReq) |
		h.PadCount&3<<bthPadShift | h.TVer&0x0F
	congestion := bit(h.FECN, bthFECN) | bit(h.BECN, bthBECN) | h.Reserved6&0x3F
	ack := bit(h.AckReq, bthAckReq) | h.Reserved7&0x7F

	b = binary.BigEndian.AppendUint32(b, uint32(h.Opcode)<<24|uint32(flags)<<16|uint32(h.PKey))
	b = binary.BigEndian.AppendUint32(b, uint32(congestion)<<24|h.DestQP&mask24)
	return binary.BigEndian.AppendUint32(b, uint32(ack)<<24|uint32(h.PSN&PSNMask))
}

// Parse decodes h from the front of b and returns the bytes that follow.
func (h *BTH) Parse(b []byte) (rest []byte, err error) {
	if len(b) < BTHLen {
		return nil, errShortBTH
	}
	h.Opcode = Opcode(b[0])
	h.Solicited = b[1]&bthSolicited != 0
	h.MigReq = b[1]&bthMigReq != 0
	h.PadCount = b[1] >> bthPadShift & 3
	h.TVer = b[1] & 0x0F
	h.PKey = binary.BigEndian.Uint16(b[2:])
	h.FECN = b[4]&bthFECN != 0
	h.BECN = b[4]&bthBECN != 0
	h.Reserved6 = b[4] & 0x3F
	h.DestQP = binary.BigEndian.Uint32(b[4:]) & mask24
	h.AckReq = b[8]&bthAckReq != 0
	h.Reserved7 = b[8] & 0x7F
	h.PSN = PSN(binary.BigEndian.Uint32(b[8:])) & PSNMask
	return b[BTHLen:], nil
}

// bit returns mask if v is set.
func bit(v bool, mask uint8) uint8 {
	if v {
		return mask
	}
	return 0
}
