// Package suites lists the conformance suites of each protocol. Add a new suite here: the
// command, the specs and the ledger use this list.
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

// Of returns the suites for devices of a protocol.
func Of(p conformance.Protocol) []*conformance.Suite {
	switch p {
	case conformance.RoCE:
		return []*conformance.Suite{roceSuite(), verbsapi.Suite()}
	case conformance.IWARP:
		return []*conformance.Suite{iwarpSuite(), verbsapi.Suite()}
	case conformance.DatagramIWARP:
		return []*conformance.Suite{dgiwarpSuite(), verbsapi.Suite()}
	default:
		return nil
	}
}

// All returns every suite once.
func All() []*conformance.Suite {
	return []*conformance.Suite{roceSuite(), iwarpSuite(), dgiwarpSuite(), verbsapi.Suite()}
}

// The suite of a protocol also has cases of recovery times, counters and memory ordering.

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
