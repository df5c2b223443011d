// Package dgiwarp has the cases of datagram-iWARP (docs/spec/datagram-iwarp.md): UD and
// RD queue pairs over UDP. They are in files named after the section of the document
// that they check, as the ledger is (../ledger/datagram-iwarp.yaml).
//
// A case scripts a queue pair at the other end of the wire: see [peer] for one that talks with
// a queue pair of the device, and [host] for sending and receiving packets. The package is
// written from the document, and shares no code with an implementation.
package dgiwarp

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Suite returns the cases of datagram-iWARP. All need a device with UD, those with a reliable setup
// also RD; each has the label of its service.
func Suite() *conformance.Suite {
	cases := conformance.Group{}.Cases(slices.Concat(
		packetCases, addressCases, groupCases,
		udCases, taggedCases, errorCases,
		errorRDCases, startCases, ackCases,
		lossCases, busyCases, congestionCases, idleCases, rdmapCases, verbsCases, counterCases(),
		udDialogueCases, rdDialogueCases, senderDialogueCases,
	))
	for i := range cases {
		c, service := &cases[i], "service:ud"
		c.Needs |= verbs.CapUD
		if c.Setup.Reliable {
			c.Needs |= verbs.CapRD
			service = "service:rd"
		}
		c.Labels = append([]string{service}, c.Labels...)
	}
	return &conformance.Suite{
		Name: "dgiwarp", Title: "Datagram-iWARP: DDP and RDMAP over UDP", DescribeEvent: describeEvent, Cases: cases,
	}
}

// setupRD makes UD queue pairs of the device reliable (RD). They keep the type UD in verbs.
var setupRD = conformance.Setup{Reliable: true}

// overRD is a group of cases about RD.
var overRD = conformance.Group{Setup: setupRD}

// Setups by IP version.
var ipv4, ipv6 = conformance.Setup{Family: 4}, conformance.Setup{Family: 6}

// cite names a section of the document and the rows of the ledger that a case covers.
func cite(section string, rows ...string) conformance.Cite {
	return conformance.Cite{Doc: "datagram-iWARP", Section: section, Rows: rows}
}

// describeEvent formats an event of a case's record. A packet is decoded, with its unusual values
// (Odd) in parentheses.
func describeEvent(e *conformance.Event) string {
	if e.Kind != conformance.EventSent && e.Kind != conformance.EventReceived {
		return e.Text
	}
	a, ok := parseFrame(conformance.Frame{Packet: e.Data})
	if !ok {
		return "no UDP datagram"
	}
	words := a.Packet.String()
	for _, odd := range a.Odd {
		words += " (" + odd + ")"
	}
	return words
}
