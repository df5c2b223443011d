// Package verbsapi contains the conformance cases of the verbs API: the behaviour on which an
// application may rely over every transport. They use the device under test and a partner of the
// same kind through verbs only, and see no packets. Files are named after the section of the
// ledger (../ledger/verbs.yaml).
//
// The same cases run on every device. Differences between transports depend on
// [verbs.DeviceInfo].Transport and the capabilities, never on the name of the provider:
// queue pairs are connected by ibv_modify_qp over InfiniBand and by the connection
// manager over iWARP, and devices without connections use datagrams. See [qpPair].
//
// Misuse that libibverbs leaves undefined is an error in package verbs. A case expects a
// particular error only if that package or a manual page names it.
package verbsapi

import (
	"cmp"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
)

// Suite returns the conformance suite of the verbs API. A case without a Sends text sends nothing.
func Suite() *conformance.Suite {
	cases := slices.Concat(
		deviceCases, limitCases, domainCases, regionCases, regionPeerCases, windowCases, windowPeerCases,
		invalidateCases, cqCases, channelCases, qpCases, transitionCases, postCases, signalCases, wcCases, atomicCases,
		sharedCases, sharedPeerCases, addressCases, xrcCases, asyncCases, asyncPeerCases,
		listenCases, cmCases, cmLifeCases, cmOtherCases, closingCases, taskCases,
		objectDialogueCases, queueDialogueCases, regionDialogueCases, windowDialogueCases,
		hazardDialogueCases, accessEventDialogueCases, trafficDialogueCases,
	)
	for i := range cases {
		cases[i].Sends = cmp.Or(cases[i].Sends, "nothing")
	}
	return &conformance.Suite{
		Name: "verbs", Title: "The verbs API", Cases: conformance.Group{}.Cases(cases),
		DescribeEvent: func(e *conformance.Event) string { return e.Text }, // the record has only notes
	}
}

// cite cites a manual page of rdma-core ("ibv_..." or "rdma_..."), the documentation of package
// verbs, or else a section or compliance statement of IBTA. rows are the IDs of the requirements
// that the case covers, which are rows of the ledger.
func cite(where string, rows ...string) conformance.Cite {
	doc := conformance.IBTA
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
