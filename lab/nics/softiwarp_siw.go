package nics

import "github.com/fabrictest/fabrictest/verbs"

// siwProfiles imitate siw, the soft-iWARP driver of Linux.
func siwProfiles() []Profile {
	return []Profile{
		{Name: "siw-6.12", Title: "soft-iWARP of Linux 6.12", Defects: siwDefects, Restrictions: siwRestrictions},
		{Name: "siw-6.1", Title: "soft-iWARP of Linux 6.1", Defects: siwDefects, Restrictions: siwRestrictions},
	}
}

// siwVerbDefects are the defects of verbs of siw.
var siwVerbDefects = []string{"RTRIgnored", "InvalidateUnreported"}

// siwRestrictions are those of siw: programs cannot bind memory windows or use
// invalidation, and as a client it only knows the model of RFC 5044.
var siwRestrictions = Restrictions{MissingCaps: verbs.CapAtomics | verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapSendInv, Options: Options{"client_server": true}}

// siwDefects are the defects of siw, whose versions do not differ on the wire.
// BusyCloseIsIdle is left out, because it is coarser than siw's behaviour, which
// FINDropsAnswers hides. NeverRaisesCRC and RefusesPlainReply belong to a siw built
// with CRC.
var siwDefects = []string{
	// Start-up.
	"NoStartupTerminate", "RTRIgnored", "NeverAsksCRC", "RefusesMarkers", "EchoesFlags", "TakesRevision0", "PrivateData256", "LengthWraps",
	"BadReplyHangs", "DepthsAlwaysCount", "OneRTR", "NoFallback", "NoFence", "EarlyFence", "FirstFPDUStuck", "IRDRoundedUp", "ORDRoundedUp",
	// Frames.
	"StalePad", "TrailerCut", "HandsUpFirst", "PlacesEarly", "MSSRoundedDown",
	// DDP and RDMAP.
	"TaggedFlagIgnored", "ReadQueueUnchecked", "TaggedInOrder", "WrapUnchecked", "ReadRightsUnchecked", "ReadPayloadSilent",
	"OpcodeChangeSilent", "ShortResponseTaken", "LaterResponseUnchecked", "ZeroResponseChecked", "InvalidateErrorKept", "InvalidateAnything",
	"NeverSolicited", "NoExtensions", "ZeroReadRepeats", "SendsOvertake", "LongIsNoBuffer", "ReadOverflowsStream", "UnaskedIsLocal",
	// Terminates and the end.
	"TermBitsSwapped", "TermPayloadLength", "TermBareOperation", "TermReadStale", "TermInvalidateFlag", "TermSkipped", "TerminateUnreported",
	"InvalidateUnreported", "FINDropsAnswers",
}
