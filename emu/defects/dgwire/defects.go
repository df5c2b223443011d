package dgwire

// Defects are the defects of a NIC that can be told from its packets. Tags say
// what each does, and which requirement it breaks.
type Defects struct {
	// Packets.
	PacketsPadded       bool `imitates:"dg/pkt/1, dg/pkt/5" does:"packets are padded to multiples of four octets"`
	CRCMostFirst        bool `imitates:"dg/pkt/2, dg/pkt/3" does:"CRCs are sent most significant octet first"`
	CRCUnchecked        bool `imitates:"dg/pkt/3, dg/pkt/6" does:"wrong CRCs are not noticed"`
	CRCCoversPorts      bool `imitates:"dg/pkt/4" does:"the CRC covers the UDP ports"`
	StrangePacketsTaken bool `imitates:"dg/pkt/1, dg/pkt/6" does:"packets of other versions or kinds, or with octets behind their end, are taken"`
	ReservedSent        bool `imitates:"dg/pkt/7" does:"reserved bits are not zero"`
	ReservedLookedAt    bool `imitates:"dg/pkt/7" does:"packets with reserved bits set are dropped"`

	// Numbers and keys.
	NumberIgnored      bool `imitates:"dg/addr/1" does:"packets go to the first QP of the socket, whatever they name"`
	ZeroUnknown        bool `imitates:"dg/addr/1" does:"the number 0 names nobody"`
	QueueNumberIgnored bool `imitates:"dg/addr/2, dg/err/1" does:"the DDP queue number is not looked at"`
	KeysUnused         bool `imitates:"dg/addr/3, dg/verbs/5" does:"keys are neither sent nor checked"`
	KeyOnEverything    bool `imitates:"dg/addr/4" does:"answers and error messages need the key too"`

	// Messages on UD.
	CutsAtRandom        bool `imitates:"dg/ud/1, dg/ud/2" does:"messages are cut into segments of different lengths, though they fit"`
	NumbersByPeer       bool `imitates:"dg/ud/4" does:"message numbers count for each peer, and are expected to"`
	SegmentsInOrder     bool `imitates:"dg/ud/5, dg/tag/1" does:"segments that do not follow one another are dropped"`
	RecordFieldsSwapped bool `imitates:"dg/tag/2" does:"number and offset of Write-Records are exchanged"`

	// Error messages.
	ErrorWithoutHeader bool `imitates:"dg/err/3" does:"error messages do not show what was wrong"`
	ErrorsFlood        bool `imitates:"dg/err/4, dg/err/5" does:"error messages are long, sent twice, without limit, and in answer to error messages"`

	// Flows.
	StartFlagOnce       bool `imitates:"dg/start/1" does:"only the very first packet has the start flag"`
	ChallengeIgnored    bool `imitates:"dg/start/8" does:"Challenges are ignored"`
	IncarnationsIgnored bool `imitates:"dg/start/9, dg/start/10" does:"a peer that is another now is taken for the same"`
	UnknownFlowSilent   bool `imitates:"dg/start/11" does:"packets of unknown flows are dropped without Refusal"`
	RefusalIgnored      bool `imitates:"dg/start/11" does:"Refusals are ignored"`
	RefusesEverything   bool `imitates:"dg/start/12" does:"Acks, Challenges and Refusals of unknown flows are refused too"`
	AckRidesStale       bool `imitates:"dg/ack/5" does:"an acknowledgement on a data packet is the one before"`
	NeverAsksNow        bool `imitates:"dg/ack/6" does:"the ack-now flag is never set"`
	GhostAckTaken       bool `imitates:"dg/ack/7" does:"an Ack for what was never sent completes what was"`
	RepeatsUnheeded     bool `imitates:"dg/loss/4" does:"the repeats flag changes nothing"`
	MarksIgnored        bool `imitates:"dg/cc/2, dg/cc/3" does:"congestion marks are neither made possible, nor echoed, nor heeded"`
	NumbersGoOn         bool `imitates:"dg/rdmap/1" does:"message numbers go on from flow to flow"`
}
