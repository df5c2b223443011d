package carrier

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// groupWorld is a sender and its members in virtual time, on a network that loses, repeats and reorders
// datagrams, and no other packets to and from single members.
type groupWorld struct {
	rng         *rand.Rand
	loss        float64
	duplication float64
	maxDelay    time.Duration

	now     time.Duration
	events  groupEvents
	seq     int
	sender  *multicastSender
	toSend  int // segments that are not sent yet
	members []*testMember
	reports int
	resent  int
	maxKept int
}

type testMember struct {
	multicastReceiver
	rank      int
	got       []uint32
	nextAlone time.Duration // when the last reliable packet to or from the member arrives
}

type groupEvent struct {
	at  time.Duration
	seq int
	do  func()
}

type groupEvents []groupEvent

func (e groupEvents) Len() int { return len(e) }
func (e groupEvents) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e groupEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *groupEvents) Push(x any)   { *e = append(*e, x.(groupEvent)) }
func (e *groupEvents) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (w *groupWorld) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.events, groupEvent{w.now + d, w.seq, do})
}

func (w *groupWorld) delay() time.Duration {
	return time.Microsecond + time.Duration(w.rng.Int64N(int64(w.maxDelay)))
}

// alone runs do after a delay, as a packet to or from a member: in the order of the calls, or unless it is a datagram
// that is lost.
func (w *groupWorld) alone(m *testMember, isDatagram bool, do func()) {
	if isDatagram {
		if w.rng.Float64() >= w.loss {
			w.after(w.delay(), do)
		}
		return
	}
	m.nextAlone = max(m.nextAlone+1, w.now+w.delay())
	w.after(m.nextAlone-w.now, do)
}

func newGroupWorld(seed uint64, members int, d Datagrams) *groupWorld {
	w := &groupWorld{rng: rand.New(rand.NewPCG(seed, 1)), maxDelay: 10 * time.Microsecond}
	var ranks []int
	for i := range members {
		ranks = append(ranks, 3*i+1)
		w.members = append(w.members, &testMember{multicastReceiver: newMulticastReceiver(&d), rank: ranks[i]})
	}
	w.sender = newMulticastSender(d.Window, ranks)
	return w
}

// send multicasts as many segments as there is room for.
func (w *groupWorld) send() {
	for w.toSend > 0 && w.sender.HasRoom() {
		seq := w.sender.next
		w.sender.Add(&packet{seq: seq})
		w.toSend--
		w.maxKept = max(w.maxKept, len(w.sender.kept))
		for _, m := range w.members {
			for copies := 1; copies > 0; copies-- {
				if w.rng.Float64() < w.duplication {
					copies++
				}
				if w.rng.Float64() >= w.loss {
					w.after(w.delay(), func() { w.receive(m, seq, false) })
				}
			}
		}
		w.sender.TakeArrived()
	}
}

func (w *groupWorld) receive(m *testMember, seq uint32, resent bool) {
	segments, _ := m.Receive(w.now, seq, binary.LittleEndian.AppendUint32(nil, seq), resent)
	for _, s := range segments {
		m.got = append(m.got, binary.LittleEndian.Uint32(s))
	}
	w.report(m)
}

// report sends the report of a member that is due, and later looks again.
func (w *groupWorld) report(m *testMember) {
	r, due := m.TakeReport(w.now)
	if due {
		w.reports++
		encoded := r.append(nil)
		w.alone(m, r.byDatagram, func() { w.handle(m, encoded, r.byDatagram) })
	}
	if m.expiry != 0 {
		w.after(m.expiry-w.now, func() {
			if m.expiry == w.now {
				w.report(m)
			}
		})
	}
}

func (w *groupWorld) handle(m *testMember, encoded []byte, isDatagram bool) {
	r, err := parseMulticastReport(encoded)
	if err != nil {
		panic(err)
	}
	r.byDatagram = isDatagram
	for _, pkt := range w.sender.Handle(m.rank, &r) {
		w.resent++
		w.alone(m, isDatagram, func() { w.receive(m, pkt.seq, true) })
	}
	w.sender.TakeArrived()
	w.send()
}

// run multicasts n segments, which the members expect from random times on, and returns an error unless
// all arrive in order.
func (w *groupWorld) run(n int, late time.Duration) error {
	w.toSend = n
	w.after(time.Duration(w.rng.Int64N(int64(late)+1)), w.send)
	for _, m := range w.members {
		w.after(time.Duration(w.rng.Int64N(int64(late)+1)), func() {
			for range n {
				m.Expect(w.now)
			}
			w.report(m)
		})
	}
	for range 1000 * (n + 10) * len(w.members) {
		if len(w.events) == 0 {
			break
		}
		e := heap.Pop(&w.events).(groupEvent)
		w.now = e.at
		e.do()
	}
	if len(w.events) > 0 {
		return fmt.Errorf("the members have not received all segments after %v", w.now)
	}
	for _, m := range w.members {
		want := make([]uint32, n)
		for i := range want {
			want[i] = uint32(i + 1)
		}
		if !slices.Equal(m.got, want) {
			return fmt.Errorf("rank %d received %v", m.rank, m.got)
		}
	}
	return nil
}

var testDatagrams = Datagrams{Window: 16, AckEvery: 50, AckDelay: time.Millisecond, Timeout: 20 * time.Millisecond}

