package judge

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/dgiwarp"
	"github.com/fabrictest/fabrictest/conformance/iwarp"
	"github.com/fabrictest/fabrictest/conformance/litmus"
	"github.com/fabrictest/fabrictest/conformance/roce"
	"github.com/fabrictest/fabrictest/conformance/verbsapi"
)

// SuitesOf returns the suites for devices of a protocol.
func SuitesOf(p conformance.Protocol) []*conformance.Suite {
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

// Suites returns every suite once. Add a new suite here: the command, the specs and the
// ledger use this list.
func Suites() []*conformance.Suite {
	return []*conformance.Suite{roceSuite(), iwarpSuite(), dgiwarpSuite(), verbsapi.Suite()}
}

// The suite of a protocol also has cases of memory ordering.

func roceSuite() *conformance.Suite {
	return with(roce.Suite(), litmus.RoCE(), litmus.AtomicsRoCE())
}

func iwarpSuite() *conformance.Suite {
	return with(iwarp.Suite(), litmus.IWARP(), litmus.AtomicsIWARP())
}

func dgiwarpSuite() *conformance.Suite {
	return with(dgiwarp.Suite(), litmus.DatagramIWARP(), litmus.AtomicsDatagramIWARP())
}

func with(s *conformance.Suite, more ...[]conformance.Case) *conformance.Suite {
	s.Cases = append(s.Cases, slices.Concat(more...)...)
	return s
}
