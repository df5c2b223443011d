package defects

import (
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
)

// IWARP are the defects of connections of soft-iWARP: those of Linux's siw.
var IWARP = Table[engine.Policy]{
	{"FINDropsAnswers", "siw, rfc5041/6.2.1/3", "reads of the peer are not answered after its FIN", "DropReadsOnEOF", true},
	{"NoStartupTerminate", "siw, rfc6581/9.3/1", "a connection that cannot be used when the Reply arrives is reset without a Terminate", "ResetUnusable", true},
	{"TerminateUnreported", "siw, rfc5040/5.4/3", "a received Terminate and its reason are not reported", "HideTerminate", true},
}

// MPA are the defects of siw's MPA.
var MPA = Table[mpa.Policy]{
	{"NeverAsksCRC", "siw, rfc5044/4.4/2", "start-up frames never ask for CRCs", "NeverAskCRC", true},
	{"RefusesMarkers", "siw, rfc5044/4.3/1", "a Request for markers is rejected, a Reply with one ends the connection", "RefuseMarkers", true},
	{"EchoesFlags", "siw, rfc5044/7.1.1/8, rfc5044/7.1.1/9", "a Reply repeats the R and the reserved flags of the Request", "EchoFlags", true},
	{"TakesRevision0", "siw, rfc5044/7.1.1/11", "a Request of revision 0 is treated like one of revision 1", "AcceptRevision0", true},
	{"PrivateData256", "siw, rfc5044/7.1.1/14", "start-up frames with more than 256 octets of private data are malformed", "ShortPrivateData", true},
	{"LengthWraps", "siw, rfc5044/7.1.1/12", "PD_Length is computed in eight bits", "LowPDLength", true},
	{
		"BadReplyHangs", "siw, rfc5044/7.1.1/14, rfc6581/6/4", "a Reply with more than 256 octets of private data, or with less than its enhanced data, stops the connection for good",
		"StopOnBadReply", true,
	},
	{"DepthsAlwaysCount", "siw, rfc6581/9.1/9, rfc6581/9.1/10", "an IRD or ORD that is not to be negotiated counts as 16383", "AlwaysNegotiate", true},
	{"OneRTR", "siw, rfc6581/9.2/4", "a Reply offers a Write as RTR, a Read only if the Request has no other, and never a Send", "OfferOneRTR", true},
	{"NoFallback", "siw, rfc6581/10/3", "an unenhanced peer is not recognized", "NoFallback", true},
	{"NoFence", "siw, rfc5044/7.1.2/9", "a responder sends before the first FPDU has arrived", "ResponderSends", mpa.AfterReply},
	{"EarlyFence", "siw, rfc6581/9.2/10", "a responder may send after the first octets, before they are a complete FPDU", "ResponderSends", mpa.AfterFirstOctets},
	{"FirstFPDUStuck", "siw, rfc5044/7.1.2/6", "the first FPDU after a Reply is not processed until more data arrives, unless an RTR was negotiated", "HoldFirst", true},
	{"StalePad", "siw, rfc5044/4.1/3", "the pad of short FPDUs has octets of an earlier FPDU", "ReusePad", true},
	{"TrailerCut", "siw, rfc5044/5.1/3", "a segment that ends inside pad or CRC makes the CRC wrong", "TrailerInOne", true},
	{"HandsUpFirst", "siw, rfc5044/6/1", "an FPDU is placed before its CRC is checked", "DeliverUnchecked", true},
	{"PlacesEarly", "siw, rfc5044/6/2", "octets of a Write are placed as they arrive, before its FPDU is complete", "DeliverPartial", true},
	{"MSSRoundedDown", "siw, rfc5044/4.5/1", "FPDUs fill segments only to a multiple of eight octets, and each is written by itself", "RoundMSSDown", true},
}

