package workload

import (
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// eventLog records a program's events for its report, and sends samples and marks to the launcher.
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

// newEventLog returns a log that reports counters as their increase from now on.
func newEventLog(r *Rank) *eventLog {
	l := &eventLog{rank: r}
	l.countersBefore, l.retransmitsBefore = SumCounters(r.NICs), l.retransmits()
	return l
}

// SumCounters returns the sums of the counters of NICs, by name in order of first occurrence.
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

// retransmitCounters are the names of the retransmission counter; each device has at most one.
var retransmitCounters = []string{"retransmitted_pkts", "rd_sent_again"}

// retransmits returns the sum of the NICs' retransmission counters.
func (l *eventLog) retransmits() (sum uint64) {
	for i := range l.rank.NICs {
		for _, c := range l.rank.NICs[i].Device.Counters() {
			if slices.Contains(retransmitCounters, c.Name) {
				sum += c.Value
			}
		}
	}
	return sum
}

// violation records a violation, or only counts it after MaxViolations.
func (l *eventLog) violation(kind traffic.ViolationKind, format string, args ...any) {
	if len(l.violations) == MaxViolations {
		l.omitted++
		return
	}
	l.violations = append(l.violations, Violation{kind, fmt.Sprintf(format, args...)})
}

// recordFailure counts a completion with an error. It stores up to MaxFailures of them for the
// report, and sends a mark about each to the launcher.
func (l *eventLog) recordFailure(at time.Duration, peer, rail int, status verbs.WCStatus) {
	l.addFailure(Failure{At: at, Peer: peer, Rail: rail, Status: status.String()})
	l.mark("%v with %s", status, hostOf(peer))
}

// addFailure counts a failure, and stores it unless there are MaxFailures.
func (l *eventLog) addFailure(f Failure) {
	l.failureCount++
	if len(l.failures) < MaxFailures {
		l.failures = append(l.failures, f)
	}
}

// hostOf is the host name of a rank.
func hostOf(rank int) string { return fmt.Sprintf("host%d", rank) }

// mark sends a mark, an event on the rank's timeline, to the launcher, up to maxMarks.
func (l *eventLog) mark(format string, args ...any) {
	const maxMarks = 500 // a rank may fail and recover without end
	if l.marks++; l.marks <= maxMarks {
		l.rank.Control.Mark(fmt.Sprintf(format, args...))
	}
}

// requestPosted records the time of the first request.
func (l *eventLog) requestPosted(now time.Duration) {
	if !l.started {
		l.started, l.first = true, now
		l.last = now
	}
}

// messagesArrived counts received messages.
func (l *eventLog) messagesArrived(now time.Duration, messages, bytes int) {
	if l.messages == 0 && messages > 0 {
		l.mark("first data")
	}
	l.messages += uint64(messages)
	l.bytes += uint64(bytes)
	l.last = now
}

// sample sends a sample to the launcher if it is time to.
func (l *eventLog) sample(now time.Duration) {
	if l.samples.due(now, l.messages, l.failureCount, l.rank.Concurrent) {
		l.sendSample(now)
	}
}

// sendSample sends the counters so far to the launcher.
func (l *eventLog) sendSample(now time.Duration) {
	resent := l.retransmits() - l.retransmitsBefore
	l.rank.Control.Sample(Sample{At: now, Messages: l.messages, Bytes: l.bytes, Retransmits: resent, Errors: uint64(l.failureCount)})
}

// report returns the recorded events.
func (l *eventLog) report() *Report {
	r := &Report{
		Rank: l.rank.Rank, Elapsed: max(0, l.last-l.first),
		Failures: l.failures, FailureCount: l.failureCount, Reconnects: l.reconnects,
		Violations: l.violations, MemoryChecked: l.checked, Counters: traffic.CountersSince(l.countersBefore, SumCounters(l.rank.NICs)),
	}
	if l.omitted > 0 {
		r.Violations = append(r.Violations, Violation{traffic.Omitted, fmt.Sprintf("and %d more like these", l.omitted)})
	}
	return r
}

// sampler schedules about a hundred samples in a run of microseconds of virtual time or of minutes.
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

// due reports whether to record a sample of the counters now, and if so schedules the next: after
// s.step messages, after the time s.gap, after a new error, and at the first message after a stall.
// In real time (concurrent), samples are at least realGap apart.
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
