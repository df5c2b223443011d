package nics

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/verbs"
)

// Profile is a device that is known: what is wrong with it, and what it does not
// claim. An emulated NIC with a profile behaves on the wire, and is judged, as that
// device is.
type Profile struct {
	Name, Title string
	// Provider is whose NICs can behave like that.
	Provider string
	Quirks   []string
	Claims   Claims
}

// Profiles lists those that there are.
func Profiles() []Profile {
	return []Profile{
		{
			Name: "rxe-6.12", Title: "soft-RoCE of Linux 6.12", Provider: "softroce",
			Quirks: slices.Concat(rxeQuirks, []string{"FlushICRCDoubled", "StaleAckBreaksRead", "LocalErrFlushesAll"}),
			Claims: Claims{Without: rxeLacks, PKeys: defaultPartition},
		},
		{
			Name: "rxe-6.1", Title: "soft-RoCE of Linux 6.1", Provider: "softroce",
			Quirks: slices.Concat(rxeQuirks, []string{
				"NoLengthChecks", "HugeLengthIsAccess", "NAKInReadSucceeds", "UDLongKillsQP", "SQNeverDrains", "NoLastWQEEvent", "LocalErrIsQPOp",
			}),
			Claims: Claims{Without: rxeLacks | verbs.CapFlush | verbs.CapAtomicWrite, PKeys: defaultPartition},
		},
		{Name: "siw-6.12", Title: "soft-iWARP of Linux 6.12", Provider: "softiwarp", Quirks: siwQuirks, Claims: siwClaims},
		{Name: "siw-6.1", Title: "soft-iWARP of Linux 6.1", Provider: "softiwarp", Quirks: siwQuirks, Claims: siwClaims},
	}
}

// ProfileNames lists their names.
func ProfileNames() (names []string) {
	for _, p := range Profiles() {
		names = append(names, p.Name)
	}
	return names
}

// FindProfile returns the profile of a name.
func FindProfile(name string) (*Profile, error) {
	for _, p := range Profiles() {
		if p.Name == name {
			return &p, nil
		}
	}
	return nil, fmt.Errorf("there is no profile %q: there are %s", name, strings.Join(ProfileNames(), ", "))
}

// defaultPartition is all that rxe is in.
var defaultPartition = []uint16{0xffff}

// rxeLacks are what rxe does not claim of what soft-RoCE does. It claims automatic
// migration and does not do it: that is one of its defects.
const rxeLacks = verbs.CapXRC | verbs.CapCongestion | verbs.CapCredits

// rxeQuirks are what rxe of Linux 6.1 and 6.12 have in common. Congestion and credits
// are not claimed, so that their absence is no defect; but a device that is silent
// about both is what a peer of rxe meets.
var rxeQuirks = []string{
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
	// What it does not claim.
	"NoCongestion", "NoCreditReporting", "NoCreditHeeding",
}

// siwClaims are those of siw: its programs can neither bind windows nor post or see
// an invalidation, and as a client it knows RFC 5044's model only.
var siwClaims = Claims{Without: verbs.CapAtomics | verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapSendInv, ClientServer: true}

// siwQuirks are those of siw, whose versions differ in nothing that a peer can see.
// BusyCloseIsIdle is not among them: siw is idle in the end only if its program closes
// while a request is half out, which the quirk, being coarser, does for all that is
// outstanding; FINDropsAnswers hides the difference. Nor are NeverRaisesCRC and
// RefusesPlainReply, which are of a siw that was built to want CRCs.
var siwQuirks = []string{
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
