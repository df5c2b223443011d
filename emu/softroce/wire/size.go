package wire

// Port is the UDP destination port of RoCEv2.
const Port = 4791

// Lengths of the headers and of the ICRC in bytes.
const (
	BTHLen          = 12
	RDETHLen        = 4
	XRCETHLen       = 4
	DETHLen         = 8
	FETHLen         = 4
	RETHLen         = 16
	AtomicETHLen    = 28
	AETHLen         = 4
	AtomicAckETHLen = 8
	ImmDtLen        = 4
	IETHLen         = 4
	ICRCLen         = 4
)

// Limits of the path MTU, a power of two that bounds the payload of a packet.
const (
	MinMTU = 256
	MaxMTU = 4096
)

// MaxHeaderLen is the longest header of any opcode: that of an RD atomic request.
const MaxHeaderLen = BTHLen + RDETHLen + DETHLen + AtomicETHLen

// MaxPacketLen is the longest UDP payload that a conforming peer sends.
const MaxPacketLen = MaxHeaderLen + MaxMTU + ICRCLen

// CNPPayloadLen is the length of the reserved bytes after a CNP's BTH, a payload to Packet.
const CNPPayloadLen = 16

// DefaultPKey is the partition key of the default partition, full member.
const DefaultPKey uint16 = 0xFFFF

// PadLen is the number of pad bytes after a payload, which align the ICRC to four bytes.
func PadLen(payloadLen int) int { return -payloadLen & 3 }
