// Package iwarp has the cases of iWARP over TCP: MPA and its enhanced start-up, DDP,
// RDMAP and its extensions. They are in files named after document and section of the
// ledger that they check (../ledger/rfc5044.yaml and others).
//
// A case scripts the peer of a queue pair: see [conn] for established connections,
// [handshake] for the MPA start-up step by step, and [host] for listening and dialing. The
// package is written from the RFCs, and shares no code with an implementation.
package iwarp

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Suite returns the cases.
func Suite() *conformance.Suite {
	return &conformance.Suite{
		Name: "iwarp", Title: "iWARP: MPA, DDP and RDMAP over TCP", DescribeEvent: describeEvent,
		Cases: conformance.Group{Needs: needsConn}.Cases(slices.Concat(
			mpaRecordCases, mpaFPDUCases, mpaMarkerCases, mpaPositionCases, mpaCRCCases, mpaCoverageCases, mpaSegmentCases, segmentCases,
			mpaFrameCases, mpaRevisionCases, mpaPrivateCases, mpaOrderCases, mpaRejectCases, mpaTimerCases, mpaErrorCases,
			enhancedFrameCases, enhancedResponderCases, enhancedInitiatorCases, enhancedRTRCases, enhancedRTRTakenCases, registryCases,
			ddpControlCases, ddpHeaderCases, ddpSegmentCases, ddpOrderCases, ddpEndCases,
			ddpUntaggedCases, ddpTaggedCases, ddpLaterCases, ddpReportCases, ddpProtectionCases,
			rdmapControlCases, rdmapRequestCases, rdmapTerminateCases, rdmapReadHeaderCases, rdmapWriteCases,
			rdmapSourceCases, rdmapResponseCases, rdmapSendCases, rdmapInvalidateCases, rdmapEndCases,
			rdmapOrderCases, rdmapStreamCases, rdmapCheckCases,
			rdmapxMessageCases, rdmapxOperationCases, rdmapxRequestCases, rdmapxResponseCases, rdmapxImmediateCases,
			securityMemoryCases, securityResourceCases, counterCases,
		)),
	}
}

// needsConn are the capabilities that every case needs.
const needsConn = verbs.CapRC | verbs.CapCM

// The cited documents.
const (
	rfc5040 = "RFC 5040"
	rfc5041 = "RFC 5041"
	rfc5042 = "RFC 5042"
	rfc5044 = "RFC 5044"
	rfc6580 = "RFC 6580"
	rfc6581 = "RFC 6581"
	rfc7306 = "RFC 7306"
)

// cite names a section and the rows of the ledger that a case covers.
func cite(doc, section string, rows ...string) conformance.Cite {
	return conformance.Cite{Doc: doc, Section: section, Rows: rows}
}
