package cm

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/mono"
)

func TestQueueKeepsOrderAndReleasesMemory(t *testing.T) {
	var q queue[int]
	next, want := 0, 0
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		if q.len() == 0 || q.len() < 100 && rng.IntN(2) == 0 {
			q.push(next)
			next++
		} else if v, ok := q.pop(); !ok || v != want {
			t.Fatalf("popped %d, %v, want %d", v, ok, want)
		} else {
			want++
		}
	}
	if cap(q.items) > 1024 {
		t.Errorf("a queue of at most 100 holds %d", cap(q.items))
	}
	for q.len() > 0 {
		q.pop()
	}
	if _, ok := q.pop(); ok {
		t.Error("popped from an empty queue")
	}
}

func TestTimersAgreeWithASortedList(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var h timers
	conns := make([]*conn, 64)
	for i := range conns {
		conns[i] = new(conn)
	}
	for step := range 20000 {
		c := conns[rng.IntN(len(conns))]
		switch rng.IntN(3) {
		case 0, 1:
			h.arm(c, mono.Time(rng.IntN(50)))
		case 2:
			h.stop(c)
		}
		var armed []*conn
		for _, c := range conns {
			if c.timer.pos != 0 {
				armed = append(armed, c)
			}
		}
		if len(armed) != len(h.heap) {
			t.Fatalf("step %d: %d armed, heap of %d", step, len(armed), len(h.heap))
		}
		if len(armed) == 0 {
			if h.next() != mono.Never {
				t.Fatal("an empty heap has a deadline")
			}
			continue
		}
		first := slices.MinFunc(armed, func(a, b *conn) int {
			if a.timer.at != b.timer.at {
				return int(a.timer.at - b.timer.at)
			}
			return int(a.timer.seq) - int(b.timer.seq)
		})
		if h.heap[0] != first || h.next() != first.timer.at {
			t.Fatalf("step %d: first is %+v, want %+v", step, h.heap[0].timer, first.timer)
		}
	}
}

func TestNamesOfStatesAndEvents(t *testing.T) {
	if len(stateNames) != int(StateSIDRREQRcvd)+1 || StateTimeWait.String() != "time wait" || State(99).String() != "state 99" {
		t.Error("states are misnamed")
	}
	if len(eventNames) != int(EventSIDRReply)+1 || EventTimeWaitExit.String() != "time wait exit" || EventKind(99).String() != "event 99" {
		t.Error("events are misnamed")
	}
	if (PerMessage{}).Of(0x99) != 0 {
		t.Error("an unknown message is counted")
	}
}
