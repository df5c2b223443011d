package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// qpWithDeadline returns a QP with a deadline.
func qpWithDeadline(num uint32, at mono.Time) *QP {
	q := &QP{num: num}
	q.timer.Owner, q.timer.TieBreak = q, num
	q.req.timer, q.req.rnrUntil = at, mono.Never
	return q
}

// drainTimers removes all QPs whose deadlines have passed.
func drainTimers(h *qpTimers, now mono.Time) (nums []uint32) {
	for q := h.due(now); q != nil; q = h.due(now) {
		nums = append(nums, q.num)
	}
	return nums
}

// A deadline that moves later keeps its heap entry until it expires and is then
// corrected; a cancelled one is removed.
func TestTimerMovedLaterDoesNotExpireEarly(t *testing.T) {
	var h qpTimers
	later, off := qpWithDeadline(1, 10), qpWithDeadline(2, 10)
	h.SetIfEarlier(&later.timer, 10)
	h.SetIfEarlier(&off.timer, 10)
	later.req.timer, off.req.timer = 50, mono.Never
	h.SetIfEarlier(&later.timer, 50)
	h.SetIfEarlier(&off.timer, mono.Never)
	if got := drainTimers(&h, 49); got != nil {
		t.Errorf("expired early: %d", got)
	}
	if got := h.Next(); got != 50 {
		t.Errorf("next is %v", got)
	}
	if got := drainTimers(&h, 50); !slices.Equal(got, []uint32{1}) || h.Next() != mono.Never {
		t.Errorf("got %d, then %v", got, h.Next())
	}
}

// The heap behaves like a linear search under random operations.
func TestTimersMatchLinearSearch(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var h qpTimers
		var all []*QP
		for i := range uint32(40) {
			all = append(all, qpWithDeadline(i, mono.Never))
		}
		for now := mono.Time(0); now < 2000; now++ {
			for range rng.IntN(4) {
				q := all[rng.IntN(len(all))]
				switch rng.IntN(8) {
				case 0:
					q.req.timer = mono.Never
					h.Stop(&q.timer)
				case 1:
					q.req.timer = mono.Never
					h.SetIfEarlier(&q.timer, mono.Never)
				default:
					q.req.timer = now + 1 + mono.Time(rng.IntN(100))
					h.SetIfEarlier(&q.timer, q.deadline())
				}
			}
			var want []uint32
			next := mono.Never
			for _, q := range all {
				if q.req.timer <= now {
					want = append(want, q.num)
				} else {
					next = min(next, q.req.timer)
				}
			}
			got := drainTimers(&h, now)
			slices.Sort(got) // the order of equal deadlines is not defined
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d at %v: due %d, want %d", seed, now, got, want)
			}
			if h.Next() > next {
				t.Fatalf("seed %d at %v: next is %v, want %v or earlier", seed, now, h.Next(), next)
			}
			for _, n := range got {
				all[n].req.timer = mono.Never
			}
		}
	}
}

// QPs send in FIFO order, and each is queued at most once.
func TestQPQueueIsFIFOAndHoldsEachQPOnce(t *testing.T) {
	var f qpQueue
	var all []*QP
	for i := range uint32(100) {
		all = append(all, qpWithDeadline(i, mono.Never))
	}
	if f.pop() != nil {
		t.Error("an empty queue returned a QP")
	}
	for i := range 7 { // the ring wraps before it grows
		f.push(all[i])
		f.pop()
	}
	for _, q := range all {
		f.push(q)
		f.push(all[0])
	}
	for i, want := range all {
		if got := f.pop(); got != want {
			t.Fatalf("entry %d is %v", i, got)
		}
		if i == 50 {
			f.push(all[0]) // again, at the end
		}
	}
	if got := f.pop(); got != all[0] || f.pop() != nil {
		t.Errorf("the last is %v", got)
	}
}

// Packets of a batch never share memory, whatever the buffers held before. They are
// contiguous where there is room.
func TestPacketsOfBatchAreContiguous(t *testing.T) {
	for _, room := range []int{0, 2 * wire.MaxPacketLen, 5 * wire.MaxPacketLen, 64 * wire.MaxPacketLen} {
		_, a, b, qa, _ := rcPair(t, nil)
		ds := make([]link.Datagram, 16)
		ds[0].Payload = make([]byte, 0, room)
		for _, size := range []int{8, 4096, 1, 1000, 3000, 16} {
			for range len(ds) {
				a.send(qa, 1, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{a.sge(0, size)}, Remote: b.remote(0)})
			}
			n := a.nic.Output(1, ds)
			contiguous := 0
			for i := range n {
				for k := range i {
					if overlap(ds[i].Payload, ds[k].Payload) {
						t.Fatalf("room %d, size %d: packets %d and %d of %d share memory", room, size, k, i, n)
					}
				}
				if i > 0 && adjacentTo(ds[i-1].Payload, ds[i].Payload) {
					contiguous++
				}
			}
			if room == 64*wire.MaxPacketLen && contiguous != n-1 {
				t.Errorf("size %d: %d of %d packets are contiguous", size, contiguous, n)
			}
			for n == len(ds) {
				n = a.nic.Output(1, ds)
			}
			acknowledgeAll(a, qa)
		}
	}
}

