package workload

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// eventLog records the events of a rank's program for its report, and sends samples and
// marks to the launcher.
type eventLog struct {
	rank           *Rank
	countersBefore []verbs.Counter

	retransmitsBefore uint64

	failures     []Failure
	failureCount int
	violations   []Violation
	omitted      int // violations beyond MaxViolations
	reconnects   int
	checked      int64

	messages, bytes uint64 // received by this rank
	first, last     time.Duration
	started         bool
	marks           int
	samples         sampler
}

// MaxViolations limits the violations in a Report.
const MaxViolations = 32

// maxMarks limits the marks of a rank that fails and recovers without end.
const maxMarks = 500

func newEventLog(r *Rank) *eventLog {
	j := &eventLog{rank: r}
	j.countersBefore, j.retransmitsBefore = SumCounters(r.NICs), j.retransmits()
	return j
}

// SumCounters returns the sums of the counters of NICs, by name in the order of their first occurrence.
func SumCounters(nics []NIC) (sums []verbs.Counter) {
	index := map[string]int{}
	for i := range nics {
		for _, c := range nics[i].Device.Counters() {
			at, known := index[c.Name]
			if !known {
				at = len(sums)
				index[c.Name] = at
				sums = append(sums, verbs.Counter{Name: c.Name})
			}
			sums[at].Value += c.Value
		}
	}
	return sums
}

// retransmitCounters are the names of the retransmission counter; each device has at most
// one.
var retransmitCounters = []string{"retransmitted_pkts", "rd_sent_again"}

// retransmits returns the sum of the NICs' retransmission counters.
func (j *eventLog) retransmits() (sum uint64) {
	for i := range j.rank.NICs {
		for _, c := range j.rank.NICs[i].Device.Counters() {
			if slices.Contains(retransmitCounters, c.Name) {
				sum += c.Value
				break
			}
		}
	}
	return sum
}

// violation records a violation, or only counts it after MaxViolations.
func (j *eventLog) violation(kind traffic.ViolationKind, format string, args ...any) {
	if len(j.violations) == MaxViolations {
		j.omitted++
		return
	}
	j.violations = append(j.violations, Violation{kind, fmt.Sprintf(format, args...)})
}

// recordFailure records a completion with an error.
func (j *eventLog) recordFailure(at time.Duration, peer, rail int, status verbs.WCStatus) {
	j.failureCount++
	if len(j.failures) < MaxFailures {
		j.failures = append(j.failures, Failure{At: at, Peer: peer, Rail: rail, Status: status.String()})
	}
	j.mark("%v with %s", status, hostOf(peer))
}

// hostOf is the host name of a rank.
func hostOf(rank int) string { return fmt.Sprintf("host%d", rank) }

// mark sends a mark to the launcher, up to maxMarks.
func (j *eventLog) mark(format string, args ...any) {
	if j.marks++; j.marks <= maxMarks {
		j.rank.Control.Mark(fmt.Sprintf(format, args...))
	}
}

// requestPosted records the time of the first request.
func (j *eventLog) requestPosted(now time.Duration) {
	if !j.started {
		j.started, j.first = true, now
		j.last = now
	}
}

// messagesArrived counts received messages.
func (j *eventLog) messagesArrived(now time.Duration, messages, bytes int) {
	if j.messages == 0 && messages > 0 {
		j.mark("first data")
	}
	j.messages += uint64(messages)
	j.bytes += uint64(bytes)
	j.last = now
}

// sample sends a sample to the launcher if it is time to.
func (j *eventLog) sample(now time.Duration) {
	if j.samples.due(now, j.messages, j.failureCount, j.rank.Concurrent) {
		j.sendSample(now)
	}
}

// sendSample sends the counters so far to the launcher.
func (j *eventLog) sendSample(now time.Duration) {
	resent := j.retransmits() - j.retransmitsBefore
	j.rank.Control.Sample(Sample{At: now, Messages: j.messages, Bytes: j.bytes, Retransmits: resent, Errors: uint64(j.failureCount)})
}

// report returns the recorded events.
func (j *eventLog) report() *Report {
	r := &Report{
		Rank: j.rank.Rank, Elapsed: max(0, j.last-j.first),
		Failures: j.failures, FailureCount: j.failureCount, Reconnects: j.reconnects,
		Violations: j.violations, MemoryChecked: j.checked, Counters: traffic.CountersSince(j.countersBefore, SumCounters(j.rank.NICs)),
	}
	if j.omitted > 0 {
		r.Violations = append(r.Violations, Violation{traffic.Omitted, fmt.Sprintf("and %d more like these", j.omitted)})
	}
	return r
}

// sampler schedules about a hundred samples in a run, whether it takes microseconds of
// virtual time or minutes.
type sampler struct {
	step     uint64        // messages between samples
	gap      time.Duration // longest time between samples
	taken    int
	stalled  bool   // no message arrived between the last two samples
	messages uint64 // at the last sample
	errors   int
	at       time.Duration
}

const (
	wantSamples = 80
	maxSamples  = 160
	firstGap    = 50 * time.Microsecond // in virtual time
	realGap     = 20 * time.Millisecond // shorter intervals would cost noticeable CPU time
)

// expect sets the number of messages between two samples, by the number that the rank will receive,
// or send if it receives none.
func (s *sampler) expect(messages int) { s.step = max(1, uint64(messages)/wantSamples) }

// due reports whether a sample is due, and schedules the next then.
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
	// The first message after a stall shows the recovery.
	recovered := s.stalled && messages > s.messages
	if since < s.gap && messages < s.messages+s.step && !recovered && (errors == s.errors || s.taken >= maxSamples) {
		return false
	}
	s.stalled = messages == s.messages
	// Longer runs than expected are sampled less and less often.
	if s.taken++; s.taken%(maxSamples/4) == 0 {
		s.gap *= 4
		if s.taken >= maxSamples {
			s.step *= 4
		}
	}
	s.at, s.messages, s.errors = now, messages, errors
	return true
}

// Violation is a guarantee that the fabric has broken.
type Violation struct {
	Kind traffic.ViolationKind `json:"kind"`
	What string                `json:"what"`
}

// String returns What.
func (v Violation) String() string { return v.What }
