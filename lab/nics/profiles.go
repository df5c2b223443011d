package nics

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// Profile has the known defects and missing capabilities of a real device. An
// emulated NIC with a profile behaves on the wire as that device.
type Profile struct {
	Name, Title string
	// Provider is the provider whose NICs can have the profile.
	Provider     string
	Defects      []string
	Restrictions Restrictions
}

// Profiles returns all profiles.
func Profiles() []Profile {
	return []Profile{
		{
			Name: "rxe-6.12", Title: "soft-RoCE of Linux 6.12", Provider: "softroce",
			Defects:      slices.Concat(rxeDefects, []string{"FlushICRCDoubled", "StaleAckBreaksRead", "LocalErrFlushesAll"}),
			Restrictions: Restrictions{MissingCaps: rxeMissingCaps, PKeys: defaultPartition},
		},
		{
			Name: "rxe-6.1", Title: "soft-RoCE of Linux 6.1", Provider: "softroce",
			Defects: slices.Concat(rxeDefects, []string{
				"NoLengthChecks", "HugeLengthIsAccess", "NAKInReadSucceeds", "UDLongKillsQP", "SQNeverDrains", "NoLastWQEEvent", "LocalErrIsQPOp",
			}),
			Restrictions: Restrictions{MissingCaps: rxeMissingCaps | verbs.CapFlush | verbs.CapAtomicWrite, PKeys: defaultPartition},
		},
		{Name: "siw-6.12", Title: "soft-iWARP of Linux 6.12", Provider: "softiwarp", Defects: siwDefects, Restrictions: siwRestrictions},
		{Name: "siw-6.1", Title: "soft-iWARP of Linux 6.1", Provider: "softiwarp", Defects: siwDefects, Restrictions: siwRestrictions},
	}
}

// ProfileNames returns the names of all profiles.
func ProfileNames() (names []string) {
	for _, p := range Profiles() {
		names = append(names, p.Name)
	}
	return names
}

// FindProfile returns the profile with a name.
func FindProfile(name string) (*Profile, error) {
	for _, p := range Profiles() {
		if p.Name == name {
			return &p, nil
		}
	}
	return nil, fmt.Errorf("no profile %q: there are %s", name, strings.Join(ProfileNames(), ", "))
}

// defaultPartition is the P_Key table of rxe.
var defaultPartition = []uint16{0xffff}

// rxeMissingCaps are capabilities of soft-RoCE that rxe does not claim. It claims
// automatic path migration, which it does not implement: that is one of its
// defects.
const rxeMissingCaps = verbs.CapXRC | verbs.CapCongestion | verbs.CapCredits

// rxeDefects are the defects of rxe in both Linux 6.1 and 6.12. Congestion control
// and credits are not claimed, and their absence is no defect; the profile still
// leaves them out on the wire.
var rxeDefects = []string{
	// Headers.
	"ECNFromTClass", "FixedHopLimit", "DFUnchecked", "ReservedOpSilent", "RaggedAccepted", "GSIAckReq", "GRHFlagOnConnected", "MigReqZero",
	// Requester.
	"GhostAckCompletes", "AckCompletesRead", "BadRespSucceeds", "RNRTimerTypo", "JiffyTimers", "RetryCount7Forever", "IgnoreSecondNAK",
	"ShortReadHangs", "RdAtomicRoundsUp", "FetchAddLeaks", "PathMTUUnchecked",
	// Responder.
	"DupReadWaits", "SeqNAKAfterRNR", "SubReadContinues", "NoRdAtomicLimit", "FailedImmConsumes", "InvalidateAcked", "ForeignInvalidate",
	"InvalidatePanics", "LongSendIsOpError", "RecvErrorIsQPOp", "WindowBounds", "BindForeignRegion",
	// Other services.
	"UCLosesNext", "UCErrorIsFatal", "PrivilegedQKey", "WrongOpKillsQP",
	// Objects and events.
	"ValuesUnchecked", "RefusedWRStays", "SQDNoResume", "CQErrRepeats", "ArmsWithoutChannel", "NoQPEvents", "MigrationIgnored", "cm.IgnoreCommEst",
	// Capabilities that it does not claim.
	"NoCongestion", "NoCreditReporting", "NoCreditHeeding",
}

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
