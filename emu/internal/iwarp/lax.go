package iwarp

// Lax makes a layer misbehave on purpose: it imitates implementations that
// forget a rule, soft-iWARP of Linux ("siw") above all. The zero value forgets
// nothing. Tags say what a field does and whose defect it is, or which
// requirement it breaks.
type Lax struct {
	// What is taken from the peer.
	TaggedFlagIgnored      bool `defect:"siw, rfc5041/4.1/2" does:"the T flag is ignored: the opcode decides which header follows"`
	ReadQueueUnchecked     bool `defect:"siw, rfc5041/7.1/1" does:"queue number and offset of a Read Request are ignored"`
	TaggedInOrder          bool `defect:"siw, rfc5041/5.3/5" does:"a Write whose offsets do not follow one another is refused"`
	WrapUnchecked          bool `defect:"siw, rfc5041/7.1/10" does:"a Write that wraps is a local error, and a Read that wraps ends the stream in silence"`
	ReadRightsUnchecked    bool `defect:"siw, rfc5040/5.2.1/10" does:"memory can be read without the right to"`
	ReadPayloadSilent      bool `defect:"siw, rfc5040/4.2/1" does:"a Read Request with a payload ends the stream without a Terminate"`
	OpcodeChangeSilent     bool `defect:"siw, rfc5040/6.2.1/1" does:"a message that changes its opcode ends the stream without a Terminate"`
	ShortResponseTaken     bool `defect:"siw, rfc5040/5.2.2/7" does:"a Read Response that ends early completes its read with success"`
	ZeroResponseChecked    bool `defect:"siw, rfc5041/5.2/6" does:"a Read Response of no octets must name the sink of its request"`
	LaterResponseUnchecked bool `defect:"siw, rfc5040/5.2.2/5" does:"only the first segment of a Read Response is held against its request"`
	InvalidateErrorKept    bool `defect:"siw, rfc5040/5.3/9" does:"a Send that cannot invalidate completes in error and the stream goes on"`
	NeverSolicited         bool `defect:"siw, rfc5040/5.3/6" does:"a Send with solicited event raises none"`
	NoExtensions           bool `defect:"siw, rfc7306/1.1/1" does:"atomics and immediate data are unknown opcodes"`
	IRDRoundedUp           bool `defect:"siw, rfc5040/6.1/3" does:"one more read than the next power of two is taken"`

	// What is sent.
	ORDRoundedUp    bool `defect:"siw, rfc5040/6.1/2" does:"the limit of reads under way is rounded up to a power of two"`
	ZeroReadRepeats bool `defect:"siw, rfc5040/5.2.1/9" does:"a Read of nothing behind another answers with the other's octets"`
	SendsOvertake   bool `defect:"siw, rfc5040/5.5/6" does:"a send or write completes before a read that was posted earlier"`

	// How errors are told.
	LongIsNoBuffer      bool `defect:"siw, rfc5041/7.1/4" does:"a message too long for its buffer is reported as one without"`
	ReadOverflowsStream bool `defect:"siw, rfc5041/7.1/2" does:"one read too many is a catastrophic error of the stream, not a missing buffer"`
	UnaskedIsLocal      bool `defect:"siw, rfc5040/5.2.2/6" does:"a Read Response that nobody asked for is reported as a local error"`
	TermBitsSwapped     bool `defect:"siw, rfc5040/4.8/1" does:"Terminates have the halves of their first octet swapped, and their flags at the wrong end"`
	TermPayloadLength   bool `defect:"siw, rfc5041/7.1/13" does:"the segment length in a Terminate leaves the headers out"`
	TermBareOperation   bool `defect:"siw, rfc5040/4.8/5" does:"Terminates for a wrong version or opcode have no header"`
	TermReadStale       bool `defect:"siw, rfc5040/4.8/6" does:"the Terminate of a Read shows it as it came, with its size in place of its number"`
	TermInvalidateFlag  bool `defect:"siw, rfc5040/4.8/4" does:"the Terminate of a Send with Invalidate claims a header that is not there"`
	TermSkipped         bool `defect:"siw, rfc5040/6.2.1/1" does:"no Terminate is sent if a message is half out"`
}
