package nics

import (
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// rxeProfiles imitate rxe, the soft-RoCE driver of Linux.
func rxeProfiles() []Profile {
	return []Profile{
		{
			Name: "rxe-6.12", Title: "soft-RoCE of Linux 6.12",
			Defects:      slices.Concat(rxeDefects, []string{"FlushICRCDoubled", "StaleAckBreaksRead", "LocalErrFlushesAll"}),
			Restrictions: Restrictions{MissingCaps: rxeMissingCaps, PKeys: defaultPartition},
		},
		{
			Name: "rxe-6.1", Title: "soft-RoCE of Linux 6.1",
			Defects: slices.Concat(rxeDefects, []string{
				"NoLengthChecks", "HugeLengthIsAccess", "NAKInReadSucceeds", "UDLongKillsQP", "SQNeverDrains", "NoLastWQEEvent", "LocalErrIsQPOp",
			}),
			Restrictions: Restrictions{MissingCaps: rxeMissingCaps | verbs.CapFlush | verbs.CapAtomicWrite, PKeys: defaultPartition},
		},
	}
}

// rxeVerbDefects are the defects of verbs of rxe.
var rxeVerbDefects = []string{
	"GRHFlagOnConnected", "RecvErrorIsQPOp", "RdAtomicRoundsUp", "RefusedWRStays", "SQNeverDrains", "NoQPEvents", "NoLastWQEEvent", "ValuesUnchecked",
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