// RDMAP are the defects of siw's DDP and RDMAP.
var RDMAP = Table[iwarp.Policy]{
	{"TaggedFlagIgnored", "siw, rfc5041/4.1/2", "the T flag is ignored: the opcode decides which header follows", "HeaderByOpcode", true},
	{"ReadQueueUnchecked", "siw, rfc5041/7.1/1", "queue number and offset of a Read Request are ignored", "AnyReadQueue", true},
	{"TaggedInOrder", "siw, rfc5041/5.3/5", "a Write whose segments are not contiguous is refused", "WritesInOrder", true},
	{"WrapUnchecked", "siw, rfc5041/7.1/10", "a Write that wraps is a local error, and a Read that wraps ends the stream without a Terminate", "Terminate.WrapIsLocal", true},
	{"ReadRightsUnchecked", "siw, rfc5040/5.2.1/10", "memory can be read without the right to", "ReadWithoutRight", true},
	{"ReadPayloadSilent", "siw, rfc5040/4.2/1", "a Read Request with a payload ends the stream without a Terminate", "Terminate.LongReadSilent", true},
	{"OpcodeChangeSilent", "siw, rfc5040/6.2.1/1", "a message that changes its opcode ends the stream without a Terminate", "Terminate.OpcodeChangeSilent", true},
	{"ShortResponseTaken", "siw, rfc5040/5.2.2/7", "a Read Response that ends early completes its read with success", "AcceptShortResponse", true},
	{"ZeroResponseChecked", "siw, rfc5041/5.2/6", "a Read Response of no octets must name the sink of its request", "CheckEmptyResponse", true},
	{"LaterResponseUnchecked", "siw, rfc5040/5.2.2/5", "only the first segment of a Read Response is checked against its request", "CheckFirstResponse", true},
	{"InvalidateErrorKept", "siw, rfc5040/5.3/9", "a Send that cannot invalidate completes in error, and the stream stays open", "KeepAfterInvalidate", true},
	{"NeverSolicited", "siw, rfc5040/5.3/6", "a Send with solicited event raises none", "IgnoreSolicited", true},
	{"NoExtensions", "siw, rfc7306/1.1/1", "atomics and immediate data are unknown opcodes", "NoExtensions", true},
	{"IRDRoundedUp", "siw, rfc5040/6.1/3", "one more read than the next power of two is accepted", "RoundUpIRD", true},
	{"ORDRoundedUp", "siw, rfc5040/6.1/2", "the limit of reads under way is rounded up to a power of two", "RoundUpORD", true},
	{"ZeroReadRepeats", "siw, rfc5040/5.2.1/9", "a Read of nothing behind another answers with the other's octets", "EmptyReadRepeats", true},
	{"SendsOvertake", "siw, rfc5040/5.5/6", "a send or write completes before a read that was posted earlier", "CompleteEarly", true},
	{"LongIsNoBuffer", "siw, rfc5041/7.1/4", "a message too long for its buffer is reported as one without", "Terminate.LongIsNoBuffer", true},
	{"ReadOverflowsStream", "siw, rfc5041/7.1/2", "one read too many is a catastrophic error of the stream, not a missing buffer", "Terminate.ExcessReadIsStream", true},
	{"UnaskedIsLocal", "siw, rfc5040/5.2.2/6", "an unexpected Read Response is reported as a local error", "Terminate.UnexpectedIsLocal", true},
	{"TermBitsSwapped", "siw, rfc5040/4.8/1", "Terminates have the halves of their first octet swapped, and their flags in the wrong bits", "Terminate.Order", wire.OrderSiw},
	{"TermPayloadLength", "siw, rfc5041/7.1/13", "the segment length in a Terminate does not count the headers", "Terminate.PayloadLength", true},
	{"TermBareOperation", "siw, rfc5040/4.8/5", "Terminates for a wrong version or opcode have no header", "Terminate.NoOperationHeader", true},
	{"TermReadStale", "siw, rfc5040/4.8/6", "the Terminate of a Read has its header with the size in place of the MSN", "Terminate.ReadAsReceived", true},
	{"TermInvalidateFlag", "siw, rfc5040/4.8/4", "the Terminate of a Send with Invalidate has the flag of a header that it lacks", "Terminate.InvalidateFlag", true},
	{"TermSkipped", "siw, rfc5040/6.2.1/1", "no Terminate is sent while a message is partly sent", "Terminate.MidMessageSilent", true},
}
