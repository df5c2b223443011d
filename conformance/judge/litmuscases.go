package judge

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// requirement is a litmus test that a transport must pass, with its citation.
type requirement struct {
	litmusTest
	section string
	rows    []string // requirement IDs
	level   conformance.Level
	defects []string
}

// litmusCases returns a case for each requirement of a document: a copy of c with the test,
// citation, level and defects (to be detected) of the requirement. The IDs begin with prefix.
func litmusCases(prefix, doc string, c conformance.Case, all []requirement) []conformance.Case {
	cases := make([]conformance.Case, len(all))
	for i, r := range all {
		filled := c
		filled.Cite = conformance.Cite{Doc: doc, Section: r.section, Rows: r.rows}
		filled.Level, filled.Defects = r.level, r.defects
		cases[i] = r.Case(prefix, filled)
	}
	return cases
}

const (
	rfc5040 = "RFC 5040"
	rfc7306 = "RFC 7306"
)

// litmusRoCE returns the litmus (memory ordering) cases for RoCE. The responder executes the
// requests of a queue pair in order, except that an unfenced SEND, WRITE or atomic may overtake an
// earlier READ or atomic.
func litmusRoCE() []conformance.Case {
	c := conformance.Case{Needs: verbs.CapRC, Labels: []string{"service:rc"}}
	cite := conformance.Cite{Doc: conformance.IBTA, Rows: []string{"roce/rc/atm/9", "roce/rc/atm/4"}}
	return append(litmusCases("litmus/roce/", conformance.IBTA, c, []requirement{ // test, section, requirement IDs, level, defects
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
	}), atomicsCase("roce", cite, c, "AtomicsPerQP", "AtomicsWrong", "DuplicatesExecuted"))
}

// litmusIWARP returns the litmus (memory ordering) cases for iWARP. RDMAP guarantees that a Read
// sees the Writes before it, that completions and Sends are in order, and that atomics and Reads
// are executed in order; an unfenced Write may overtake a Read. With the defect LIFOQueue, requests
// that are posted in one call are sent in reverse order.
func litmusIWARP() []conformance.Case {
	c := conformance.Case{Needs: verbs.CapRC | verbs.CapCM, Labels: []string{"service:rc"}}
	cite := conformance.Cite{Doc: rfc7306, Section: "5", Rows: []string{"rfc7306/5/2", "rfc7306/5.1.1/3", "rfc7306/5.1.2/2"}}
	return slices.Concat(litmusCases("litmus/iwarp/", rfc5040, c, []requirement{ // test, section, requirement IDs, level, defects
		{writeThenRead, "5.5", []string{"rfc5040/5.5/3"}, conformance.Must, []string{"WritesPlacedLate"}},
		{writeThenWrite, "5.1", []string{"rfc5040/5.1/2"}, conformance.Must, []string{"LIFOQueue"}},
		{sendBehindWrites, "5.5", []string{"rfc5040/5.5/1"}, conformance.Must, []string{"LIFOQueue"}},
		{fencedWriteBehindRead, "5.5", []string{"rfc5040/5.5/10"}, conformance.Should, []string{"FenceIgnored"}},
		{completionBehindRead, "5.5", []string{"rfc5040/5.5/6", "rfc5040/5.5/7"}, conformance.Must, []string{"SendsOvertake", "CompletesEarly"}},
		{readsInOrder, "5.5", []string{"rfc5040/5.5/8"}, conformance.Must, []string{"CompletesEarly"}},
	}), litmusCases("litmus/iwarp/", rfc7306, c, []requirement{
		{readBehindAdd, "5.4", []string{"rfc7306/5.4/3"}, conformance.Must, []string{"SmallReadsFirst", "AtomicTorn"}},
		{concurrentAdds, "5", []string{"rfc7306/5/2"}, conformance.Must, []string{"AtomicTorn"}},
		{concurrentSwaps, "5", []string{"rfc7306/5/2"}, conformance.Must, []string{"AtomicTorn"}},
	}), []conformance.Case{atomicsCase("iwarp", cite, c, "AtomicTorn", "AtomicReturnsNew", "SwapsAlways")})
}

