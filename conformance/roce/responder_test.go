package roce

import (
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
)

const testBase, testRKey = 0x7f001000, 0x55

func TestResponderAnswersRequests(t *testing.T) {
	const first ib.PSN = 0xfffffe
	r := NewResponder(first, 1024, testBase)
	read := ib.ReadRequest(first.Add(3), ib.At(testBase, testRKey, 1500))
	add := ib.FetchAdd(first.Add(5), ib.At(testBase, testRKey, 8), 1)
	responses := func(msn uint32) []ib.Packet { return ib.ReadResponses(first.Add(3), msn, r.Memory[:1500], 1024) }
	nak := func(k int, msn uint32) []ib.Packet {
		return []ib.Packet{ib.Nak(first.Add(k), ib.NakSequence, msn)}
	}
	ack := func(k int, msn uint32) []ib.Packet { return []ib.Packet{ib.Ack(first.Add(k), msn)} }
	atomicAck := []ib.Packet{ib.AtomicAck(first.Add(5), 3, 0)}

	steps := []struct {
		name    string
		request ib.Packet
		want    []ib.Packet
	}{
		{"FIRST without AckReq gets no ACK", ib.SendFirst(first, make([]byte, 1024)), nil},
		{"gap gets a NAK", ib.SendLast(first.Add(2), []byte{1}).AckReq(), nak(1, 0)},
		{"same gap gets no second NAK", read, nil},
		{"missing packet gets an ACK", ib.SendMiddle(first.Add(1), make([]byte, 1024)).AckReq(), ack(1, 0)},
		{"next gap gets a NAK", read, nak(2, 0)},
		{"LAST increments the MSN", ib.SendLast(first.Add(2), []byte{1}).AckReq(), ack(2, 1)},
		{"READ gets responses", read, responses(2)},
		{"READ of two responses takes two PSNs", add, atomicAck},
		{"duplicate READ gets the responses again", read, responses(3)},
		{
			"duplicate of the end of a READ gets that part", ib.ReadRequest(first.Add(4), ib.At(testBase, testRKey, 1500).Skip(1024)),
			ib.ReadResponses(first.Add(4), 3, r.Memory[1024:1500], 1024),
		},
		{"duplicate atomic gets the original value again", add, atomicAck},
		{"duplicate SEND gets an ACK of the newest request", ib.SendMiddle(first.Add(1), make([]byte, 1024)), ack(5, 3)},
	}
	for _, s := range steps {
		got := r.Respond(s.request)
		if !slices.EqualFunc(got, s.want, func(a, b ib.Packet) bool { return slices.Equal(a.Build(), b.Build()) }) {
			t.Errorf("%s: response to %v is %v, want %v", s.name, s.request, got, s.want)
		}
	}
}

// The ACK of a duplicate request must not have the PSN of a later READ.
func TestResponderDoesNotAckReads(t *testing.T) {
	r := NewResponder(100, 1024, testBase)
	r.Respond(ib.SendOnly(100, nil))
	r.Respond(ib.ReadRequest(101, ib.At(testBase, testRKey, 8)))
	if got := r.Respond(ib.SendOnly(100, nil)); len(got) != 1 || got[0].PSN() != 100 {
		t.Errorf("response to the duplicate of 100 is %v, want an ACK with PSN 100", got)
	}
}
