package wire

// Port is the UDP port of a NIC that was not told another. It is one of those
// that nobody registers, above those that Linux gives to clients.
const Port = 65041

// MulticastQP is the destination of packets to a multicast or broadcast address.
const MulticastQP uint32 = 0xffffff

// Lengths in octets.
const (
	HeaderLen      = 16
	AckLen         = 16 // without SACK words
	SackWordLen    = 4
	DataLen        = 12 // without what a start adds
	StartLen       = 16
	ChallengeLen   = 16
	RefusalLen     = 8
	WriteRecordLen = 16
	CRCLen         = 4

	// MaxSackWords is what an Ack has at most: one bit for every packet but the
	// first of a full window.
	MaxSackWords = Window / 32
	// MaxAckLen is an Ack with all its words.
	MaxAckLen = AckLen + MaxSackWords*SackWordLen
	// UDOverhead is what surrounds the ULPDU of an unreliable packet.
	UDOverhead = HeaderLen + CRCLen
	// RDOverhead is what surrounds the ULPDU of a reliable packet, at most, if it
	// carries no Ack.
	RDOverhead = HeaderLen + DataLen + StartLen + CRCLen
	// MinPacket is the smallest payload of UDP that every path must carry: the
	// smallest MTU of IPv4 hosts (576 octets) less the longest headers in use.
	MinPacket = 512
)

// Window is how many packets of a flow may be under way at most, the oldest one
// without acknowledgement included.
const Window = 256
