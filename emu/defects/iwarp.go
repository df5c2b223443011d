package defects

import (
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
)

// IWARP are the defects of connections of soft-iWARP: those of Linux's siw.
var IWARP = Table[engine.Policy]{
	{
		"FINDropsAnswers", "siw, rfc5041/6.2.1/3", "reads of the peer are not answered after its FIN",
		func(p *engine.Policy) { p.DropReadsOnEOF = true },
	},
	{
		"NoStartupTerminate", "siw, rfc6581/9.3/1", "a connection that cannot be used when the Reply arrives is reset without a Terminate",
		func(p *engine.Policy) { p.ResetUnusable = true },
	},
	{
		"TerminateUnreported", "siw, rfc5040/5.4/3", "a received Terminate and its reason are not reported",
		func(p *engine.Policy) { p.HideTerminate = true },
	},
}

// MPA are the defects of siw's MPA.
var MPA = Table[mpa.Policy]{
	{"NeverAsksCRC", "siw, rfc5044/4.4/2", "start-up frames never ask for CRCs", func(p *mpa.Policy) { p.NeverAskCRC = true }},
	{
		"RefusesMarkers", "siw, rfc5044/4.3/1", "a Request for markers is rejected, a Reply with one ends the connection",
		func(p *mpa.Policy) { p.RefuseMarkers = true },
	},
	{
		"EchoesFlags", "siw, rfc5044/7.1.1/8, rfc5044/7.1.1/9", "a Reply repeats the R and the reserved flags of the Request",
		func(p *mpa.Policy) { p.EchoFlags = true },
	},
	{"TakesRevision0", "siw, rfc5044/7.1.1/11", "a Request of revision 0 is treated like one of revision 1", func(p *mpa.Policy) { p.AcceptRevision0 = true }},
	{
		"PrivateData256", "siw, rfc5044/7.1.1/14", "start-up frames with more than 256 octets of private data are malformed",
		func(p *mpa.Policy) { p.ShortPrivateData = true },
	},
	{"LengthWraps", "siw, rfc5044/7.1.1/12", "PD_Length is computed in eight bits", func(p *mpa.Policy) { p.LowPDLength = true }},
	{
		"BadReplyHangs", "siw, rfc5044/7.1.1/14, rfc6581/6/4", "a Reply with more than 256 octets of private data, or with less than its enhanced data, stops the connection for good",
		func(p *mpa.Policy) { p.StopOnBadReply = true },
	},
	{
		"DepthsAlwaysCount", "siw, rfc6581/9.1/9, rfc6581/9.1/10", "an IRD or ORD that is not to be negotiated counts as 16383",
		func(p *mpa.Policy) { p.AlwaysNegotiate = true },
	},
	{
		"OneRTR", "siw, rfc6581/9.2/4", "a Reply offers a Write as RTR, a Read only if the Request has no other, and never a Send",
		func(p *mpa.Policy) { p.OfferOneRTR = true },
	},
	{"NoFallback", "siw, rfc6581/10/3", "an unenhanced peer is not recognized", func(p *mpa.Policy) { p.NoFallback = true }},
	{"NoFence", "siw, rfc5044/7.1.2/9", "a responder sends before the first FPDU has arrived", func(p *mpa.Policy) { p.ResponderSends = mpa.AfterReply }},
	{
		"EarlyFence", "siw, rfc6581/9.2/10", "a responder may send after the first octets, before they are a complete FPDU",
		func(p *mpa.Policy) { p.ResponderSends = max(p.ResponderSends, mpa.AfterFirstOctets) },
	},
	{
		"FirstFPDUStuck", "siw, rfc5044/7.1.2/6", "the first FPDU after a Reply is not processed until more data arrives, unless an RTR was negotiated",
		func(p *mpa.Policy) { p.HoldFirst = true },
	},
	{"StalePad", "siw, rfc5044/4.1/3", "the pad of short FPDUs has octets of an earlier FPDU", func(p *mpa.Policy) { p.ReusePad = true }},
	{"TrailerCut", "siw, rfc5044/5.1/3", "a segment that ends inside pad or CRC makes the CRC wrong", func(p *mpa.Policy) { p.TrailerInOne = true }},
	{"HandsUpFirst", "siw, rfc5044/6/1", "an FPDU is placed before its CRC is checked", func(p *mpa.Policy) { p.DeliverUnchecked = true }},
	{
		"PlacesEarly", "siw, rfc5044/6/2", "octets of a Write are placed as they arrive, before its FPDU is complete",
		func(p *mpa.Policy) { p.DeliverPartial = true },
	},
	{
		"MSSRoundedDown", "siw, rfc5044/4.5/1", "FPDUs fill segments only to a multiple of eight octets, and each is written by itself",
		func(p *mpa.Policy) { p.RoundMSSDown = true },
	},
}

