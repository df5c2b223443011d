package mpa

// Policy has the decisions in which real devices differ. The zero value follows the RFCs.
type Policy struct {
	StartupPolicy
	FPDUPolicy
}

// StartupPolicy is the policy of Requests and Replies.
type StartupPolicy struct {
	// NeverAskCRC sends start-up frames without the CRC flag.
	NeverAskCRC bool
	// RefuseMarkers rejects a Request for markers, and closes after a Reply that asks for them.
	RefuseMarkers bool
	// EchoFlags repeats the R and the reserved flags of the Request in the Reply.
	EchoFlags bool
	// AcceptRevision0 treats a Request of revision 0 like one of revision 1.
	AcceptRevision0 bool
	// ShortPrivateData accepts at most shortPrivateData octets of private data.
	ShortPrivateData bool
	// LowPDLength sends only the low octet of PD_Length.
	LowPDLength bool
	// StopOnBadReply ignores everything after a Reply with more than shortPrivateData octets of
	// private data, or with less than the enhanced data.
	StopOnBadReply bool
	// AlwaysNegotiate takes the depth that means "not negotiated" as a number.
	AlwaysNegotiate bool
	// OfferOneRTR offers a Write as RTR, or a Read if the Request has Read and not Write.
	OfferOneRTR bool
	// NoFallback does not advise to connect again without the enhanced set-up.
	NoFallback bool
}

// shortPrivateData is the longest private data of ShortPrivateData and StopOnBadReply.
const shortPrivateData = 256

// FPDUPolicy is the policy of FPDUs.
type FPDUPolicy struct {
	// ResponderSends is the time from which on a responder sends FPDUs.
	ResponderSends ResponderSends
	// HoldFirst holds the first FPDU after a Reply without RTR until more arrives.
	HoldFirst bool
	// ReusePad leaves the octets of earlier FPDUs in the pad of short ones.
	ReusePad bool
	// TrailerInOne takes the CRC for wrong if pad and CRC arrive in parts.
	TrailerInOne bool
	// DeliverUnchecked reports the ULPDU of an FPDU with a wrong CRC with the error.
	DeliverUnchecked bool
	// DeliverPartial makes PartialULPDU return ULPDUs that have arrived in part.
	DeliverPartial bool
	// RoundMSSDown rounds TCP's segment size down to a multiple of 8, and writes each FPDU alone.
	RoundMSSDown bool
}

// ResponderSends is the time from which on a responder sends FPDUs.
type ResponderSends uint8

// Times.
const (
	AfterFirstFPDU ResponderSends = iota
	AfterFirstOctets
	AfterReply
)
