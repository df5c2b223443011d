package wire

// Port is the UDP destination port of RoCEv2.
const Port = 4791

// Lengths of the headers in bytes. ICRCLen is the trailer's.
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

// Limits of the path MTU, which bounds a packet's payload and not its headers.
// Between them lie the powers of two.
const (
	MinMTU = 256
	MaxMTU = 4096
)

// MaxHeaderLen is the length of the longest headers any opcode calls for: BTH,
// RDETH, DETH and AtomicETH of a reliable datagram's atomic request.
const MaxHeaderLen = BTHLen + RDETHLen + DETHLen + AtomicETHLen

// MaxPacketLen is the longest UDP payload that a conforming peer sends.
const MaxPacketLen = MaxHeaderLen + MaxMTU + ICRCLen

// CNPPayloadLen is the length of the reserved bytes, sent as zero and ignored
// on receipt, that follow the BTH of a congestion notification packet. Packet
// shows them as payload.
const CNPPayloadLen = 16

// DefaultPKey is the partition key of the default partition, full member.
const DefaultPKey uint16 = 0xFFFF

// PadLen is how many pad bytes follow a payload so that the ICRC starts on a
// four-byte boundary.
func PadLen(payloadLen int) int { return -payloadLen & 3 }
