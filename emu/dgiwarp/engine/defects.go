package engine

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/iwarp"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
)

// Defects make a NIC misbehave on purpose: the zero value is a sound one. There is
// no other implementation whose defects could be imitated, so each breaks a
// requirement of the specification. They serve two ends: applications can be tried
// against a defective NIC, and a conformance case proves that it can fail by failing
// on the defect it was written for. What packets tell by themselves is in
// emu/defects/dgwire.
//
// Tags say what a defect does and which requirement it breaks.
type Defects struct {
	// Addresses.
	PathMTUIgnored   bool `imitates:"dg/pkt/8, dg/pkt/10" does:"packets are as long as 9216 octets, and may be fragmented"`
	SourceLost       bool `imitates:"dg/addr/5, dg/verbs/2" does:"receives do not tell where they came from"`
	PortEphemeral    bool `imitates:"dg/addr/8" does:"a device that was told no port sends from another than 65041, and is reached there"`
	GroupsMixed      bool `imitates:"dg/addr/6" does:"the number of groups is taken under any address, and by one QP only"`
	StrangersHeard   bool `imitates:"dg/addr/9" does:"packets from group addresses, from no address or from port 0 are taken and answered"`
	GroupAnswered    bool `imitates:"dg/addr/7" does:"what comes under a group address is answered"`
	FlowLabelIgnored bool `imitates:"dg/verbs/6" does:"the flow label of an address is ignored"`

	// UD.
	LongSendsLeave    bool `imitates:"dg/ud/3" does:"Sends of more than 65,536 octets are accepted"`
	UDWaitsForPeer    bool `imitates:"dg/ud/9" does:"a request completes when something comes from its destination"`
	UDReads           bool `imitates:"dg/ud/10" does:"there are reads and atomics on UD"`
	UDIgnoresSRQ      bool `imitates:"dg/ud/11" does:"datagrams find no shared receives"`
	SourcesMixed      bool `imitates:"dg/ud/5, dg/rdmap/3" does:"segments are put together without regard to where they came from"`
	ReceiveTakenWrong bool `imitates:"dg/ud/5, dg/rdmap/3" does:"a receive is taken with the first segment on UD and with the last on RD"`
	PiecesUnbounded   bool `imitates:"dg/ud/6, dg/tag/6" does:"messages and records that are not whole are kept for ever, as many as come"`
	PiecesUnchecked   bool `imitates:"dg/ud/7, dg/tag/3" does:"octets of a message are counted, and nothing else is looked at"`
	NoReceiveIsError  bool `imitates:"dg/ud/8, dg/tag/7" does:"a message without a receive stops the QP"`

	// Tagged messages on UD.
	WriteTakesReceive   bool `imitates:"dg/tag/1" does:"a Write uses up a receive"`
	FirstSegmentChecked bool `imitates:"dg/tag/8" does:"only the first segment with an STag is checked for each source"`
	RecordIsWrite       bool `imitates:"dg/verbs/3" does:"Write with immediate data goes out as a Write"`
	RecordWaitsForLast  bool `imitates:"dg/tag/4" does:"a record is complete when its last segment has come, and not before"`
	RecordClaimsAll     bool `imitates:"dg/tag/5, dg/tag/6" does:"a record says that all has come"`
	RangesUnjoined      bool `imitates:"dg/tag/5" does:"ranges that touch stay apart"`

	// Errors.
	ErrorsSilent      bool `imitates:"dg/err/1, dg/err/3" does:"wrong segments are dropped without a word"`
	IsolationIgnored  bool `imitates:"dg/err/2" does:"QPs that should survive errors do not"`
	ErrorMessageStops bool `imitates:"dg/err/6" does:"an error message stops the QP on UD"`
	ErrorFailsAll     bool `imitates:"dg/err/7" does:"an error of a flow flushes all its requests, the one that it names too"`
	ErrorQPGoesOn     bool `imitates:"dg/err/8" does:"a QP in Error goes on, and hands up nothing"`

	// RD.
	RDCompletesAtOnce    bool `imitates:"dg/ack/8, dg/verbs/1" does:"requests complete when they have left"`
	PeersWait            bool `imitates:"dg/ack/8" does:"completions of all destinations come in order of posting"`
	BusyAcknowledges     bool `imitates:"dg/busy/1" does:"a Send without receive is acknowledged and lost"`
	BusyHoldsWrites      bool `imitates:"dg/busy/4" does:"without receives nothing at all is taken"`
	RDWithoutExtensions  bool `imitates:"dg/rdmap/2" does:"atomics and immediate data are unknown opcodes"`
	HalfSendLosesReceive bool `imitates:"dg/rdmap/4" does:"the receive of a Send whose rest does not come vanishes"`
	ReadsUnlimited       bool `imitates:"dg/rdmap/5" does:"as many as 1024 reads are sent and taken"`
	FailureStopsQP       bool `imitates:"dg/verbs/4" does:"a flow that fails stops its QP"`

	// Segments on RD.
	SecondSegmentOffset    bool `imitates:"dg/err/1" does:"the offset of a Send is checked in its first segment only"`
	SecondSegmentNumber    bool `imitates:"dg/rdmap/1" does:"the number of a Send is checked in its first segment only"`
	SecondSegmentRights    bool `imitates:"dg/err/1" does:"the right to write is checked for the first segment of a Write only"`
	AnswerNumberUnchecked  bool `imitates:"dg/rdmap/1" does:"the numbers of Atomic Responses and of immediate data are ignored"`
	TaggedVersionUnchecked bool `imitates:"dg/err/1" does:"the RDMAP version of Writes and Read Responses is not looked at"`
	ReadResponseDDPVersion bool `imitates:"dg/err/1" does:"the DDP version of Read Responses is not looked at"`
	EmptySendKeepsKey      bool `imitates:"dg/rdmap/2" does:"Send with Invalidate of no octets invalidates nothing"`

	// Flows is what is wrong below.
	Flows rd.Defects
	// Queues and Memory switch off checks of queues, keys, windows and ranges.
	Queues nic.Defects
	Memory nic.MemoryDefects
}

