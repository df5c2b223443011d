// Package linear asks whether atomics are atomic: whether, whatever many queue pairs
// do to a word at the same time, there is an order of it all in which each saw what
// the one before had left, and which agrees with what was seen to happen before what.
// That is linearisability, and porcupine decides it.
//
// The device and a partner each have a few words, and queue pairs that work on the
// other's: additions, additions of nothing, which are how a word is read atomically,
// and swaps. The network loses, repeats and delays packets where the bench can have
// it, so that requests are repeated and their answers replayed. What a READ returns
// of a word that atomics work on is not promised to be of one moment, and not asked.
package linear

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// RoCE returns the cases for InfiniBand's transport.
func RoCE() []conformance.Case {
	return cases("roce", conformance.Case{
		Cite:  conformance.Cite{Doc: "IBTA", Rows: []string{"roce/rc/atm/9", "roce/rc/atm/4"}},
		Needs: verbs.CapRC | verbs.CapAtomics, Labels: []string{"service:rc"},
	}, "AtomicsPerQP", "AtomicsWrong", "DuplicatesExecuted")
}

// IWARP returns the cases for iWARP.
func IWARP() []conformance.Case {
	return cases("iwarp", conformance.Case{
		Cite:  conformance.Cite{Doc: "RFC 7306", Section: "5", Rows: []string{"rfc7306/5/2", "rfc7306/5.1.1/3", "rfc7306/5.1.2/2"}},
		Needs: verbs.CapRC | verbs.CapCM | verbs.CapAtomics, Labels: []string{"service:rc"},
	}, "AtomicTorn", "AtomicReturnsNew", "SwapsAlways")
}

// DatagramIWARP returns the cases for reliable datagrams.
func DatagramIWARP() []conformance.Case {
	return cases("dg", conformance.Case{
		Cite:  conformance.Cite{Doc: "datagram-iWARP", Section: "7.7", Rows: []string{"dg/rdmap/2", "dg/ack/1"}},
		Needs: verbs.CapUD | verbs.CapRD | verbs.CapAtomics, Labels: []string{"service:rd"},
		Setup: conformance.Setup{Reliable: true},
	}, "DeliversAsTheyCome", "RDCompletesAtOnce", "AtomicOperandsSwapped")
}

// cases makes the same cases for each transport.
func cases(transport string, c conformance.Case, mutants ...string) []conformance.Case {
	c.ID = "linear/" + transport + "/atomics-of-many-queue-pairs"
	c.Title = "There is one order of all atomics on a word, and each sees what the one before it left"
	c.Level = conformance.Must
	c.Sends = "fetch-and-adds and compare-and-swaps on three words of each of two devices, by four queue pairs of either at a time, over a network that loses and repeats packets"
	c.Expects = "results that can be put in one order for each word"
	c.Mutants = mutants
	c.Run = judge
	return []conformance.Case{c}
}
