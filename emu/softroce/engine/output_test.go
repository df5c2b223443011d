package engine

import (
	"testing"
	"unsafe"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

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
			behind := 0
			for i := range n {
				for k := range i {
					if overlap(ds[i].Payload, ds[k].Payload) {
						t.Fatalf("room %d, size %d: packets %d and %d of %d share memory", room, size, k, i, n)
					}
				}
				if i > 0 && adjacentTo(ds[i-1].Payload, ds[i].Payload) {
					behind++
				}
			}
			if room == 64*wire.MaxPacketLen && behind != n-1 {
				t.Errorf("size %d: %d of %d packets lie behind the one before", size, behind, n)
			}
			for n == len(ds) {
				n = a.nic.Output(1, ds)
			}
			acknowledgeAll(a, qa)
		}
	}
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
		t.Fatal("the READ does not leave")
	}
	a.nic.Input(1, &one[0])
	read(a, b, qa) // when the answer is under way already
	answers := 0
	for sent := range packets + 1 {
		if a.nic.Output(1, one) != 1 {
			t.Fatalf("only %d packets leave", sent)
		}
		var h wire.BTH
		must.Get(h.Parse(one[0].Payload))(t)
		if h.Opcode.Operation() != wire.OpReadRequest {
			answers++
		} else if answers > 1 {
			t.Errorf("the request leaves behind %d packets of the answer", answers)
		}
	}
	if answers != packets {
		t.Errorf("%d packets answer a READ of %d", answers, packets)
	}
}

func overlap(a, b []byte) bool { return at(a) < at(b)+uintptr(len(b)) && at(b) < at(a)+uintptr(len(a)) }

func adjacentTo(a, b []byte) bool { return at(a)+uintptr(len(a)) == at(b) }

func at(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// acknowledgeAll acknowledges all packets sent.
func acknowledgeAll(h *host, q *QP) {
	q.acknowledge(1, q.req.max.Add(-1), false)
	h.poll()
}
