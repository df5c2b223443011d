// Package verbsapi has the cases of the verbs API itself: what an application may
// rely on whatever the wire below. They touch the device under test and a partner
// of the same kind over verbs alone, and look at no packet. They are in files named
// after the section of the ledger that they check (../ledger/verbs.yaml).
//
// The same bodies run on every kind of device. What differs between transports is
// asked of the device ([verbs.DeviceInfo].Transport and its capabilities), never of
// the name of its provider, and is argued where it matters: queue pairs are connected
// by hand over InfiniBand's transport and by the connection manager over iWARP, and a
// device without connections talks by datagrams. See [link].
//
// What the manual pages of libibverbs leave to the caller's care, since C cannot catch
// it, is an error here: package verbs says which. A case asks for a particular error
// only where that package, or a manual page, names it.
package verbsapi

import (
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
)

// Suite returns the cases.
func Suite() *conformance.Suite {
	return &conformance.Suite{
		Name: "verbs", Title: "The verbs API", DescribeEvent: describeEvent,
		Cases: slices.Concat(
			deviceCases, limitCases, domainCases, regionCases, regionPeerCases, windowCases, windowPeerCases,
			invalidateCases, cqCases, channelCases, qpCases, transitionCases, postCases, signalCases, wcCases, atomicCases,
			sharedCases, sharedPeerCases, addressCases, xrcCases, asyncCases, asyncPeerCases, cmCases, cmLifeCases,
			closingCases, taskCases,
		),
	}
}

// describeEvent tells an event in a few words. There is nothing else than what the case itself
// notes: it looks at no packet.
func describeEvent(e *conformance.Event) string { return e.Text }

// manual cites a manual page of rdma-core, a section or compliance statement of IBTA
// where the pages rest on it, or package verbs, whose documentation says what a call
// does that C has no counterpart of.
func manual(where string, rows ...string) conformance.Cite {
	doc := "IBTA"
	switch {
	case strings.HasPrefix(where, "ibv_"):
		doc = "libibverbs"
	case strings.HasPrefix(where, "rdma_"):
		doc = "librdmacm"
	case where == packageVerbs:
		doc, where = packageVerbs, ""
	}
	return conformance.Cite{Doc: doc, Section: where, Rows: rows}
}

const packageVerbs = "package verbs"
