package wire

// Port is the default UDP port: a dynamic port, above the ephemeral range of Linux.
const Port = 65041

// MulticastQP is the destination of packets to a multicast or broadcast address.
const MulticastQP uint32 = 0xffffff

// Lengths in octets.
const (
	HeaderLen      = 16
	AckLen         = 16 // without SACK words
	SackWordLen    = 4
	DataLen        = 12 // without the fields of FlagStart
	StartLen       = 16
	ChallengeLen   = 16
	RefusalLen     = 8
	WriteRecordLen = 16
	CRCLen         = 4

	// MaxSackWords is the most SACK words: a bit for each packet of a window but the first.
	MaxSackWords = Window / 32
	// MaxAckLen is the length of an Ack with MaxSackWords.
	MaxAckLen = AckLen + MaxSackWords*SackWordLen
	// UDOverhead is the length of an unreliable packet without its ULPDU.
	UDOverhead = HeaderLen + CRCLen
	// RDOverhead is the largest length of a reliable packet without its ULPDU and Ack.
	RDOverhead = HeaderLen + DataLen + StartLen + CRCLen
	// MinPacket is the smallest payload of UDP that every path must carry: the
	// smallest MTU of IPv4 hosts (576 octets) less the longest headers in use.
	MinPacket = 512
)

// Window is the largest number of packets of a flow from the oldest unacknowledged one on.
const Window = 256
