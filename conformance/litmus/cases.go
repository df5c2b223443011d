package litmus

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// requirement is a litmus test that a transport must pass, with its citation.
type requirement struct {
	Test
	section string
	rows    []string
	level   conformance.Level
	defects []string
}

func cases(prefix, doc string, c conformance.Case, all []requirement) []conformance.Case {
	made := make([]conformance.Case, len(all))
	for i, a := range all {
		k := c
		k.Cite = conformance.Cite{Doc: doc, Section: a.section, Rows: a.rows}
		if a.section == "" && doc == rfc5040 {
			k.Cite.Section = "5.5"
		}
		k.Level, k.Defects = a.level, a.defects
		made[i] = a.Case(prefix, k)
	}
	return made
}

const (
	ibta    = "IBTA"
	rfc5040 = "RFC 5040"
	rfc7306 = "RFC 7306"
)

// RoCE returns the cases for RoCE. The responder executes the requests of a queue pair in
// order, except that an unfenced SEND, WRITE or atomic may overtake an earlier READ or
// atomic.
func RoCE() []conformance.Case {
	return cases("litmus/roce/", ibta, conformance.Case{Needs: verbs.CapRC, Labels: []string{"service:rc"}}, []requirement{
		{writeThenRead, "10.8.3.3", []string{"roce/rc/psn/8"}, conformance.Must, []string{"LatePlacement"}},
		{writeThenWrite, "10.8.3.3", []string{"roce/rc/psn/8"}, conformance.Must, []string{"LatePlacement"}},
		{sendBehindWrites, "", []string{"roce/rc/wr/6", "roce/rc/psn/8", "roce/cq/10"}, conformance.Must, []string{"LatePlacement", "EarlyExecution"}},
		{fencedWriteBehindRead, "10.8.3.3", []string{"roce/cq/3"}, conformance.Must, []string{"FenceIgnored"}},
		{fencedAddBehindRead, "10.8.3.3", []string{"roce/cq/3"}, conformance.Must, []string{"FenceIgnored"}},
		{addBehindWrite, "10.8.3.3", []string{"roce/rc/psn/8"}, conformance.Must, []string{"LatePlacement", "DuplicatesExecuted"}},
		{readBehindAdd, "10.8.3.3", []string{"roce/rc/atm/4"}, conformance.Must, []string{"DuplicatesExecuted"}},
		{completionBehindRead, "", []string{"roce/cq/1", "roce/cq/10"}, conformance.Must, []string{"CompletionsOvertake", "AckSkipsRead"}},
		{readsInOrder, "10.8.3.3", []string{"roce/rc/ack/5"}, conformance.Must, []string{"AckSkipsRead"}},
		{concurrentAdds, "", []string{"roce/rc/atm/9"}, conformance.Must, []string{"AtomicsPerQP"}},
		{concurrentSwaps, "", []string{"roce/rc/atm/1", "roce/rc/atm/9"}, conformance.Must, []string{"AtomicsPerQP", "AtomicsWrong"}},
	})
}

// IWARP returns the cases for iWARP. RDMAP guarantees that a Read sees the Writes before
// it, that completions and Sends are in order, and that atomics and Reads are executed in
// order; an unfenced Write may overtake a Read.
func IWARP() []conformance.Case {
	c := conformance.Case{Needs: verbs.CapRC | verbs.CapCM, Labels: []string{"service:rc"}}
	return append(cases("litmus/iwarp/", rfc5040, c, []requirement{
		{writeThenRead, "", []string{"rfc5040/5.5/3"}, conformance.Must, []string{"WritesPlacedLate"}},
		{writeThenWrite, "5.1", []string{"rfc5040/5.1/2"}, conformance.Must, []string{"LIFOQueue"}},
		{sendBehindWrites, "", []string{"rfc5040/5.5/1"}, conformance.Must, []string{"LIFOQueue"}},
		{fencedWriteBehindRead, "", []string{"rfc5040/5.5/10"}, conformance.Should, []string{"FenceIgnored"}},
		{completionBehindRead, "", []string{"rfc5040/5.5/6", "rfc5040/5.5/7"}, conformance.Must, []string{"SendsOvertake", "CompletesEarly"}},
		{readsInOrder, "", []string{"rfc5040/5.5/8"}, conformance.Must, []string{"CompletesEarly"}},
	}), cases("litmus/iwarp/", rfc7306, c, []requirement{
		{readBehindAdd, "5.4", []string{"rfc7306/5.4/3"}, conformance.Must, []string{"SmallReadsFirst", "AtomicTorn"}},
		{concurrentAdds, "5", []string{"rfc7306/5/2"}, conformance.Must, []string{"AtomicTorn"}},
		{concurrentSwaps, "5", []string{"rfc7306/5/2"}, conformance.Must, []string{"AtomicTorn"}},
	})...)
}

// DatagramIWARP returns the cases for reliable datagrams, which deliver RDMAP messages in
// order between two queue pairs.
func DatagramIWARP() []conformance.Case {
	c := conformance.Case{
		Needs: verbs.CapUD | verbs.CapRD, Labels: []string{"service:rd"},
		Setup: conformance.Setup{Reliable: true},
	}
	return cases("litmus/dg/", "datagram-iWARP", c, []requirement{
		{writeThenRead, "7.2", []string{"dg/ack/1"}, conformance.Must, []string{"DeliversAsTheyCome"}},
		{writeThenWrite, "7.2", []string{"dg/ack/1"}, conformance.Must, []string{"DeliversAsTheyCome"}},
		{sendBehindWrites, "7.2", []string{"dg/ack/1"}, conformance.Must, []string{"DeliversAsTheyCome"}},
		{fencedWriteBehindRead, "7.7", []string{"dg/rdmap/2"}, conformance.Must, []string{"FenceIgnored"}},
		{addBehindWrite, "7.2", []string{"dg/ack/1"}, conformance.Must, []string{"DeliversAsTheyCome"}},
		{completionBehindRead, "7.2", []string{"dg/ack/8"}, conformance.Must, []string{"DeliversAsTheyCome", "RDCompletesAtOnce"}},
		{concurrentAdds, "7.7", []string{"dg/rdmap/2"}, conformance.Must, []string{"DeliversAsTheyCome"}},
		{concurrentSwaps, "7.7", []string{"dg/rdmap/2"}, conformance.Must, []string{"DeliversAsTheyCome", "AtomicOperandsSwapped"}},
	})
}
