// Package roce contains the conformance cases of RoCEv2 and of the InfiniBand transport
// that it carries. Files are named after the section of the ledger (../ledger/roce.yaml):
// rc_psn_responder.go has cases rc/psn/... about responders.
//
// A case scripts the peer of a queue pair packet by packet: see [Conn] for connections
// and [Port] for everything else. It imitates loss by not sending a packet or ignoring a
// received one, and congestion by sending packets with a CE mark. [Measure] measures how a
// device recovers. Helpers whose names begin with expect or check fail the case. The package
// is written from the specification and shares no code with the emulated devices.
package roce

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// Suite returns the conformance suite of RoCEv2: the cases, and the format of recorded events.
func Suite() *conformance.Suite {
	return &conformance.Suite{
		Name: "roce", Title: "RoCEv2 and the InfiniBand transport", DescribeEvent: describeEvent,
		Cases: conformance.Group{}.Cases(slices.Concat(ipCases, udpCases, addressCases, headerDropCases, icrcCases, bthCases, bthKeyCases, lengthCases,
			cmCases, cmAppCases, cmDialogueCases, alternatePathCases,
			sequenceCases, psnCases, psnRequesterCases, ackCases, msnCases, rnrCases, timeoutCases, retryCases, badAnswerCases,
			readCases, readRetryCases,
			atomicCases, atomicWriteCases, flushCases, orderCases,
			writeCases, invalidateCases, sendCases, accessCases, bindCases, windowCases, windowRuleCases,
			ucCases, udCases, udPostCases, udDropCases, multicastCases, srqCases, srqSizeCases, xrcCases,
			qpStateCases, modifyCases, qpCreateCases, sqdCases, errorCases, completionCases, cqCases, eventCases, cnpCases, congestionCases, recoveryCases, counterCases,
			multicastDialogueCases, rcRequesterDialogues, rcResponderDialogueCases, srqDialogueCases, ucReceiverDialogueCases, udDialogueCases, xrcDialogueCases, xrcResponderDialogueCases, cnpDialogueCases, ucSenderDialogueCases, xrcSenderDialogueCases)),
	}
}

// Groups of cases by the service that they use.
var (
	overRC = conformance.Group{Needs: verbs.CapRC, Labels: labelRC}
	overUC = conformance.Group{Needs: verbs.CapUC, Labels: labelUC}
	overCM = conformance.Group{Needs: verbs.CapCM | verbs.CapRC, Labels: labelCM}
	// mostlyRC is for cases that need RC; those about another service have its label.
	mostlyRC = conformance.Group{Needs: verbs.CapRC, DefaultLabels: labelRC}

	labelRC, labelUC = []string{"service:rc"}, []string{"service:uc"}
	labelUD, labelCM = []string{"service:ud"}, []string{"service:cm"}
)

// Setups by IP version.
var ipv4, ipv6 = conformance.Setup{Family: 4}, conformance.Setup{Family: 6}

// describeEvent formats an event as one line.
func describeEvent(e *conformance.Event) string {
	if e.Kind != conformance.EventSent && e.Kind != conformance.EventReceived {
		return e.Text
	}
	p, err := ib.Parse(e.Data)
	if err != nil {
		return p.String() + " (" + err.Error() + ")"
	}
	return p.String()
}