// A QP that has more to send than its turn allows goes on in a later turn, even if there is room
// for more datagrams than one turn fills.
func TestQPGoesOnAfterItsTurn(t *testing.T) {
	_, a, b, qa, _ := rcPair(t, nil)
	const packets = 2*burst + 5
	a.send(qa, 1, verbs.SendWR{
		Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{a.sge(0, packets*int(qa.mtu))}, Remote: b.remote(0),
	})
	ds := make([]link.Datagram, 2*packets)
	sent := a.nic.Output(1, ds)
	if sent += a.nic.Output(1, ds); sent != packets {
		t.Errorf("%d of %d packets were sent", sent, packets)
	}
}

// MADs and CNPs that find no room are sent by the next call of Output.
func TestOutputKeepsMADsAndCNPsWithoutRoom(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		for i := range uint32(3) {
			p.mark(wire.OpSendOnly, 0, datagram, data(8), func(k *wire.Packet) { k.DETH.SrcQP = i + 2 })
			p.h.nic.SendMAD(MAD{Local: p.h.addr, Remote: p.addr, PKey: wire.DefaultPKey})
		}
		ds := make([]link.Datagram, 2)
		var sent []wire.Opcode
		for n := len(ds); n == len(ds); {
			n = p.h.nic.Output(p.now, ds)
			for i := range n {
				sent = append(sent, wire.Opcode(ds[i].Payload[0]))
			}
		}
		mad := wire.MakeOpcode(wire.TransportUD, wire.OpSendOnly)
		if want := []wire.Opcode{mad, mad, mad, wire.CNP, wire.CNP, wire.CNP}; !slices.Equal(sent, want) {
			p.Errorf("sent %v, want %v", sent, want)
		}
	})
}

// Nor do MADs and CNPs share memory with the packet after them.
func TestMADsAndCNPsShareNoMemory(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		for i := range uint32(3) {
			p.mark(wire.OpSendOnly, 0, datagram, data(8), func(k *wire.Packet) { k.DETH.SrcQP = i + 2 })
			p.h.nic.SendMAD(MAD{Local: p.h.addr, Remote: p.addr, PKey: wire.DefaultPKey})
		}
		p.postTo(1, p.handle(nil), 100)
		ds := make([]link.Datagram, 16)
		buffer := make([]byte, 0, 64*wire.MaxPacketLen)
		for i := range ds {
			ds[i].Payload = buffer // as after a batch of short packets
		}
		n := p.h.nic.Output(p.now, ds)
		if n != 7 {
			p.Fatalf("%d packets", n)
		}
		for i := range n {
			for k := range i {
				if overlap(ds[i].Payload, ds[k].Payload) {
					p.Errorf("packets %d and %d share memory", k, i)
				}
			}
		}
	})
}

// A QP that sends READ responses also sends its own requests, so that two peers can
// READ from each other at the same time.
func TestRequestsAlternateWithReadResponses(t *testing.T) {
	_, a, b, qa, qb := rcPair(t, nil)
	const packets = 16
	read := func(h, of *host, q *QP) {
		h.send(q, 1, verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{h.sge(0, packets*int(q.mtu))}, Remote: of.remote(0)})
	}
	one := make([]link.Datagram, 1)
	read(b, a, qb)
	if b.nic.Output(1, one) != 1 {
		t.Fatal("the READ was not sent")
	}
	a.nic.Input(1, &one[0])
	read(a, b, qa) // while the response is being sent
	answers := 0
	for sent := range packets + 1 {
		if a.nic.Output(1, one) != 1 {
			t.Fatalf("only %d packets were sent", sent)
		}
		var h wire.BTH
		must.Get(h.Parse(one[0].Payload))(t)
		if h.Opcode.Operation() != wire.OpReadRequest {
			answers++
		} else if answers > 1 {
			t.Errorf("the request was sent after %d packets of the response", answers)
		}
	}
	if answers != packets {
		t.Errorf("%d response packets for a READ of %d", answers, packets)
	}
}

func overlap(a, b []byte) bool { return at(a) < at(b)+uintptr(len(b)) && at(b) < at(a)+uintptr(len(a)) }

func adjacentTo(a, b []byte) bool { return at(a)+uintptr(len(a)) == at(b) }

func at(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// acknowledgeAll acknowledges all packets sent.
func acknowledgeAll(h *host, q *QP) {
	q.acknowledge(1, q.req.max.Add(-1), requireResponses)
	h.poll()
}
