package carrier

import (
	"testing"
	"time"
)

// The timeout follows the times that operations wait, and a single late rank hardly changes it.
func TestTimeoutFollowsArrivals(t *testing.T) {
	const longest = 20 * time.Millisecond
	var a arrivalTime
	expect := func(when string, low, high time.Duration) {
		t.Helper()
		if got := a.Timeout(longest); got < low || got > high {
			t.Errorf("%s the timeout is %v, want %v to %v", when, got, low, high)
		}
	}
	sample := func(n int, waited time.Duration) {
		for range n {
			a.Sample(waited)
		}
	}
	expect("without a sample", longest, longest)
	sample(30, 5*time.Microsecond)
	expect("if segments arrive at once", minMulticastTimeout, minMulticastTimeout)
	sample(1, time.Second)
	expect("after one late rank", minMulticastTimeout, time.Millisecond)
	sample(30, 3*time.Millisecond)
	expect("if segments arrive late", 3*time.Millisecond, 10*time.Millisecond)
	sample(30, time.Second)
	expect("if segments arrive after the longest timeout", longest, longest)
}

// A lost segment that no other one follows is requested soon after the time that segments usually take.
func TestLostLastSegmentIsRequestedSoon(t *testing.T) {
	r := newMulticastReceiver(&testDatagrams)
	now := time.Duration(0)
	for seq := range uint32(20) {
		r.Expect(now)
		now += 30 * time.Microsecond
		r.Receive(now, seq+1, nil, false)
	}
	r.Expect(now)
	if d := r.expiry - now; d < 30*time.Microsecond || d > 2*minMulticastTimeout {
		t.Errorf("a segment is requested after %v if others take 30 µs", d)
	}
	now = r.expiry
	if report, due := r.TakeReport(now); !due || !report.request || !report.byDatagram {
		t.Errorf("report %+v, due %v, want a request by datagram", report, due)
	}
	before := r.arrivals
	r.Receive(now+time.Second, 21, nil, true)
	if r.arrivals != before {
		t.Error("the time of a segment that was sent again counts")
	}
	r.Receive(now+time.Second, 22, nil, false)
	r.Expect(now + 2*time.Second)
	if r.expiry != 0 || r.arrivals.smoothed >= before.smoothed {
		t.Errorf("a segment that is there counts as a wait of %v after %v", r.arrivals.smoothed, before.smoothed)
	}
}

// If the first answers to a request are lost, a request that is retransmitted follows.
func TestRequestsByDatagramAreLimited(t *testing.T) {
	r := newMulticastReceiver(&testDatagrams)
	r.Expect(0)
	for i := range 2 * datagramRequests {
		if report, due := r.TakeReport(r.expiry); !due || report.byDatagram != (i < datagramRequests) {
			t.Errorf("request %d: %+v, due %v", i, report, due)
		}
	}
	s := newMulticastSender(64, []int{1})
	for seq := range uint32(40) {
		s.Add(&packet{seq: seq + 1})
	}
	request := multicastReport{next: 1, request: true, byDatagram: true}
	for range 2 {
		if n := len(s.Handle(1, &request)); n != maxRetransmitBatch {
			t.Errorf("%d segments answer a request by datagram, want %d each time", n, maxRetransmitBatch)
		}
	}
	request.byDatagram = false
	if first, second := len(s.Handle(1, &request)), len(s.Handle(1, &request)); first != 40 || second != 0 {
		t.Errorf("%d and %d segments answer requests that are retransmitted, want 40 and 0", first, second)
	}
}

// Each window has a report that is retransmitted, though requests may be lost between.
func TestEachWindowHasReliableReport(t *testing.T) {
	for _, window := range []int{1, 2, 3, 16, 128} {
		d := testDatagrams
		d.Window = window
		r := newMulticastReceiver(&d)
		last, seq := uint32(1), uint32(1)
		for ; seq < 1000; seq++ {
			r.Expect(0)
			if seq%7 == 0 {
				r.TakeReport(r.expiry)
			}
			r.Receive(0, seq, nil, false)
			if report, due := r.TakeReport(0); due && !report.byDatagram {
				last = report.next
			}
			if int(seq+1-last) >= window {
				t.Fatalf("window %d: %d segments after the last reliable report", window, seq+1-last)
			}
		}
	}
}
