package workload

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// journal keeps what a rank's program has seen, and tells the launcher of it
// now and then.
type journal struct {
	rank   *Rank
	before []verbs.Counter

	resentBefore uint64

	failures     []Failure
	failureCount int
	violations   []Violation
	unsaid       int // violations beyond MaxViolations
	reconnects   int
	checked      int64

	messages, bytes uint64 // delivered to this rank
	first, last     time.Duration
	began           bool
	marks           int
	samples         sampler
}

// MaxViolations is how many violations a Report describes.
const MaxViolations = 32

// maxMarks keeps a rank that fails and recovers without end from filling the
// record.
const maxMarks = 500

func newJournal(r *Rank) *journal {
	j := &journal{rank: r}
	j.before, j.resentBefore = j.counters(), j.resent()
	return j
}

// counters sums what the devices have counted, by name.
func (j *journal) counters() (sum []verbs.Counter) {
	index := map[string]int{}
	for i := range j.rank.NICs {
		for _, c := range j.rank.NICs[i].Device.Counters() {
			at, ok := index[c.Name]
			if !ok {
				at = len(sum)
				index[c.Name] = at
				sum = append(sum, verbs.Counter{Name: c.Name})
			}
			sum[at].Value += c.Value
		}
	}
	return sum
}

// since is what was counted meanwhile.
func (j *journal) since() []verbs.Counter {
	before := make(map[string]uint64, len(j.before))
	for _, c := range j.before {
		before[c.Name] = c.Value
	}
	now := j.counters()
	for i := range now {
		now[i].Value -= before[now[i].Name]
	}
	return now
}

// resentCounters are where devices count packets sent again: each has one of them
// at most.
var resentCounters = []string{"retransmitted_pkts", "rd_sent_again"}

// resent sums that counter alone: it is asked for often.
func (j *journal) resent() (sum uint64) {
	for i := range j.rank.NICs {
		for _, c := range j.rank.NICs[i].Device.Counters() {
			if slices.Contains(resentCounters, c.Name) {
				sum += c.Value
				break
			}
		}
	}
	return sum
}

func (j *journal) violation(kind ViolationKind, format string, args ...any) {
	if len(j.violations) == MaxViolations {
		j.unsaid++
		return
	}
	j.violations = append(j.violations, Violation{kind, fmt.Sprintf(format, args...)})
}

// failed notes a completion with an error.
func (j *journal) failed(at time.Duration, peer, rail int, status verbs.WCStatus) {
	j.failureCount++
	if len(j.failures) < MaxFailures {
		j.failures = append(j.failures, Failure{At: at, Peer: peer, Rail: rail, Status: status.String()})
	}
	j.mark("%v with %s", status, hostOf(peer))
}

// hostOf is what the host of a rank is called.
func hostOf(rank int) string { return fmt.Sprintf("host%d", rank) }

func (j *journal) mark(format string, args ...any) {
	if j.marks++; j.marks <= maxMarks {
		j.rank.Control.Mark(fmt.Sprintf(format, args...))
	}
}

// posted notes the time of the first request.
func (j *journal) posted(now time.Duration) {
	if !j.began {
		j.began, j.first = true, now
		j.last = now
	}
}

// arrived counts messages.
func (j *journal) arrived(now time.Duration, messages, bytes int) {
	if j.messages == 0 && messages > 0 {
		j.mark("first data")
	}
	j.messages += uint64(messages)
	j.bytes += uint64(bytes)
	j.last = now
}

// sample tells the launcher how far things are, if it is time to.
func (j *journal) sample(now time.Duration) {
	if j.samples.due(now, j.messages, j.failureCount, j.rank.Concurrent) {
		j.tell(now)
	}
}

func (j *journal) tell(now time.Duration) {
	resent := j.resent() - j.resentBefore
	j.rank.Control.Sample(Sample{At: now, Messages: j.messages, Bytes: j.bytes, Retransmits: resent, Errors: uint64(j.failureCount)})
}

// report is what the journal knows.
func (j *journal) report() *Report {
	r := &Report{
		Rank: j.rank.Rank, Elapsed: max(0, j.last-j.first),
		Failures: j.failures, FailureCount: j.failureCount, Reconnects: j.reconnects,
		Violations: j.violations, MemoryChecked: j.checked, Counters: j.since(),
	}
	if j.unsaid > 0 {
		r.Violations = append(r.Violations, Violation{Omitted, fmt.Sprintf("and %d more like these", j.unsaid)})
	}
	return r
}

// sampler decides when to sample: about a hundred times in a run, whether that
// takes microseconds of virtual time or minutes.
type sampler struct {
	step     uint64        // messages from one sample to the next
	gap      time.Duration // at most this long without one
	taken    int
	stalled  bool   // nothing had come between the last two samples
	messages uint64 // at the last sample
	errors   int
	at       time.Duration
}

const (
	wantSamples = 80
	maxSamples  = 160
	firstGap    = 50 * time.Microsecond // in virtual time
	realGap     = 20 * time.Millisecond // shorter ones would be felt
)

// expect says how many messages the rank will receive, or send if it receives
// none.
func (s *sampler) expect(messages int) { s.step = max(1, uint64(messages)/wantSamples) }

func (s *sampler) due(now time.Duration, messages uint64, errors int, concurrent bool) bool {
	if s.gap == 0 {
		s.gap = firstGap
		if concurrent {
			s.gap = realGap
		}
	}
	since := now - s.at
	if concurrent && since < realGap {
		return false
	}
	// The first message after a lull is when things have recovered.
	recovered := s.stalled && messages > s.messages
	if since < s.gap && messages < s.messages+s.step && !recovered && (errors == s.errors || s.taken >= maxSamples) {
		return false
	}
	s.stalled = messages == s.messages
	// A run that goes on for longer than thought is sampled less and less often.
	if s.taken++; s.taken%(maxSamples/4) == 0 {
		s.gap *= 4
		if s.taken >= maxSamples {
			s.step *= 4
		}
	}
	s.at, s.messages, s.errors = now, messages, errors
	return true
}
