package iwarpwire

// Defects are the defects of a NIC that can be told from its streams. Tags say
// what each does, and whose defect it is or which requirement it breaks.
type Defects struct {
	// Records, padding, CRC.
	TwoPerFPDU         bool `imitates:"rfc5044/3/1" does:"two queued messages are sent in one FPDU"`
	LengthCountsPad    bool `imitates:"rfc5044/4.1/2" does:"the length of an FPDU counts its pad"`
	PadToEight         bool `imitates:"rfc5044/4.1/5" does:"FPDUs are padded to multiples of eight octets"`
	CRCSkipsPad        bool `imitates:"rfc5044/4.1/4, rfc5044/4.4/7" does:"the CRC does not cover the pad"`
	CRCSkipsMarker     bool `imitates:"rfc5044/4.4/8" does:"the CRC does not cover a marker before the length"`
	CRCSkipsLastMarker bool `imitates:"rfc5044/4.4/7" does:"the CRC does not cover a marker between pad and CRC"`
	CRCFieldOmitted    bool `imitates:"rfc5044/4.1/6" does:"without CRCs the CRC field is omitted"`
	CRCAlwaysChecked   bool `imitates:"rfc5044/4.1/6, rfc5044/4.4/4" does:"CRCs are checked even if neither side asked for them"`
	CRCNeedsBoth       bool `imitates:"rfc5044/7.1.1/7, rfc5044/4.4/3" does:"CRCs are used only if both sides asked"`
	SegmentsUnaligned  bool `imitates:"rfc5044/5.1/1" does:"headers and payload of FPDUs are written one by one"`
	OneFPDUPerSegment  bool `imitates:"rfc5044/5.1/2, rfc5044/5.2/1" does:"of several FPDUs in one TCP segment only the first is processed"`
	HeaderInOneRead    bool `imitates:"rfc5044/5.1/3" does:"an FPDU whose header arrives in pieces is treated as malformed"`
	SkipsGarbage       bool `imitates:"rfc5040/6.1/1" does:"FPDUs of no octets are skipped"`
	Resynchronises     bool `imitates:"rfc5044/8/2" does:"an invalid FPDU is reported, and the FPDUs after it are processed"`

	// Markers.
	MarkerReservedSet  bool `imitates:"rfc5044/4.2/1" does:"the reserved half of markers is not zero"`
	MPAReservedRefused bool `imitates:"rfc5044/4.2/2, rfc5044/4.2/3, rfc5044/7.1.1/10" does:"reserved bits of start-up frames and markers must be zero, and the low bits of pointers too"`
	MarkersAlways      bool `imitates:"rfc5044/7.1.1/5, rfc5044/7.1.2/10" does:"markers are sent to peers that did not ask for them"`
	MarkersStartLate   bool `imitates:"rfc5044/4.3/3" does:"the first marker is sent after 512 octets"`
	MarkerPointsFirst  bool `imitates:"rfc5044/4.3/4, rfc5044/4.3/5, rfc5044/4.3/7" does:"a marker points to the first FPDU after the previous marker"`
	MarkerPointsBack   bool `imitates:"rfc5044/4.3/6" does:"the second marker in an FPDU points to the first"`
	MarkersKept        bool `imitates:"rfc5044/4.3/9" does:"received markers are left in the data"`

	// Start-up.
	KeysExchanged        bool `imitates:"rfc5044/7.1.1/1, rfc5044/7.1.1/3" does:"Requests have the key of Replies, and Replies the key of Requests"`
	KeyPrefixOnly        bool `imitates:"rfc5044/7.1.1/2, rfc5044/7.1.1/4, rfc5044/7.1.2/11" does:"of the key only the first seven octets are compared"`
	AnyRevision          bool `imitates:"rfc5044/7.1.1/11, rfc5044/7.1.2/7" does:"every revision is accepted"`
	BadRequestHangs      bool `imitates:"rfc5044/7.1.2/3, rfc5044/8/4, rfc5042/x/1" does:"a Request that is malformed, or ends early, leaves the connection open"`
	ShortFramesTaken     bool `imitates:"rfc5044/7.1.2/7, rfc6581/6/4" does:"a start-up frame whose private data is missing is accepted"`
	LongPrivateDataTaken bool `imitates:"rfc5044/7.1.1/13" does:"private data of more than 512 octets is truncated and accepted"`
	PrivateDataOverrun   bool `imitates:"rfc5044/7.1.2/14" does:"all octets received with a Request are its private data"`
	ResponderSpeaksFirst bool `imitates:"rfc5044/7.1.2/1, rfc5044/7.1.2/2" does:"a Request is sent after the peer's first octets, and a Reply is sent before the Request"`
	RejectCloses         bool `imitates:"rfc5044/7.1.2/4" does:"a reject by the program closes the connection without a Reply"`
	RejectIsAccept       bool `imitates:"rfc5044/7.1.2/8" does:"a rejecting Reply is treated as an accepting one"`
	TalksAfterReject     bool `imitates:"rfc5044/7.1.2/5" does:"a Terminate follows a rejecting Reply"`

	// Enhanced start-up.
	EnhancedRevision1  bool `imitates:"rfc6581/6/1, rfc6581/10/2" does:"Requests of revision 1 have the enhanced format"`
	DemandsRevision2   bool `imitates:"rfc6581/6/2" does:"a Request of revision 1 is refused"`
	EnhancedUncounted  bool `imitates:"rfc6581/6/3, rfc5044/7.1.1/12" does:"PD_Length does not count the enhanced data"`
	ForcesEnhanced     bool `imitates:"rfc6581/6/5, rfc6581/10/1" does:"every Reply is enhanced"`
	DepthsUnbounded    bool `imitates:"rfc6581/12/1" does:"any depth below 16383 is granted"`
	ReplyDepthsIgnored bool `imitates:"rfc6581/9.1/6, rfc6581/9.1/7" does:"the IRD and ORD of a Reply are ignored"`
	ForgetsPeerToPeer  bool `imitates:"rfc6581/9.2/2, rfc6581/9.2/3, rfc6581/9.2/5" does:"a Reply does not confirm the peer-to-peer model"`
	NoRTROffered       bool `imitates:"rfc6581/9.2/1" does:"a Request for the peer-to-peer model names no RTR"`
	RTRUnasked         bool `imitates:"rfc6581/9.2/6, rfc6581/9.2/7" does:"the RTR is a Write, whatever was negotiated"`
	RTRLate            bool `imitates:"rfc6581/5/1" does:"the RTR is sent after the first message of the program"`
	RTRUncounted       bool `imitates:"rfc6581/9.2/12" does:"an RTR does not count as a message"`
	RTRBitsLeft        bool `imitates:"rfc6581/9.2/8" does:"without the peer-to-peer model a Reply still repeats the RTR flags"`
	RTRAlwaysExpected  bool `imitates:"rfc6581/9.2/9" does:"RTR flags count even without the peer-to-peer model"`

	// Ends and errors.
	ErrorResets             bool `imitates:"rfc5044/8/3, rfc5041/6.2/1, rfc5040/6.2.1/3" does:"an error resets the connection without a Terminate"`
	TermHeaderStale         bool `imitates:"rfc5041/7.1/13, rfc5040/7.1/3, rfc5040/7.1/4" does:"the headers in a Terminate are those of the segment before"`
	TermAllHeaders          bool `imitates:"rfc5040/4.8/5, rfc7306/8.1/1" does:"every Terminate has all three flags and both headers"`
	TermOtherQueue          bool `imitates:"rfc5040/5.4/1" does:"Terminates go out on queue 0"`
	CodesShifted            bool `imitates:"rfc5041/7.2/1, rfc5040/4.8/2" does:"error codes of DDP and RDMAP are one too high"`
	MPAErrorType            bool `imitates:"rfc6580/3.3/1, rfc6581/8/1" does:"errors of MPA are reported with type 1"`
	TerminateAnswered       bool `imitates:"rfc5040/5.4/6" does:"a Terminate is answered with one"`
	StrangeTerminateIgnored bool `imitates:"rfc5040/4.8/3, rfc5040/5.4/4, rfc6580/3.1/1" does:"a Terminate on another queue, with reserved bits or with a code that is not listed is ignored"`
	LocalErrorSilent        bool `imitates:"rfc5040/7.1/2" does:"a request that fails locally sends no Terminate"`

	// DDP: what is sent.
	TaggedFlagInverted bool `imitates:"rfc5041/4.1/1, rfc5040/5.2.1/1, rfc5040/5.2.2/1" does:"the T flag of sent segments is inverted"`
	LastOnEvery        bool `imitates:"rfc5041/4.1/3, rfc5041/4.1/4, rfc5040/5.2/1" does:"every segment has the L flag"`
	ControlFirstOnly   bool `imitates:"rfc5041/4.1/8, rfc5041/4.2/2" does:"later segments of a message have empty control octets"`
	FieldsSwapped      bool `imitates:"rfc5041/4.2/1, rfc5041/4.3/1, rfc5040/4.4/1, rfc7306/5.2.1/1" does:"adjacent header fields are swapped"`
	UnusedFieldsStale  bool `imitates:"rfc5041/4.1/6, rfc5040/4.1/4, rfc5040/4.1/5, rfc7306/5.2.1/2" does:"reserved bits and unused fields are sent with stale values"`
	SegmentsCounted    bool `imitates:"rfc5041/4.3/2, rfc5041/4.3/5" does:"MSNs count segments, and offsets continue from message to message"`
	OffsetsStandStill  bool `imitates:"rfc5041/5.2/2, rfc5041/5.2/3" does:"every segment of a message has the offset of the first"`
	MSNShared          bool `imitates:"rfc5041/4.3/3" does:"one counter from 0 on numbers the messages of all queues"`
	TailFirst          bool `imitates:"rfc5041/5.3/2" does:"the last segment of a message is sent first"`
	ZeroLengthSkipped  bool `imitates:"rfc5041/5.2/5, rfc5040/5.2.1/9" does:"messages of no octets are not sent"`
	QueuesMixed        bool `imitates:"rfc5040/3.1/1, rfc5040/5.3/1, rfc7306/5/3" does:"messages are sent on the wrong queues"`
	RDMAPVersion0      bool `imitates:"rfc5040/4.1/3, rfc5040/4.1/1, rfc5044/C.1/1, rfc7306/4.1/1" does:"RDMAP messages have version 0"`
	SegmentEdgeLost    bool `imitates:"rfc5040/5.2.1/6" does:"later segments of a response begin one octet too late"`
	ImmediateOfFour    bool `imitates:"rfc7306/6.3/2" does:"immediate data is sent as four octets"`

	// DDP and RDMAP: what is taken.
	ReservedBitsChecked bool `imitates:"rfc5041/4.1/7, rfc5040/4.1/4, rfc7306/5.2.1/1" does:"reserved bits must be zero"`
	VersionsUnchecked   bool `imitates:"rfc5041/7.2/2, rfc5040/7.2/2, rfc7306/8.2/1" does:"the versions of DDP and RDMAP are not checked"`
	UntaggedUnchecked   bool `imitates:"rfc5041/7.1/1, rfc5041/7.1/3, rfc5041/7.1/5, rfc7306/4.1/2" does:"queue number, MSN and offset of untagged messages are not checked"`
	OddOffsetRefused    bool `imitates:"rfc5041/4.2/3" does:"tagged offsets must be multiples of four"`
	OpcodeMasked        bool `imitates:"rfc6580/3.4/1" does:"opcodes are read in three bits"`
	ReadSize16          bool `imitates:"rfc5040/4.4/3" does:"the size of reads is kept in 16 bits"`
	EverySendSolicited  bool `imitates:"rfc5040/5.3/6" does:"every Send raises a solicited event"`
	WritesPlacedLate    bool `imitates:"rfc5040/5.5/3, rfc7306/6.4/1" does:"a Write is placed after the next message has been executed"`
	AddMaskIsAnd        bool `imitates:"rfc7306/5.1.1/2" does:"the mask of FetchAdd is applied to its operand"`
	MasksSwapped        bool `imitates:"rfc7306/5.1.2/1" does:"CmpSwap swaps its two masks"`
	SwapsAlways         bool `imitates:"rfc7306/5.1.2/2" does:"CmpSwap swaps even if the comparison fails"`
	AnyAtomicAdds       bool `imitates:"rfc7306/5.2.1/3" does:"an unknown atomic is a FetchAdd"`
	ImmediateAnyLength  bool `imitates:"rfc7306/6.3/3" does:"immediate data of any length is accepted"`
}
