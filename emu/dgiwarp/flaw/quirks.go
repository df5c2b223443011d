package flaw

import "github.com/fabrictest/fabrictest/emu/internal/nic"

// Quirks are the defects of a NIC that can be told from its packets. Tags say
// what each does, and which requirement it breaks.
type Quirks struct {
	// Packets.
	PacketsPadded       bool `defect:"dg/pkt/1, dg/pkt/5" does:"packets are padded to multiples of four octets"`
	CRCMostFirst        bool `defect:"dg/pkt/2, dg/pkt/3" does:"CRCs are sent most significant octet first"`
	CRCUnchecked        bool `defect:"dg/pkt/3, dg/pkt/6" does:"wrong CRCs are not noticed"`
	CRCCoversPorts      bool `defect:"dg/pkt/4" does:"the CRC covers the UDP ports"`
	StrangePacketsTaken bool `defect:"dg/pkt/1, dg/pkt/6" does:"packets of other versions or kinds, or with octets behind their end, are taken"`
	ReservedSent        bool `defect:"dg/pkt/7" does:"reserved bits are not zero"`
	ReservedLookedAt    bool `defect:"dg/pkt/7" does:"packets with reserved bits set are dropped"`

	// Numbers and keys.
	NumberIgnored      bool `defect:"dg/addr/1" does:"packets go to the first QP of the socket, whatever they name"`
	ZeroUnknown        bool `defect:"dg/addr/1" does:"the number 0 names nobody"`
	QueueNumberIgnored bool `defect:"dg/addr/2, dg/err/1" does:"the DDP queue number is not looked at"`
	KeysUnused         bool `defect:"dg/addr/3, dg/verbs/5" does:"keys are neither sent nor checked"`
	KeyOnEverything    bool `defect:"dg/addr/4" does:"answers and error messages need the key too"`

	// Messages on UD.
	CutsAtRandom        bool `defect:"dg/ud/1, dg/ud/2" does:"messages are cut into segments of different lengths, though they fit"`
	NumbersByPeer       bool `defect:"dg/ud/4" does:"message numbers count for each peer, and are expected to"`
	SegmentsInOrder     bool `defect:"dg/ud/5, dg/tag/1" does:"segments that do not follow one another are dropped"`
	RecordFieldsSwapped bool `defect:"dg/tag/2" does:"number and offset of Write-Records are exchanged"`

	// Error messages.
	ErrorWithoutHeader bool `defect:"dg/err/3" does:"error messages do not show what was wrong"`
	ErrorsFlood        bool `defect:"dg/err/4, dg/err/5" does:"error messages are long, sent twice, without limit, and in answer to error messages"`

	// Flows.
	StartFlagOnce       bool `defect:"dg/start/1" does:"only the very first packet has the start flag"`
	ChallengeIgnored    bool `defect:"dg/start/8" does:"Challenges are ignored"`
	IncarnationsIgnored bool `defect:"dg/start/9, dg/start/10" does:"a peer that is another now is taken for the same"`
	UnknownFlowSilent   bool `defect:"dg/start/11" does:"packets of unknown flows are dropped without Refusal"`
	RefusalIgnored      bool `defect:"dg/start/11" does:"Refusals are ignored"`
	RefusesEverything   bool `defect:"dg/start/12" does:"Acks, Challenges and Refusals of unknown flows are refused too"`
	AckRidesStale       bool `defect:"dg/ack/5" does:"an acknowledgement on a data packet is the one before"`
	NeverAsksNow        bool `defect:"dg/ack/6" does:"the ack-now flag is never set"`
	GhostAckTaken       bool `defect:"dg/ack/7" does:"an Ack for what was never sent completes what was"`
	RepeatsUnheeded     bool `defect:"dg/loss/4" does:"the repeats flag changes nothing"`
	MarksIgnored        bool `defect:"dg/cc/2, dg/cc/3" does:"congestion marks are neither made possible, nor echoed, nor heeded"`
	NumbersGoOn         bool `defect:"dg/rdmap/1" does:"message numbers go on from flow to flow"`
}

// AllQuirks lists every quirk in the order of the struct.
func AllQuirks() []nic.QuirkInfo { return nic.AllQuirks(new(Quirks)) }

// Set switches a quirk on or off by its name.
func (q *Quirks) Set(name string, on bool) error { return nic.SetQuirk(q, name, on) }

// Names lists the quirks that are switched on.
func (q *Quirks) Names() []string { return nic.QuirksOn(q) }
