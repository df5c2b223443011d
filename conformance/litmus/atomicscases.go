package litmus

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// AtomicsRoCE returns the cases for RoCE.
func AtomicsRoCE() []conformance.Case {
	return atomicCases("roce", conformance.Case{
		Cite:  conformance.Cite{Doc: "IBTA", Rows: []string{"roce/rc/atm/9", "roce/rc/atm/4"}},
		Needs: verbs.CapRC | verbs.CapAtomics, Labels: []string{"service:rc"},
	}, "AtomicsPerQP", "AtomicsWrong", "DuplicatesExecuted")
}

// AtomicsIWARP returns the cases for iWARP.
func AtomicsIWARP() []conformance.Case {
	return atomicCases("iwarp", conformance.Case{
		Cite:  conformance.Cite{Doc: "RFC 7306", Section: "5", Rows: []string{"rfc7306/5/2", "rfc7306/5.1.1/3", "rfc7306/5.1.2/2"}},
		Needs: verbs.CapRC | verbs.CapCM | verbs.CapAtomics, Labels: []string{"service:rc"},
	}, "AtomicTorn", "AtomicReturnsNew", "SwapsAlways")
}

// AtomicsDatagramIWARP returns the cases for reliable datagrams.
func AtomicsDatagramIWARP() []conformance.Case {
	return atomicCases("dg", conformance.Case{
		Cite:  conformance.Cite{Doc: "datagram-iWARP", Section: "7.7", Rows: []string{"dg/rdmap/2", "dg/ack/1"}},
		Needs: verbs.CapUD | verbs.CapRD | verbs.CapAtomics, Labels: []string{"service:rd"},
		Setup: conformance.Setup{Reliable: true},
	}, "DeliversAsTheyCome", "RDCompletesAtOnce", "AtomicOperandsSwapped")
}

// atomicCases returns the cases for a transport.
func atomicCases(transport string, c conformance.Case, defects ...string) []conformance.Case {
	c.ID = "linear/" + transport + "/atomics-of-many-queue-pairs"
	c.Title = "The atomics on a word are linearizable"
	c.Level = conformance.Must
	c.Sends = "fetch-and-adds and compare-and-swaps on three words of each of two devices, by four queue pairs of either at a time, over a network that loses and repeats packets"
	c.Expects = "a linear order of the atomics on each word that explains all results"
	c.Defects = defects
	c.Run = runAtomics
	return []conformance.Case{c}
}