// litmusDatagramIWARP returns the litmus (memory ordering) cases for reliable datagrams, which
// deliver RDMAP messages in order between two queue pairs.
func litmusDatagramIWARP() []conformance.Case {
	c := conformance.Case{
		Needs: verbs.CapUD | verbs.CapRD, Labels: []string{"service:rd"},
		Setup: conformance.Setup{Reliable: true},
	}
	cite := conformance.Cite{Doc: "datagram-iWARP", Section: "7.7", Rows: []string{"dg/rdmap/2", "dg/ack/1"}}
	return append(litmusCases("litmus/dg/", cite.Doc, c, []requirement{ // test, section, requirement IDs, level, defects
		{writeThenRead, "7.2", []string{"dg/ack/1"}, conformance.Must, []string{"DeliversAsTheyCome"}},
		{writeThenWrite, "7.2", []string{"dg/ack/1"}, conformance.Must, []string{"DeliversAsTheyCome"}},
		{sendBehindWrites, "7.2", []string{"dg/ack/1"}, conformance.Must, []string{"DeliversAsTheyCome"}},
		{fencedWriteBehindRead, "7.7", []string{"dg/rdmap/2"}, conformance.Must, []string{"FenceIgnored"}},
		{addBehindWrite, "7.2", []string{"dg/ack/1"}, conformance.Must, []string{"DeliversAsTheyCome"}},
		{completionBehindRead, "7.2", []string{"dg/ack/8"}, conformance.Must, []string{"DeliversAsTheyCome", "RDCompletesAtOnce"}},
		{concurrentAdds, "7.7", []string{"dg/rdmap/2"}, conformance.Must, []string{"DeliversAsTheyCome"}},
		{concurrentSwaps, "7.7", []string{"dg/rdmap/2"}, conformance.Must, []string{"DeliversAsTheyCome", "AtomicOperandsSwapped"}},
	}), atomicsCase("dg", cite, c, "DeliversAsTheyCome", "RDCompletesAtOnce", "AtomicOperandsSwapped"))
}

// atomicsCase returns c filled in as the case about the linearizability of atomics.
func atomicsCase(transport string, cite conformance.Cite, c conformance.Case, defects ...string) conformance.Case {
	c.Cite, c.Needs = cite, c.Needs|verbs.CapAtomics
	c.ID = "linear/" + transport + "/atomics-of-many-queue-pairs"
	c.Title = "The atomics on a word are linearizable"
	c.Level = conformance.Must
	c.Sends = "fetch-and-adds and compare-and-swaps on three words of each of two devices, by four queue pairs of either at a time, over a network that loses and repeats packets"
	c.Expects = "a linear order of the atomics on each word that explains all results"
	c.Defects = defects
	c.Run = runAtomics
	return c
}

// schedule holds the random choices of one run of a test.
type schedule struct {
	// active is the host whose queue pairs access the other's memory.
	active int
	fences bool
	path   conformance.Path
	// batched: the requests of a thread are posted in one call. Otherwise there is a
	// pause before each.
	batched []bool
	pauses  [][]time.Duration
}

// String describes the schedule for a report. s.active 0: the device under test is the requester.
func (s *schedule) String() string {
	text := "the device is the requester"
	if s.active == 1 {
		text = "the device is the responder"
	}
	if !s.fences {
		text += ", without fences"
	}
	if s.path != (conformance.Path{}) {
		text += fmt.Sprintf(", %d ppm loss, %d ppm duplicates, %v jitter", s.path.LossPPM, s.path.DuplicatePPM, s.path.Jitter)
	}
	return text
}

// Impairments that schedules use in turn. The loss rates are low enough that no request
// exceeds its retries: eight losses in a row have a probability of 1e-8.
//
// InfiniBand fabrics, and networks for RoCE, neither reorder nor duplicate packets of a connection.
// A requester may take a duplicate of an earlier READ response for a later one, and the
// specification promises nothing then. Reliable datagrams have to work on networks that do both.
var (
	orderedPaths = []conformance.Path{
		{},
		{LossPPM: 50_000},
		{LossPPM: 50_000, Jitter: 20 * time.Microsecond, KeepOrder: true},
		{LossPPM: 20_000, Jitter: 100 * time.Microsecond, KeepOrder: true},
	}
	datagramPaths = []conformance.Path{
		{},
		{LossPPM: 50_000},
		{Jitter: 10 * time.Microsecond},
		{LossPPM: 30_000, DuplicatePPM: 200_000, Jitter: 20 * time.Microsecond},
	}
)

// maxPause is the longest pause before a request.
const maxPause = 20 * time.Microsecond

// draw returns schedule number i, and sets the impairments of the path, if the network allows it.
// The requester (active), the use of fences and the path alternate with i. Whether a thread posts
// its requests in one call (batched), and the pauses, are random.
func (l *litmus) draw(i int) *schedule {
	rand := l.pair.DUT.Rand
	s := &schedule{active: i % 2, fences: !l.omitsFences() || i/2%2 == 0}
	paths := orderedPaths
	if l.pair.DUT.Caps.Has(verbs.CapRD) {
		paths = datagramPaths
	}
	if s.path = paths[i/4%len(paths)]; !l.pair.SetPath(s.path) {
		s.path = conformance.Path{}
	}
	for _, th := range l.Threads {
		s.batched = append(s.batched, rand.IntN(2) == 0)
		pauses := make([]time.Duration, len(th))
		for k := range pauses {
			pauses[k] = time.Duration(rand.Int64N(int64(maxPause)))
		}
		s.pauses = append(s.pauses, pauses)
	}
	return s
}
