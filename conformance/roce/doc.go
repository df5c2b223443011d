// Package roce has the cases of RoCEv2 and of the InfiniBand transport that it
// carries. They are in files named after the section of the ledger that they check
// (../ledger/roce.yaml).
//
// A case plays the peer of a queue pair by hand: see [conn] for connections, [port]
// for everything else. All of it is written from the specification; it shares
// nothing with a stack.
package roce

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
)

// Suite returns the cases.
func Suite() *conformance.Suite {
	return &conformance.Suite{
		Name: "roce", Title: "RoCEv2 and the InfiniBand transport", DescribeEvent: line,
		Cases: slices.Concat(ipCases, udpCases, addressCases, icrcCases, icrcFieldCases, bthCases, bthBitCases, bthKeyCases, bthStateCases, bthAnswerCases, lengthCases,
			cmConnectCases, cmRefuseCases, cmEndCases,
			sequenceCases, psnCases, duplicateCases, psnRequesterCases, ackCases, answerCases, msnCases, creditCases, rnrCases, rnrWaitCases, timeoutCases, retryCases, badAnswerCases,
			readCases, readAgainCases, readRetryCases, readAnswerCases,
			atomicCases, atomicReplayCases, atomicPostCases, atomicWriteCases,
			writeCases, immediateCases, invalidateCases, sendCases, accessCases, rightsCases, bindCases, windowCases,
			ucCases, ucLossCases, udCases, udPostCases, udDropCases, multicastCases, srqCases, srqSizeCases, xrcCases,
			qpStateCases, modifyCases, qpCreateCases, sqdCases, errorCases, completionCases, cqCases, eventCases, cnpCases, congestionCases),
	}
}

// line tells an event in a few words.
func line(e *conformance.Event) string {
	if e.Kind != conformance.EventSent && e.Kind != conformance.EventReceived {
		return e.Text
	}
	p, err := ib.Parse(e.Data)
	switch {
	case err != nil:
		return p.String() + " (" + err.Error() + ")"
	case p.CheckICRC() != nil:
		return p.String() + ", wrong ICRC"
	}
	return p.String()
}
