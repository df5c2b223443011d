package dgwire

// Defects are the defects of a NIC that can be told from its packets. Tags say
// what each does, and which requirement it breaks.
type Defects struct {
	// Packets.
	PacketsPadded       bool `imitates:"dg/pkt/1, dg/pkt/5" does:"packets are padded to multiples of four octets"`
	CRCMostFirst        bool `imitates:"dg/pkt/2, dg/pkt/3" does:"CRCs are sent most significant octet first"`
	CRCUnchecked        bool `imitates:"dg/pkt/3, dg/pkt/6" does:"CRCs are not checked"`
	CRCCoversPorts      bool `imitates:"dg/pkt/4" does:"the CRC covers the UDP ports"`
	StrangePacketsTaken bool `imitates:"dg/pkt/1, dg/pkt/6" does:"packets of other versions or kinds, or with octets after their end, are accepted"`
	ReservedSent        bool `imitates:"dg/pkt/7" does:"reserved bits are not zero"`
	ReservedLookedAt    bool `imitates:"dg/pkt/7" does:"packets with reserved bits set are dropped"`

	// Numbers and keys.
	NumberIgnored      bool `imitates:"dg/addr/1" does:"packets go to the first QP of the socket, whatever their destination QP is"`
	ZeroUnknown        bool `imitates:"dg/addr/1" does:"QP number 0 is treated as unknown"`
	QueueNumberIgnored bool `imitates:"dg/addr/2, dg/err/1" does:"the DDP queue number is not checked"`
	KeysUnused         bool `imitates:"dg/addr/3, dg/verbs/5" does:"keys are neither sent nor checked"`
	KeyOnEverything    bool `imitates:"dg/addr/4" does:"responses and error messages need the key too"`

	// Messages on UD.
	CutsAtRandom        bool `imitates:"dg/ud/1, dg/ud/2" does:"messages are split into segments of different lengths, even if one segment would do"`
	NumbersByPeer       bool `imitates:"dg/ud/4" does:"MSNs are counted and checked for each peer separately"`
	SegmentsInOrder     bool `imitates:"dg/ud/5, dg/tag/1" does:"segments that arrive out of order are dropped"`
	RecordFieldsSwapped bool `imitates:"dg/tag/2" does:"MSN and offset of Write-Records are swapped"`

	// Error messages.
	ErrorWithoutHeader bool `imitates:"dg/err/3" does:"error messages lack the header of the invalid segment"`
	ErrorsFlood        bool `imitates:"dg/err/4, dg/err/5" does:"error messages are long, sent twice, not rate-limited, and sent in response to error messages"`

	// Flows.
	StartFlagOnce       bool `imitates:"dg/start/1" does:"only the first packet has the start flag"`
	ChallengeIgnored    bool `imitates:"dg/start/8" does:"Challenges are ignored"`
	IncarnationsIgnored bool `imitates:"dg/start/9, dg/start/10" does:"a peer that was restarted is treated as the same"`
	UnknownFlowSilent   bool `imitates:"dg/start/11" does:"packets of unknown flows are dropped without Refusal"`
	RefusalIgnored      bool `imitates:"dg/start/11" does:"Refusals are ignored"`
	RefusesEverything   bool `imitates:"dg/start/12" does:"Acks, Challenges and Refusals of unknown flows are refused too"`
	AckRidesStale       bool `imitates:"dg/ack/5" does:"a data packet carries the previous acknowledgement"`
	NeverAsksNow        bool `imitates:"dg/ack/6" does:"the ack-now flag is never set"`
	GhostAckTaken       bool `imitates:"dg/ack/7" does:"an Ack for packets that were never sent completes those that were"`
	RepeatsUnheeded     bool `imitates:"dg/loss/4" does:"the repeats flag is ignored"`
	MarksIgnored        bool `imitates:"dg/cc/2, dg/cc/3" does:"packets are not ECN-capable, and CE marks are neither echoed nor reacted to"`
	NumbersGoOn         bool `imitates:"dg/rdmap/1" does:"MSNs continue from one flow to the next"`
}
