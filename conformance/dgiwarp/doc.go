// Package dgiwarp has the cases of datagram-iWARP (docs/spec/datagram-iwarp.md): UD and
// RD queue pairs over UDP. They are in files named after the section of the document
// that they check, as the ledger is (../ledger/datagram-iwarp.yaml).
//
// A case plays a queue pair at the other end of the wire by hand: see [peer] for one
// that talks with a queue pair of the device, and [host] for what is before. All of it
// is written from the document; it shares nothing with a stack.
package dgiwarp

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Suite returns the cases.
func Suite() *conformance.Suite {
	return &conformance.Suite{
		Name: "dgiwarp", Title: "Datagram-iWARP: DDP and RDMAP over UDP", DescribeEvent: describeEvent,
		Cases: slices.Concat(
			packetCases, pathCases, addressCases, groupCases,
			udSendCases, udReceiveCases, taggedCases, recordCases, errorCases,
			errorRDCases, startSenderCases, startReceiverCases, ackReceiverCases, ackSenderCases,
			lossCases, busyCases, congestionCases, idleCases, rdmapCases, flowCheckCases, verbsCases,
		),
	}
}

// What cases need: queue pairs of UD, or those of RD, which verbs call UD as well.
const (
	needsUD = verbs.CapUD
	needsRD = verbs.CapUD | verbs.CapRD
)

// setupRD has the device's queue pairs be those of RD.
var setupRD = conformance.Setup{Reliable: true}

// Labels of the services.
var (
	labelUD = []string{"service:ud"}
	labelRD = []string{"service:rd"}
	// labelSlow is for cases of RD that wait for its long timers.
	labelSlow = []string{"service:rd", conformance.Slow}
)

// cite names a section of the document and the rows of the ledger that a case covers.
func cite(section string, rows ...string) conformance.Cite {
	return conformance.Cite{Doc: "datagram-iWARP", Section: section, Rows: rows}
}

// describeEvent tells an event in a few words.
func describeEvent(e *conformance.Event) string {
	if e.Kind != conformance.EventSent && e.Kind != conformance.EventReceived {
		return e.Text
	}
	a, ok := parseFrame(conformance.Frame{Packet: e.Data})
	if !ok {
		return "no datagram of UDP"
	}
	words := a.Packet.String()
	for _, odd := range a.Odd {
		words += " (" + odd + ")"
	}
	return words
}