// Every member receives every segment once and in order, however datagrams are lost, repeated and reordered.
func TestMulticastArrivesDespiteLossDuplicationAndReordering(t *testing.T) {
	for seed := range uint64(400) {
		d := testDatagrams
		d.Window = []int{1, 2, 16, 128}[seed%4]
		w := newGroupWorld(seed, int(seed%5)+1, d)
		w.loss = []float64{0, 0.01, 0.3, 0.9, 1}[seed%5]
		w.duplication = []float64{0, 0.3}[seed%2]
		w.maxDelay = []time.Duration{time.Microsecond, 100 * time.Microsecond, 30 * time.Millisecond}[seed%3]
		if err := w.run([]int{1, 5, 200}[seed/5%3], []time.Duration{0, time.Second}[seed/3%2]); err != nil {
			t.Fatalf("seed %d, window %d, loss %v: %v", seed, d.Window, w.loss, err)
		}
		if w.maxKept > d.Window {
			t.Fatalf("seed %d: the sender keeps %d segments, the window is %d", seed, w.maxKept, d.Window)
		}
	}
}

// Without loss a member reports every half window, and nothing is sent twice.
func TestMulticastWithoutLossNeedsFewReports(t *testing.T) {
	const n, members = 200, 5
	w := newGroupWorld(1, members, testDatagrams)
	w.maxDelay = 1 // the same for all
	if err := w.run(n, 0); err != nil {
		t.Fatal(err)
	}
	if want := n / (testDatagrams.Window / 2) * members; w.reports != want || w.resent != 0 {
		t.Errorf("%d reports and %d segments that were sent again, want %d and 0", w.reports, w.resent, want)
	}
}

// A request is answered once: its segments are sent reliably.
func TestSenderAnswersEachRequestOnce(t *testing.T) {
	s := newMulticastSender(8, []int{2, 5})
	for seq := range uint32(4) {
		s.Add(&packet{seq: seq + 1})
	}
	report := multicastReport{next: 2, request: true}
	report.addEarly(3)
	missing := func(rank int, r multicastReport) (seqs []uint32) {
		for _, pkt := range s.Handle(rank, &r) {
			seqs = append(seqs, pkt.seq)
		}
		return seqs
	}
	if got := missing(5, report); !slices.Equal(got, []uint32{2, 4}) {
		t.Errorf("segments %v are sent again", got)
	}
	if got := missing(5, report); got != nil {
		t.Errorf("segments %v are sent again for a repeated request", got)
	}
	s.Add(&packet{seq: 5})
	if got := missing(5, report); !slices.Equal(got, []uint32{5}) {
		t.Errorf("segments %v are sent again for a request after another segment", got)
	}
	for name, r := range map[string]multicastReport{"of segments that were not sent": {next: 9, request: true}, "of an old state": {next: 1, request: true}} {
		if got := missing(5, r); got != nil {
			t.Errorf("segments %v are sent again for a report %s", got, name)
		}
	}
	if got := missing(3, report); got != nil {
		t.Errorf("segments %v are sent to a rank that is no member", got)
	}
	s.Handle(2, &multicastReport{next: 4})
	if got := s.TakeArrived(); len(got) != 1 || got[0].seq != 1 {
		t.Errorf("%d segments have arrived", len(got))
	}
	if awaited := s.Awaited(); !slices.Equal(awaited, []int{5}) {
		t.Errorf("the sender waits for ranks %v", awaited)
	}
	s.Remove(5)
	if got := s.TakeArrived(); len(got) != 2 || s.first() != 4 {
		t.Errorf("after the loss of a member %d more segments have arrived", len(got))
	}
}

// A member that waits for a late sender repeats its request less and less often.
func TestRequestsAreRepeatedLessOften(t *testing.T) {
	r := newMulticastReceiver(&testDatagrams)
	r.Expect(0)
	var at []time.Duration
	for now := time.Duration(0); now < time.Second; now += time.Millisecond {
		if report, due := r.TakeReport(now); due {
			at = append(at, now/time.Millisecond)
			if report.next != 1 || !report.request {
				t.Errorf("report %+v", report)
			}
		}
	}
	if want := []time.Duration{20, 40, 80, 160, 320, 480, 640, 800, 960}; !slices.Equal(at, want) {
		t.Errorf("requests after %v ms, want %v", at, want)
	}
	if r.Receive(time.Second, 1, nil, false); r.expiry != 0 {
		t.Error("a request is due though nothing is missing")
	}
}

// A segment that overtakes another one is no reason for a request, unless the other one stays away.
func TestGapIsRequestedAfterDelay(t *testing.T) {
	r := newMulticastReceiver(&testDatagrams)
	r.Receive(0, 2, []byte("b"), false)
	if r.expiry != testDatagrams.AckDelay {
		t.Errorf("a request is due at %v", r.expiry)
	}
	r.Receive(testDatagrams.AckDelay/2, 3, []byte("c"), false)
	report, due := r.TakeReport(testDatagrams.AckDelay)
	if !due || report.next != 1 || !report.hasEarly(2) || !report.hasEarly(3) || report.hasEarly(1) || report.hasEarly(4) {
		t.Errorf("report %+v, due %v", report, due)
	}
	segments, _ := r.Receive(testDatagrams.AckDelay, 1, []byte("a"), false)
	if string(slices.Concat(segments...)) != "abc" || r.expiry != 0 {
		t.Errorf("received %q, and a request is due at %v", segments, r.expiry)
	}
	if _, order := r.Receive(testDatagrams.AckDelay, 2, nil, false); order != duplicate {
		t.Errorf("a repeated segment is %v", order)
	}
}
