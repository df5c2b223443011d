package iwarp

// Defects makes a layer misbehave on purpose: it imitates implementations that
// forget a rule, soft-iWARP of Linux ("siw") above all. The zero value forgets
// nothing. Tags say what a field does and whose defect it is, or which
// requirement it breaks.
type Defects struct {
	// What is taken from the peer.
	TaggedFlagIgnored      bool `imitates:"siw, rfc5041/4.1/2" does:"the T flag is ignored: the opcode decides which header follows"`
	ReadQueueUnchecked     bool `imitates:"siw, rfc5041/7.1/1" does:"queue number and offset of a Read Request are ignored"`
	ReadNumberUnchecked    bool `imitates:"rfc5041/7.1/5" does:"the number of a Read Request is ignored"`
	AnswerNumberUnchecked  bool `imitates:"rfc7306/8.2/1" does:"the numbers of Atomic Responses and of immediate data are ignored"`
	SecondSegmentOffset    bool `imitates:"rfc5041/7.1/3" does:"the offset of a Send is checked in its first segment only"`
	SecondSegmentNumber    bool `imitates:"rfc5041/7.1/5" does:"the number of a Send is checked in its first segment only"`
	TaggedVersionUnchecked bool `imitates:"rfc5040/7.2/2" does:"the RDMAP version of Writes and Read Responses is not looked at"`
	ReadResponseDDPVersion bool `imitates:"rfc5041/7.2/2" does:"the DDP version of Read Responses is not looked at"`
	TaggedInOrder          bool `imitates:"siw, rfc5041/5.3/5" does:"a Write whose offsets do not follow one another is refused"`
	WrapUnchecked          bool `imitates:"siw, rfc5041/7.1/10" does:"a Write that wraps is a local error, and a Read that wraps ends the stream in silence"`
	ReadRightsUnchecked    bool `imitates:"siw, rfc5040/5.2.1/10" does:"memory can be read without the right to"`
	ReadPayloadSilent      bool `imitates:"siw, rfc5040/4.2/1" does:"a Read Request with a payload ends the stream without a Terminate"`
	OpcodeChangeSilent     bool `imitates:"siw, rfc5040/6.2.1/1" does:"a message that changes its opcode ends the stream without a Terminate"`
	ShortResponseTaken     bool `imitates:"siw, rfc5040/5.2.2/7" does:"a Read Response that ends early completes its read with success"`
	ZeroResponseChecked    bool `imitates:"siw, rfc5041/5.2/6" does:"a Read Response of no octets must name the sink of its request"`
	LaterResponseUnchecked bool `imitates:"siw, rfc5040/5.2.2/5" does:"only the first segment of a Read Response is held against its request"`
	InvalidateErrorKept    bool `imitates:"siw, rfc5040/5.3/9" does:"a Send that cannot invalidate completes in error and the stream goes on"`
	NeverSolicited         bool `imitates:"siw, rfc5040/5.3/6" does:"a Send with solicited event raises none"`
	NoExtensions           bool `imitates:"siw, rfc7306/1.1/1" does:"atomics and immediate data are unknown opcodes"`
	IRDRoundedUp           bool `imitates:"siw, rfc5040/6.1/3" does:"one more read than the next power of two is taken"`

	// Memory that the peer names.
	ZeroLengthChecked    bool `imitates:"rfc5041/5.2/6, rfc5040/5.2.1/8, rfc5040/5.1/4, rfc6581/9.2/11, rfc5042/6.3.5/2" does:"operations of no octets need a valid key"`
	KeyOctetIgnored      bool `imitates:"rfc5041/7.1/6" does:"the lowest octet of keys is ignored"`
	WriteRightsUnchecked bool `imitates:"rfc5041/7.1/7" does:"memory can be written without the right to"`
	SecondSegmentRights  bool `imitates:"rfc5041/7.1/7" does:"the right to write is checked for the first segment of a Write only"`
	QPRightsIgnored      bool `imitates:"rfc5041/7.1/7, rfc5040/5.2.1/10" does:"what a queue pair permits its peer does not count, only what the memory does"`
	PageBounds           bool `imitates:"rfc5041/7.1/8, rfc5041/7.1/9, rfc5040/5.2.1/7, rfc5042/6.2.1/1" does:"bounds are checked in pages of 4096 octets"`
	PlacesWhatFits       bool `imitates:"rfc5041/7.1/11" does:"of a segment that exceeds its memory the part that fits is placed"`
	SinkChecked          bool `imitates:"rfc5040/4.4/2" does:"a Read Request must name a sink that the answerer knows"`
	ResponseUnmatched    bool `imitates:"rfc5040/5.2.2/5" does:"a Read Response is placed where it says, whatever was asked"`

	// Receives.
	DeliversFirstSegment         bool `imitates:"rfc5041/4.1/5, rfc5041/5.4/1, rfc5040/5.2.2/3, rfc7306/5.4/2" does:"a message is delivered with its first segment"`
	DeliversTwice                bool `imitates:"rfc5041/5.3/3" does:"a Send that is followed by nothing is delivered twice"`
	LongDeliveredLate            bool `imitates:"rfc5041/5.3/4, rfc5041/4.1/5, rfc5040/5.3/5, rfc5040/5.5/1, rfc5040/5.5/2, rfc7306/6.3/4" does:"what came in several segments is delivered after what came behind it"`
	LongTruncated                bool `imitates:"rfc5041/7.1/4, rfc5040/5.3/4" does:"a message that is too long for its receive is cut off"`
	ZeroSendSkipsReceive         bool `imitates:"rfc5040/5.3/2" does:"a Send of no octets takes no receive"`
	ImmediateTakesNoReceive      bool `imitates:"rfc7306/6.3/1" does:"immediate data takes no receive"`
	ImmediateDropped             bool `imitates:"rfc5041/7.1/2, rfc7306/6.3/1" does:"immediate data that finds no receive vanishes"`
	EverythingTakesReceive       bool `imitates:"rfc5040/5.1/1, rfc5040/5.2.1/3, rfc7306/5.2.1/4" does:"Writes and requests for reads and atomics use up a receive"`
	InvalidateIgnored            bool `imitates:"rfc5041/8.3.1/1, rfc5040/5.3/8" does:"Send with Invalidate invalidates nothing"`
	EmptySendKeepsKey            bool `imitates:"rfc5040/5.3/8" does:"Send with Invalidate of no octets invalidates nothing"`
	AnySendInvalidates           bool `imitates:"rfc5040/4.1/5" does:"every Send invalidates the key in its header"`
	SolicitedInvalidateUnchecked bool `imitates:"rfc5040/7.2/3" does:"Send with Invalidate and solicited event does not check its key"`

	// Reads and atomics of the peer.
	IRDLeaks         bool `imitates:"rfc5040/5.2.1/2, rfc5040/5.2.2/2" does:"the place of a read is not given back"`
	IRDUnlimited     bool `imitates:"rfc5040/8.1.1/4, rfc5040/6.1/3" does:"any number of reads is taken"`
	ReadQueueShared  bool `imitates:"rfc5042/6.4.3.3/1" does:"all streams share one pool of places for reads"`
	SmallReadsFirst  bool `imitates:"rfc5040/5.2.1/5, rfc5040/5.2.2/4, rfc5040/5.5/8, rfc7306/5.4/3" does:"of reads that wait the shortest is answered first, and atomics last"`
	AtomicAlignedTo4 bool `imitates:"rfc7306/5.1.1/1, rfc7306/5.1.2/3" does:"atomics need addresses that are multiples of four only"`
	AtomicReturnsNew bool `imitates:"rfc7306/5.1.1/3" does:"FetchAdd returns the new value"`
	FetchAddCompares bool `imitates:"rfc7306/5.2.1/2" does:"FetchAdd happens only if the compare fields match"`
	AtomicTorn       bool `imitates:"rfc7306/5/2" does:"an atomic reads at once and writes when its answer has left"`
	AtomicIdIsMSN    bool `imitates:"rfc7306/5.2.2/1, rfc7306/5.2.2/2" does:"an Atomic Response names and numbers itself by the MSN of its request"`

	// What is sent.
	ORDRoundedUp    bool `imitates:"siw, rfc5040/6.1/2" does:"the limit of reads under way is rounded up to a power of two"`
	ZeroReadRepeats bool `imitates:"siw, rfc5040/5.2.1/9" does:"a Read of nothing behind another answers with the other's octets"`
	SendsOvertake   bool `imitates:"siw, rfc5040/5.5/6" does:"a send or write completes before a read that was posted earlier"`
	WritePerSGE     bool `imitates:"rfc5040/5.1/3" does:"a Write goes out as one message for each piece of local memory"`
	CompletesEarly  bool `imitates:"rfc5040/5.5/5, rfc5040/5.5/7, rfc7306/5.4/1" does:"requests of every kind complete when they are posted"`
	AtomicsApart    bool `imitates:"rfc7306/5.2/1, rfc7306/5.2/2" does:"atomics are numbered and limited apart from reads"`

	AtomicResponseUnchecked bool `imitates:"rfc7306/5.2.2/3" does:"any Atomic Response is taken for the next"`

	// How errors are told.
	LongIsNoBuffer      bool `imitates:"siw, rfc5041/7.1/4" does:"a message too long for its buffer is reported as one without"`
	ReadOverflowsStream bool `imitates:"siw, rfc5041/7.1/2" does:"one read too many is a catastrophic error of the stream, not a missing buffer"`
	UnaskedIsLocal      bool `imitates:"siw, rfc5040/5.2.2/6" does:"a Read Response that nobody asked for is reported as a local error"`
	TermBitsSwapped     bool `imitates:"siw, rfc5040/4.8/1" does:"Terminates have the halves of their first octet swapped, and their flags at the wrong end"`
	TermPayloadLength   bool `imitates:"siw, rfc5041/7.1/13" does:"the segment length in a Terminate leaves the headers out"`
	TermBareOperation   bool `imitates:"siw, rfc5040/4.8/5" does:"Terminates for a wrong version or opcode have no header"`
	TermReadStale       bool `imitates:"siw, rfc5040/4.8/6" does:"the Terminate of a Read shows it as it came, with its size in place of its number"`
	TermInvalidateFlag  bool `imitates:"siw, rfc5040/4.8/4" does:"the Terminate of a Send with Invalidate claims a header that is not there"`
	TermSkipped         bool `imitates:"siw, rfc5040/6.2.1/1" does:"no Terminate is sent if a message is half out"`
	TermRepeated        bool `imitates:"rfc5041/7.1/12, rfc5040/7.1/5" does:"every wrong segment draws a Terminate"`
	TalksAfterTerminate bool `imitates:"rfc5040/5.4/2" does:"requests that wait still leave after a Terminate"`
	BadSegmentsDropped  bool `imitates:"rfc5041/7.1/2, rfc5041/7.1/6, rfc5041/7.1/12, rfc5040/7.2/1, rfc5040/5.2.2/6" does:"segments that are wrong are dropped, and the stream goes on"`
}
