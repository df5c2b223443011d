// Package suites lists the suites that there are, and which kinds of devices each is
// for. It is where a new suite is made known: the command, the specs and the ledger
// find it here.
package suites

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/counters"
	"github.com/fabrictest/fabrictest/conformance/dgiwarp"
	"github.com/fabrictest/fabrictest/conformance/iwarp"
	"github.com/fabrictest/fabrictest/conformance/litmus"
	"github.com/fabrictest/fabrictest/conformance/recovery"
	"github.com/fabrictest/fabrictest/conformance/roce"
	"github.com/fabrictest/fabrictest/conformance/verbsapi"
)

// Protocol is what a device talks on its wire.
type Protocol string

// The protocols.
const (
	RoCE          Protocol = "roce"
	IWARP         Protocol = "iwarp"
	DatagramIWARP Protocol = "dgiwarp"
)

// ProtocolOf returns the protocol of the devices of a provider.
func ProtocolOf(provider string) Protocol {
	return map[string]Protocol{"softroce": RoCE, "softiwarp": IWARP, "dgiwarp": DatagramIWARP}[provider]
}

// Of returns the suites that devices of a protocol are judged by.
func Of(p Protocol) []*conformance.Suite {
	switch p {
	case RoCE:
		return []*conformance.Suite{roceSuite(), verbsapi.Suite()}
	case IWARP:
		return []*conformance.Suite{iwarpSuite(), verbsapi.Suite()}
	case DatagramIWARP:
		return []*conformance.Suite{dgiwarpSuite(), verbsapi.Suite()}
	default:
		return nil
	}
}

// All returns every suite once.
func All() []*conformance.Suite {
	return []*conformance.Suite{roceSuite(), iwarpSuite(), dgiwarpSuite(), verbsapi.Suite()}
}

// The suites of the protocols have, behind what single packets tell, cases about many
// of them: what is measured, what is counted, and what is seen in which order.

func roceSuite() *conformance.Suite {
	return with(roce.Suite(), recovery.Cases(), counters.RoCE(), litmus.RoCE(), litmus.AtomicsRoCE())
}

func iwarpSuite() *conformance.Suite {
	return with(iwarp.Suite(), counters.IWARP(), litmus.IWARP(), litmus.AtomicsIWARP())
}

func dgiwarpSuite() *conformance.Suite {
	return with(dgiwarp.Suite(), counters.DatagramIWARP(), litmus.DatagramIWARP(), litmus.AtomicsDatagramIWARP())
}

func with(s *conformance.Suite, more ...[]conformance.Case) *conformance.Suite {
	s.Cases = append(s.Cases, slices.Concat(more...)...)
	return s
}
