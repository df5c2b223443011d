package wire

// Control is the control fields of DDP and RDMAP: the first two octets of a DDP segment.
//
//	0  T(1) L(1) resv(4) DV(2) | 1  RV(2) resv(2) opcode(4)
type Control struct {
	Tagged        bool // T: a Tagged header follows, else an Untagged one
	Last          bool // L: ends its message
	DDPReserved   uint8
	DDPVersion    uint8 // two bits
	RDMAPVersion  uint8 // two bits
	RDMAPReserved uint8 // two bits
	Opcode        Opcode
}

// Versions of DDP and RDMAP that the RFCs define.
const (
	DDPVersion   uint8 = 1
	RDMAPVersion uint8 = 1
)

const (
	ddpTagged = 0x80
	ddpLast   = 0x40
)

var errShortControl = shortError("DDP control", ControlLen)

// NewControl returns the control octets of a segment, with the current versions of DDP and RDMAP.
func NewControl(op Opcode, last bool) Control {
	return Control{
		Tagged: opcodes[op&opcodeMask].Tagged, Last: last, DDPVersion: DDPVersion, RDMAPVersion: RDMAPVersion, Opcode: op,
	}
}

// Append appends c in wire order and returns the extended slice. Bits that a
// field does not have on the wire are dropped.
func (c Control) Append(b []byte) []byte {
	return append(b,
		bit(c.Tagged, ddpTagged)|bit(c.Last, ddpLast)|c.DDPReserved&0x0F<<2|c.DDPVersion&3,
		c.RDMAPVersion&3<<6|c.RDMAPReserved&3<<4|uint8(c.Opcode)&opcodeMask)
}

// Parse decodes c from the front of b and returns the octets that follow.
func (c *Control) Parse(b []byte) (rest []byte, err error) {
	if len(b) < ControlLen {
		return nil, errShortControl
	}
	*c = Control{
		Tagged:        b[0]&ddpTagged != 0,
		Last:          b[0]&ddpLast != 0,
		DDPReserved:   b[0] >> 2 & 0x0F,
		DDPVersion:    b[0] & 3,
		RDMAPVersion:  b[1] >> 6,
		RDMAPReserved: b[1] >> 4 & 3,
		Opcode:        Opcode(b[1] & opcodeMask),
	}
	return b[ControlLen:], nil
}
