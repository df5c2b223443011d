// Package iwarp has the cases of iWARP over TCP: MPA and its enhanced start-up, DDP,
// RDMAP and its extensions. They are in files named after document and section of the
// ledger that they check (../ledger/rfc5044.yaml and others).
//
// A case scripts the peer of a queue pair: see [conn] for established connections,
// [handshake] for the MPA start-up step by step, and [host] for listening and dialing. The
// package is written from the RFCs, and shares no code with an implementation.
package iwarp

import (
	"path"
	"slices"
	"strings"

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

// cite names the rows of the ledger that a case covers. The first, as in "rfc5041/4.1/8", names
// document and section.
func cite(rows ...string) conformance.Cite {
	doc, section, _ := strings.Cut(path.Dir(rows[0]), "/")
	return citeSection(strings.Replace(doc, "rfc", "RFC ", 1), section, rows...)
}

// citeSection is cite for a section that is not that of the first row.
func citeSection(doc, section string, rows ...string) conformance.Cite {
	return conformance.Cite{Doc: doc, Section: section, Rows: rows}
}
