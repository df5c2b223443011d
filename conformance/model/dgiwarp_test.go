package model

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

const testQPN, dgTestKey, testSTag = 7, 99, 0x100

var testSource = DGSource{Host: netip.MustParseAddrPort("10.0.0.1:5000"), QPN: 5}

// octets returns a packet to the queue pair of the test.
func octets(p iwarp.Packet) []byte {
	return p.Over(iwarp.PacketPath{Dest: testQPN, Source: testSource.QPN, Key: dgTestKey}).Append(nil)
}

// receives returns n receives with room for 64 octets after a GRH.
func receives(n int) (all []DGReceive) {
	for i := range n {
		all = append(all, DGReceive{ID: uint64(i + 1), Parts: [][]byte{make([]byte, 20), make([]byte, verbs.GRHLen+44)}})
	}
	return all
}

func newTestUD() *DGUD {
	region := &DGRegion{STag: testSTag, Addr: 0x1000, Access: verbs.AccessRemoteWrite, Buf: make([]byte, 64)}
	return &DGUD{QPN: testQPN, Key: dgTestKey, Memory: DGMemory{region}, Receives: receives(4)}
}

func TestDGUDTakesMessages(t *testing.T) {
	message := []byte("0123456789")
	part := func(from, to int) iwarp.Packet {
		return iwarp.UD(iwarp.Send(1, message[from:to]).MO(uint32(from)).Last(to == len(message)))
	}
	for name, c := range map[string]struct {
		packets []iwarp.Packet
		want    []string // messages
	}{
		"whole":      {[]iwarp.Packet{part(0, 10)}, []string{"0123456789"}},
		"twice":      {[]iwarp.Packet{part(0, 10), part(0, 10)}, []string{"0123456789", "0123456789"}},
		"any order":  {[]iwarp.Packet{part(7, 10), part(0, 3), part(3, 7)}, []string{"0123456789"}},
		"overlap":    {[]iwarp.Packet{part(0, 6), part(0, 6), part(4, 8), part(6, 10)}, []string{"0123456789"}},
		"gap":        {[]iwarp.Packet{part(0, 3), part(4, 10)}, nil},
		"other end":  {[]iwarp.Packet{part(7, 10), iwarp.UD(iwarp.Send(1, message[:4]).MO(8).Last(false)), part(0, 7)}, nil},
		"wrong CRC":  {[]iwarp.Packet{part(0, 10).BadCRC()}, nil},
		"wrong key":  {[]iwarp.Packet{part(0, 10).WithKey(1)}, nil},
		"another QP": {[]iwarp.Packet{part(0, 10).ToQP(8)}, nil},
		"other kind": {[]iwarp.Packet{iwarp.Refusal(1, 1)}, nil},
	} {
		u := newTestUD()
		var got []string
		for _, p := range c.packets {
			for _, x := range u.Receive(0, testSource, octets(p)).Completions {
				got = append(got, string(x.Receive.octets(int(x.WC.ByteLen))[verbs.GRHLen:]))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestDGUDDropsOldestOf65Assemblies(t *testing.T) {
	u := newTestUD()
	half := func(msn uint32, last bool) DGOutcome {
		s := iwarp.Send(msn, []byte("ab")).Last(last)
		if last {
			s = s.MO(2)
		}
		return u.Receive(0, testSource, octets(iwarp.UD(s)))
	}
	for msn := range uint32(DGMaxAssemblies + 1) {
		half(msn, false)
	}
	if out := half(1, true); len(out.Completions) != 1 {
		t.Error("the second message did not complete")
	}
	if out := half(0, true); len(out.Completions) != 0 {
		t.Error("the first message completed")
	}
	u.Expire(DGAssemblyTimeout)
	if sends, _ := u.Pending(); sends != 0 {
		t.Errorf("%d assemblies after the timeout", sends)
	}
}

func TestDGUDRecordListsRanges(t *testing.T) {
	u := newTestUD()
	for _, p := range []struct{ from, to int }{{8, 12}, {0, 4}, {4, 6}} {
		pkt := iwarp.WriteRecord(1, iwarp.At(testSTag, 0x1000+uint64(p.from)), make([]byte, p.to-p.from), 42)
		pkt = pkt.EditRecord(func(h *iwarp.RecordHeader) { h.MO, h.Length = new(uint32(p.from)), new(uint32(16)) })
		if out := u.Receive(0, testSource, octets(pkt)); out.Causes != nil || out.Completions != nil {
			t.Fatalf("%+v", out)
		}
	}
	if out := u.Expire(DGRecordTimeout - time.Nanosecond); out.Completions != nil {
		t.Error("a record ends before its time")
	}
	got := u.Expire(DGRecordTimeout).Completions
	want := []byte{0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 8, 0, 0, 0, 4}
	if len(got) != 1 || !bytes.Equal(got[0].Data, want) || got[0].WC.Imm != 42 {
		t.Errorf("%+v, want %x", got, want)
	}
}

func TestDGUDChecksSegments(t *testing.T) {
	write := iwarp.Write(testSTag, 0x1000, []byte("abcd"))
	for _, c := range []struct {
		segment iwarp.Segment
		cause   iwarp.Cause
	}{
		{write.STag(1), iwarp.DDPTaggedInvalidSTag},
		{write.TO(0x103d), iwarp.DDPTaggedBounds},
		{write.TO(^uint64(0)), iwarp.DDPTaggedTOWrap},
		{write.DV(0), iwarp.DDPTaggedInvalidVersion},
		{iwarp.Send(1, nil).QN(1), iwarp.DDPUntaggedInvalidQN},
		{iwarp.Send(1, nil).MO(DGMaxSend + 1), iwarp.DDPUntaggedInvalidMO},
		{iwarp.Send(1, make([]byte, 65)), iwarp.DDPUntaggedTooLong},
		{iwarp.SendInvalidate(1, testSTag, nil), iwarp.RDMAPUnexpectedOpcode},
	} {
		u := newTestUD()
		if out := u.Receive(0, testSource, octets(iwarp.UD(c.segment))); !slices.Contains(out.Causes, c.cause) || !u.Failed {
			t.Errorf("%v: %v, want %v", c.segment, out.Causes, c.cause)
		}
	}
}

func TestDGRequestIsCutEvenly(t *testing.T) {
	r := DGRequest{Op: verbs.OpSend, Payload: make([]byte, 10), MSN: 3}
	all := r.Packets(4)
	if len(all) != 3 || *all[2].Segment.DDP.MO != 8 || !*all[2].Segment.DDP.Last || *all[1].Segment.DDP.Last {
		t.Errorf("%v", all)
	}
	if len((&DGRequest{Op: verbs.OpRDMAWriteImm}).Packets(4)) != 1 {
		t.Error("an empty message is not one packet")
	}
}

func TestDGFlowDeliversInOrderOnce(t *testing.T) {
	f := NewDGFlow(1, 0xfffffffe)
	for i, c := range []struct {
		seq     uint32
		verdict DGVerdict
		ready   int
		next    uint32
	}{
		{0, DGOutOfOrder, 0, 0xfffffffe},
		{0, DGDuplicate, 0, 0xfffffffe},
		{0xfffffffe, DGClosesGap, 1, 0xffffffff},
		{0xffffffff, DGClosesGap, 2, 1},
		{0xffffffff, DGDuplicate, 0, 1},
		{257, DGBeyondWindow, 0, 1},
		{1, DGInOrder, 1, 2},
	} {
		ready, v := f.Receive(c.seq, iwarp.Send(1, nil))
		if v != c.verdict || len(ready) != c.ready || f.Next != c.next {
			t.Errorf("packet %d: verdict %d, %d segments, next %d; want %+v", i, v, len(ready), f.Next, c)
		}
	}
}

func TestDGRDExecutesSegments(t *testing.T) {
	word := &DGRegion{STag: testSTag, Addr: 0x1000, Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic, Buf: make([]byte, 64)}
	q, p := &DGRD{QPN: testQPN, Memory: DGMemory{word}, Receives: receives(2)}, &DGPeer{Source: testSource}
	deliver := func(s iwarp.Segment) DGEffect { return q.Deliver(p, iwarp.ParseSegment(s.Append(nil))) }
	at := iwarp.At(testSTag, 0x1000)
	deliver(iwarp.FetchAdd(1, 9, at, 5))
	out := deliver(iwarp.CompareSwap(2, 10, at, 5, 6))
	if r := out.Responses; len(r) != 1 || *r[0].Atomic.AtomicResponse.Original != 5 || *r[0].Atomic.DDP.MSN != 2 {
		t.Errorf("atomic: %+v", out)
	}
	if out := deliver(iwarp.ReadRequest(3, iwarp.At(1, 2), 8, at)); len(out.Responses) != 1 || out.Responses[0].Data[0]+out.Responses[0].Data[7] != 6 {
		t.Errorf("read: %+v", out)
	}
	if out := deliver(iwarp.Send(1, []byte("ab")).Last(false)); out.Completions != nil || p.Open == nil {
		t.Errorf("first half: %+v", out)
	}
	if out := deliver(iwarp.Send(1, []byte("cd")).MO(2)); len(out.Completions) != 1 || string(out.Completions[0].Data) != "abcd" {
		t.Errorf("second half: %+v", out)
	}
}

// fill sends as many packets as the model permits, and returns how many are in flight then.
func fill(t *testing.T, s *DGSender) int {
	t.Helper()
	for _, seq := range s.Missing() {
		if s.IsLost(seq) {
			_ = s.Send(seq)
		}
	}
	for s.Send(s.Next) == nil {
	}
	if err := s.CheckPause(); err != nil {
		t.Error(err)
	}
	return s.InFlight()
}

func TestDGSenderWindowFollowsAcks(t *testing.T) {
	s := NewDGSender()
	check := func(what string, want int) {
		t.Helper()
		if got := fill(t, s); got != want {
			t.Errorf("%s: %d packets in flight, want %d", what, got, want)
		}
	}
	check("start", 16)
	s.Receive(DGSenderAck{Next: 16, Window: DGWindow})
	check("all acknowledged", 32)
	s.Receive(DGSenderAck{Next: 20, Marked: true, Window: DGWindow})
	if s.least != 22 || s.most != 26 {
		t.Errorf("marked: window of %d to %d", s.least, s.most)
	}
	check("marked", 28) // that were in flight before
	if err := s.Send(21); err == nil {
		t.Error("a packet is retransmitted that is not lost")
	}
	s.Receive(DGSenderAck{Next: 20, Sacked: []uint32{21, 22}, Window: DGWindow})
	if s.IsLost(20) {
		t.Error("two later packets tell of a loss")
	}
	s.Receive(DGSenderAck{Next: 20, Sacked: []uint32{21, 22, 23}, Window: DGWindow})
	if !s.IsLost(20) {
		t.Error("three later packets do not tell of a loss")
	}
	s.Timeout()
	check("timeout", 4)
}

// After a timeout a window below the threshold may grow by one for each packet, although a window of packets, which
// makes its lower bound grow by one as well, then reaches the threshold.
func TestDGSenderGrowsFastBelowThreshold(t *testing.T) {
	for threshold, want := range map[int]int{6: 7, 7: 14} {
		s := NewDGSender()
		s.slowStart, s.least, s.most, s.threshold = false, 6, 6, threshold
		if s.grow(8, 8); s.least != 7 || s.most != want {
			t.Errorf("threshold %d: window of %d to %d, want 7 to %d", threshold, s.least, s.most, want)
		}
	}
}
