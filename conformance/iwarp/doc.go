// Package iwarp has the cases of iWARP over TCP: MPA and its enhanced start-up, DDP,
// RDMAP and its extensions. They are in files named after document and section of the
// ledger that they check (../ledger/rfc5044.yaml and others).
//
// A case scripts the peer of a queue pair: see [conn] for established connections,
// [handshake] for the MPA start-up step by step, and [host] for listening and dialing. The
// package is written from the RFCs, and shares no code with an implementation.
package iwarp

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Suite returns the cases.
func Suite() *conformance.Suite {
	return &conformance.Suite{
		Name: "iwarp", Title: "iWARP: MPA, DDP and RDMAP over TCP", DescribeEvent: describeEvent,
		Cases: conformance.Group{Needs: needsConn}.Cases(slices.Concat(
			mpaFPDUCases, mpaMarkerCases, mpaCRCCases, mpaSegmentCases, mpaFrameCases, mpaOrderCases, mpaTimerCases, mpaErrorCases,
			enhancedFrameCases, enhancedResponderCases, enhancedInitiatorCases, enhancedRTRTakenCases, registryCases,
			ddpHeaderCases, ddpSegmentCases, ddpUntaggedCases, ddpTaggedCases, ddpReportCases, ddpProtectionCases,
			rdmapHeaderCases, rdmapTerminateCases, rdmapWriteReadCases, rdmapSendCases, rdmapStreamCases, rdmapCheckCases,
			rdmapxMessageCases, rdmapxOperationCases, rdmapxAtomicCases, rdmapxImmediateCases,
			securityCases, counterCases, dialogueCases, startupDialogueCases,
		)),
	}
}

// needsConn are the capabilities that every case needs.
const needsConn = verbs.CapRC | verbs.CapCM

// cite names the requirements in ../ledger that a case covers. The first, as in "rfc5041/4.1/8",
// names document and section.
func cite(requirements ...string) conformance.Cite {
	doc, section, _ := strings.Cut(path.Dir(requirements[0]), "/")
	return citeSection(strings.Replace(doc, "rfc", "RFC ", 1), section, requirements...)
}

// citeSection names the requirements that a case covers, with a document and section of its own.
func citeSection(doc, section string, requirements ...string) conformance.Cite {
	return conformance.Cite{Doc: doc, Section: section, Rows: requirements}
}

// describeEvent formats a recorded event. Stream 0 holds raw TCP packets, others octets.
func describeEvent(e *conformance.Event) string {
	text := e.Text
	switch e.Kind {
	case conformance.EventSent, conformance.EventReceived:
		if e.Stream == 0 {
			return describeTCPSegment(e.Data)
		}
		text = describeOctets(e.Data)
	case conformance.EventSentFIN, conformance.EventReceivedFIN:
		text = "FIN"
	case conformance.EventReset:
		text = "RST"
	}
	if e.Stream > 1 {
		text = fmt.Sprintf("(stream %d) %s", e.Stream, text)
	}
	return text
}

// describeTCPSegment formats a raw TCP packet.
func describeTCPSegment(packet []byte) string {
	text, octets, ok := wire.DescribeTCP(packet)
	switch {
	case !ok:
		return fmt.Sprintf("%d bytes that are no TCP segment", len(packet))
	case len(octets) == 0:
		return text
	}
	return text + ": " + describeOctets(octets)
}

// describeOctets formats octets of a stream as start-up frames or FPDUs. Their position in the
// stream is unknown: it tries to parse them without markers, and then with markers at every
// possible position.
func describeOctets(b []byte) string {
	if bytes.HasPrefix(b, []byte(iwarp.KeyRequest[:7])) { // the key of a Reply begins alike
		s, rest, ok := iwarp.ParseStartupFrame(b)
		switch {
		case !ok:
			return fmt.Sprintf("%d octets of a start-up frame", len(b))
		case len(rest) > 0:
			return s.String() + " | " + describeOctets(rest)
		}
		return s.String()
	}
	if text, ok := describeFPDUs(b, iwarp.Deframer{}); ok {
		return text
	}
	for at := uint64(0); at < 512; at += 4 {
		if text, ok := describeFPDUs(b, iwarp.Deframer{Markers: true, Position: at}); ok {
			return text + " (with markers)"
		}
	}
	return fmt.Sprintf("%d octets: % x", len(b), head(b))
}

// describeFPDUs formats octets that are whole FPDUs, with d as the deframer; false if they are not.
func describeFPDUs(b []byte, d iwarp.Deframer) (string, bool) {
	var frames []string
	d.Feed(b)
	for {
		g, ok := d.Next()
		if !ok {
			break
		}
		wrongMarker := slices.ContainsFunc(g.Markers, func(m iwarp.Marker) bool { return m.Ptr != m.Want || m.Reserved != 0 })
		plausible := iwarp.Val(g.DDP.Version) == 1 || iwarp.Val(g.MPA.CRCStatus) == iwarp.CRCCorrect
		if g.Verbatim != nil || wrongMarker || !plausible {
			return "", false
		}
		frames = append(frames, g.String())
	}
	return strings.Join(frames, " | "), len(d.Pending()) == 0 && len(frames) > 0
}
