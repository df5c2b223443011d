package drive

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// A queue keeps its shared batch until the link has taken all packets; another queue gets another
// batch meanwhile. Afterwards both are free, without the headers of the packets.
func TestSharedSendQueuesDoNotMixPackets(t *testing.T) {
	var shared Batches
	first, second := NewSharedSendQueue(&shared), NewSharedSendQueue(&shared)
	first.SetLimit(2)
	a, b := newPipe(), newPipe()
	a.peer, b.peer = b, a
	e := &echo{deadline: mono.Never, out: [][]byte{[]byte("1"), []byte("2"), []byte("3")}}
	a.limit = 1
	if more, full := first.Flush(1, e, a); !more || !full || len(e.out) != 1 {
		t.Fatalf("more %v, full %v, and %d packets are left, want a batch of 2", more, full, len(e.out))
	}
	other := &echo{deadline: mono.Never, out: [][]byte{[]byte("4")}}
	if more, full := second.Flush(1, other, b); more || full || len(shared.free) != 1 {
		t.Errorf("more %v, full %v, %d free batches", more, full, len(shared.free))
	}
	a.limit = -1
	first.Flush(2, e, a)
	var got string
	for len(b.in) > 0 {
		got += string(<-b.in)
	}
	if got != "123" || string(<-a.in) != "4" || len(shared.free) != 2 {
		t.Errorf("received %q, %d free batches, want 123 and 2", got, len(shared.free))
	}
	for _, ds := range shared.free {
		for i := range ds {
			if len(ds[i].Payload) > 0 {
				t.Errorf("a free batch has the packet %+v", ds[i])
			}
		}
	}
}