// RDMAP are the defects of siw's DDP and RDMAP.
var RDMAP = Table[iwarp.Policy]{
	{
		"TaggedFlagIgnored", "siw, rfc5041/4.1/2", "the T flag is ignored: the opcode decides which header follows",
		func(p *iwarp.Policy) { p.HeaderByOpcode = true },
	},
	{"ReadQueueUnchecked", "siw, rfc5041/7.1/1", "queue number and offset of a Read Request are ignored", func(p *iwarp.Policy) { p.AnyReadQueue = true }},
	{"TaggedInOrder", "siw, rfc5041/5.3/5", "a Write whose segments are not contiguous is refused", func(p *iwarp.Policy) { p.WritesInOrder = true }},
	{
		"WrapUnchecked", "siw, rfc5041/7.1/10", "a Write that wraps is a local error, and a Read that wraps ends the stream without a Terminate",
		func(p *iwarp.Policy) { p.Terminate.WrapIsLocal = true },
	},
	{"ReadRightsUnchecked", "siw, rfc5040/5.2.1/10", "memory can be read without the right to", func(p *iwarp.Policy) { p.ReadWithoutRight = true }},
	{
		"ReadPayloadSilent", "siw, rfc5040/4.2/1", "a Read Request with a payload ends the stream without a Terminate",
		func(p *iwarp.Policy) { p.Terminate.LongReadSilent = true },
	},
	{
		"OpcodeChangeSilent", "siw, rfc5040/6.2.1/1", "a message that changes its opcode ends the stream without a Terminate",
		func(p *iwarp.Policy) { p.Terminate.OpcodeChangeSilent = true },
	},
	{
		"ShortResponseTaken", "siw, rfc5040/5.2.2/7", "a Read Response that ends early completes its read with success",
		func(p *iwarp.Policy) { p.AcceptShortResponse = true },
	},
	{
		"ZeroResponseChecked", "siw, rfc5041/5.2/6", "a Read Response of no octets must name the sink of its request",
		func(p *iwarp.Policy) { p.CheckEmptyResponse = true },
	},
	{
		"LaterResponseUnchecked", "siw, rfc5040/5.2.2/5", "only the first segment of a Read Response is checked against its request",
		func(p *iwarp.Policy) { p.CheckFirstResponse = true },
	},
	{
		"InvalidateErrorKept", "siw, rfc5040/5.3/9", "a Send that cannot invalidate completes in error, and the stream stays open",
		func(p *iwarp.Policy) { p.KeepAfterInvalidate = true },
	},
	{"NeverSolicited", "siw, rfc5040/5.3/6", "a Send with solicited event raises none", func(p *iwarp.Policy) { p.IgnoreSolicited = true }},
	{"NoExtensions", "siw, rfc7306/1.1/1", "atomics and immediate data are unknown opcodes", func(p *iwarp.Policy) { p.NoExtensions = true }},
	{"IRDRoundedUp", "siw, rfc5040/6.1/3", "one more read than the next power of two is accepted", func(p *iwarp.Policy) { p.RoundUpIRD = true }},
	{"ORDRoundedUp", "siw, rfc5040/6.1/2", "the limit of reads under way is rounded up to a power of two", func(p *iwarp.Policy) { p.RoundUpORD = true }},
	{
		"ZeroReadRepeats", "siw, rfc5040/5.2.1/9", "a Read of nothing behind another answers with the other's octets",
		func(p *iwarp.Policy) { p.EmptyReadRepeats = true },
	},
	{
		"SendsOvertake", "siw, rfc5040/5.5/6", "a send or write completes before a read that was posted earlier",
		func(p *iwarp.Policy) { p.CompleteEarly = true },
	},
	{
		"LongIsNoBuffer", "siw, rfc5041/7.1/4", "a message too long for its buffer is reported as one without",
		func(p *iwarp.Policy) { p.Terminate.LongIsNoBuffer = true },
	},
	{
		"ReadOverflowsStream", "siw, rfc5041/7.1/2", "one read too many is a catastrophic error of the stream, not a missing buffer",
		func(p *iwarp.Policy) { p.Terminate.ExcessReadIsStream = true },
	},
	{
		"UnaskedIsLocal", "siw, rfc5040/5.2.2/6", "an unexpected Read Response is reported as a local error",
		func(p *iwarp.Policy) { p.Terminate.UnexpectedIsLocal = true },
	},
	{
		"TermBitsSwapped", "siw, rfc5040/4.8/1", "Terminates have the halves of their first octet swapped, and their flags in the wrong bits",
		func(p *iwarp.Policy) { p.Terminate.Order = wire.OrderSiw },
	},
	{"TermPayloadLength", "siw, rfc5041/7.1/13", "the segment length in a Terminate does not count the headers", func(p *iwarp.Policy) { p.Terminate.PayloadLength = true }},
	{
		"TermBareOperation", "siw, rfc5040/4.8/5", "Terminates for a wrong version or opcode have no header",
		func(p *iwarp.Policy) { p.Terminate.NoOperationHeader = true },
	},
	{
		"TermReadStale", "siw, rfc5040/4.8/6", "the Terminate of a Read has its header with the size in place of the MSN",
		func(p *iwarp.Policy) { p.Terminate.ReadAsReceived = true },
	},
	{
		"TermInvalidateFlag", "siw, rfc5040/4.8/4", "the Terminate of a Send with Invalidate has the flag of a header that it lacks",
		func(p *iwarp.Policy) { p.Terminate.InvalidateFlag = true },
	},
	{"TermSkipped", "siw, rfc5040/6.2.1/1", "no Terminate is sent while a message is partly sent", func(p *iwarp.Policy) { p.Terminate.MidMessageSilent = true }},
}