// AllDefects lists every defect in the order of the struct.
func AllDefects() []nic.DefectInfo { return nic.AllDefects(new(Defects)) }

// Set switches a defect on or off by its name.
func (q *Defects) Set(name string, on bool) error { return nic.SetDefect(q, name, on) }

// Names lists the defects that are switched on.
func (q *Defects) Names() []string { return nic.DefectsOn(q) }

// Port is the UDP port of a NIC that was not told another.
func (q *Defects) Port() uint16 {
	if q.PortEphemeral {
		return 50000
	}
	return wire.Port
}

// stream is what is wrong with the streams that flows carry.
func (q *Defects) stream() iwarp.Defects {
	return iwarp.Defects{
		NoExtensions:        q.RDWithoutExtensions,
		SecondSegmentOffset: q.SecondSegmentOffset, SecondSegmentNumber: q.SecondSegmentNumber, SecondSegmentRights: q.SecondSegmentRights,
		AnswerNumberUnchecked: q.AnswerNumberUnchecked, TaggedVersionUnchecked: q.TaggedVersionUnchecked, ReadResponseDDPVersion: q.ReadResponseDDPVersion,
		EmptySendKeepsKey: q.EmptySendKeepsKey,
	}
}

const (
	longestPacket = 9216    // PathMTUIgnored
	longestSend   = 1 << 20 // LongSendsLeave
	manyPieces    = 4096    // PiecesUnbounded
	manyReads     = 1024    // ReadsUnlimited
	// forever is longer than anybody waits.
	forever = time.Duration(1) << 61
)

// applyDefects makes those times and limits wrong that defects are about.
func (c *Config) applyDefects() {
	if c.Defects.PathMTUIgnored {
		c.LinkMTU = longestPacket
	}
	if c.Defects.PiecesUnbounded {
		c.Messages, c.Records, c.MessageTime, c.RecordTime = manyPieces, manyPieces, forever, forever
	}
}
