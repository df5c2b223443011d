package model

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	endpointSTag = 0x100
	testWindow   = 0x200
	foreignSTag  = 0x300
	readSTag     = 0x400
	testAddr     = 0x10000
	testLen      = 256
)

// newTestIWARP returns a model with one receive of 16 bytes, with ID 1, and keys to one memory.
func newTestIWARP() (*IWARP, *IWARPMemory) {
	m := NewIWARP(true, 2)
	mem := m.AddMemory(testAddr, make([]byte, testLen))
	const all = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	m.SetKey(endpointSTag, IWARPKey{Mem: mem, Len: testLen, Access: all})
	m.SetKey(testWindow, IWARPKey{Mem: mem, Len: testLen, Access: all, Window: true})
	m.SetKey(foreignSTag, IWARPKey{Mem: mem, Len: testLen, Access: all, Foreign: true})
	m.SetKey(readSTag, IWARPKey{Mem: mem, Len: testLen, Access: verbs.AccessRemoteRead})
	m.PostRecv(IWARPRecv{ID: 1, Pieces: []IWARPPiece{{Mem: mem, Off: 64, Len: 16}}})
	return m, mem
}

func receive(m *IWARP, segments ...iwarp.Segment) (r IWARPReaction) {
	for _, s := range segments {
		r.Add(m.Receive(iwarp.ParseSegment(s.Append(nil))))
	}
	return r
}

func TestIWARPRefusesInvalidSegments(t *testing.T) {
	data := make([]byte, 16)
	at := func(stag uint32, to uint64) iwarp.Addr { return iwarp.At(stag, to) }
	read := func(source iwarp.Addr) iwarp.Segment { return iwarp.ReadRequest(1, at(1, 2), 16, source) }
	for name, test := range map[string]struct {
		segment iwarp.Segment
		causes  []iwarp.Cause // nil: accepted
	}{
		"Send":                    {iwarp.Send(1, data), nil},
		"zero-length Write":       {iwarp.Write(7, 7, nil), nil},
		"Write":                   {iwarp.Write(endpointSTag, testAddr+240, data), nil},
		"Write past the end":      {iwarp.Write(endpointSTag, testAddr+241, data), []iwarp.Cause{iwarp.DDPTaggedBounds}},
		"Write to an unknown key": {iwarp.Write(7, testAddr, data), []iwarp.Cause{iwarp.DDPTaggedInvalidSTag}},
		"Write without the right": {iwarp.Write(readSTag, testAddr, data), writeCauses[missingRight]},
		"Write of version 0":      {iwarp.Write(endpointSTag, testAddr, data).DV(0), []iwarp.Cause{iwarp.DDPTaggedInvalidVersion}},
		"Send of version 0":       {iwarp.Send(1, data).DV(0), []iwarp.Cause{iwarp.DDPUntaggedInvalidVersion}},
		"RDMAP version 2":         {iwarp.Send(1, data).RV(2), []iwarp.Cause{iwarp.RDMAPInvalidVersion}},
		"opcode 13":               {iwarp.Send(1, data).Opcode(13), []iwarp.Cause{iwarp.RDMAPUnexpectedOpcode}},
		"queue 4":                 {iwarp.Send(1, data).QN(4), []iwarp.Cause{iwarp.DDPUntaggedInvalidQN}},
		"MSN 0":                   {iwarp.Send(0, data), []iwarp.Cause{iwarp.DDPUntaggedMSNRange, iwarp.DDPUntaggedNoBuffer}},
		"MO 4":                    {iwarp.Send(1, data[:8]).MO(4), []iwarp.Cause{iwarp.DDPUntaggedInvalidMO}},
		"too long":                {iwarp.Send(1, make([]byte, 17)), []iwarp.Cause{iwarp.DDPUntaggedTooLong}},
		"Invalidate of a region":  {iwarp.SendInvalidate(1, endpointSTag, data), invalidateCauses},
		"Invalidate of a window":  {iwarp.SendInvalidate(1, testWindow, data), nil},
		"read of a foreign key":   {read(at(foreignSTag, testAddr)), readCauses[foreignKey]},
		"read that wraps":         {read(at(endpointSTag, ^uint64(0)-7)), readCauses[wrapsAround]},
		"misaligned atomic":       {iwarp.FetchAdd(1, 9, at(endpointSTag, testAddr+4), 1), []iwarp.Cause{iwarp.RDMAPStreamCatastrophic}},
	} {
		m, _ := newTestIWARP()
		r := receive(m, test.segment)
		switch {
		case (r.Refusal != nil) != (test.causes != nil):
			t.Errorf("%s: refusal %v, want causes %v", name, r.Refusal, test.causes)
		case r.Refusal != nil && !slices.Equal(r.Refusal.Causes, test.causes):
			t.Errorf("%s: causes %v, want %v", name, r.Refusal.Causes, test.causes)
		case r.Refusal != nil && (len(r.Completions) != 1 || !m.Ended()):
			t.Errorf("%s: %d completions, want the flushed receive", name, len(r.Completions))
		}
	}
}

func TestIWARPDeliversSendAtItsLastSegment(t *testing.T) {
	m, mem := newTestIWARP()
	parts := iwarp.SendSE(1, []byte("0123456789")).Segments(18 + 4)
	if r := receive(m, parts[0], parts[1]); len(r.Completions) != 0 {
		t.Errorf("%d completions before the last segment", len(r.Completions))
	}
	r := receive(m, parts[2])
	if len(r.Completions) != 1 || *r.Completions[0].Len != 10 || !r.Completions[0].Solicited {
		t.Errorf("completions %+v, want one of 10 bytes, solicited", r.Completions)
	}
	if got := string(mem.Data[64:74]); got != "0123456789" {
		t.Errorf("the receive has %q", got)
	}
	if r := receive(m, iwarp.Send(2, nil)); r.Refusal == nil || r.Refusal.Causes[0] != iwarp.DDPUntaggedNoBuffer {
		t.Errorf("without a receive: %+v, want no buffer", r.Refusal)
	}
}

func TestIWARPPlacementIsOpenUntilDelivery(t *testing.T) {
	m, mem := newTestIWARP()
	receive(m, iwarp.Write(endpointSTag, testAddr, []byte{9}))
	if _, differs := mem.Differs(make([]byte, testLen)); differs {
		t.Error("a Write must be placed before a later message is delivered")
	}
	receive(m, iwarp.Send(1, nil))
	if at, differs := mem.Differs(make([]byte, testLen)); !differs || at != 0 {
		t.Error("a Write need not be placed when a later message is delivered")
	}
}

func TestIWARPAtomics(t *testing.T) {
	for _, test := range []struct {
		op                                  uint8
		was, data, mask, cmp, cmpMask, want uint64
	}{
		{iwarp.AtomicFetchAdd, 0xffffffff, 1, 0, 0, 0, 0x1_00000000},
		{iwarp.AtomicFetchAdd, 0x7_ffffffff, 1, 0x80000000, 0, 0, 0x7_00000000},
		{iwarp.AtomicCompareSwap, 5, 7, ^uint64(0), 5, ^uint64(0), 7},
		{iwarp.AtomicCompareSwap, 5, 7, ^uint64(0), 6, ^uint64(0), 5},
		{iwarp.AtomicCompareSwap, 0x55, 0xff, 0x0f, 5, 0x0f, 0x5f},
	} {
		m, mem := newTestIWARP()
		mem.Set(8, binary.NativeEndian.AppendUint64(nil, test.was))
		request := iwarp.FetchAdd(1, 9, iwarp.At(endpointSTag, testAddr+8), test.data).EditAtomic(func(h *iwarp.AtomicRequestHeader) {
			h.Operation, h.Mask, h.Compare, h.CompareMask = &test.op, &test.mask, &test.cmp, &test.cmpMask
		})
		r := receive(m, request)
		if len(r.Responses) != 1 || *r.Responses[0].Segment.AtomicResponse.Original != test.was {
			t.Errorf("%+v: responses %+v", test, r.Responses)
		}
		if got := binary.NativeEndian.Uint64(mem.Data[8:]); got != test.want {
			t.Errorf("%+v: %#x in memory", test, got)
		}
	}
}

// postTest posts requests of the opcodes, with IDs from 1 on.
func postTest(m *IWARP, mem *IWARPMemory, requests ...verbs.SendWR) IWARPReaction {
	all := make([]*IWARPRequest, len(requests))
	for i, wr := range requests {
		wr.WRID, wr.Flags = uint64(i+1), wr.Flags|verbs.SendSignaled
		all[i] = &IWARPRequest{WR: wr, Pieces: []IWARPPiece{{Mem: mem, Off: 128 + 8*i, Len: 8}}}
	}
	return m.PostSend(all...)
}

func TestIWARPSendsAndCompletesInOrder(t *testing.T) {
	m, mem := newTestIWARP()
	read := verbs.SendWR{Opcode: verbs.OpRDMARead}
	r := postTest(m, mem, read, read, verbs.SendWR{Opcode: verbs.OpSend}, read, verbs.SendWR{Opcode: verbs.OpSend})
	if len(r.Requests) != 3 || len(r.Completed()) != 0 {
		t.Fatalf("%d messages and %d completions, want two reads of ORD 2 and a Send, and none", len(r.Requests), len(r.Completed()))
	}
	for i := range 2 {
		request := r.Requests[i].Segment
		request.Read.SinkSTag, request.Read.SinkTO = new(uint32(5)), new(uint64(8*i))
		m.Observe(request)
	}
	r = receive(m, iwarp.ReadResponse(5, 0, []byte("abcdefgh")))
	if len(r.Requests) != 2 || len(r.Completed()) != 1 || r.Completed()[0].ID != 1 {
		t.Errorf("after a response: %d messages, completions %+v", len(r.Requests), r.Completed())
	}
	r = receive(m, iwarp.ReadResponse(5, 8, []byte("abcdefgh")))
	if ids := r.Completed(); len(ids) != 2 || ids[0].ID != 2 || ids[1].ID != 3 {
		t.Errorf("after the second: completions %+v", ids)
	}
	if r = m.End(); len(r.Completions) != 3 {
		t.Errorf("at the end: %d completions, want a read, a Send and a receive", len(r.Completions))
	}
}

func TestIWARPFenceWaitsForReads(t *testing.T) {
	m, mem := newTestIWARP()
	r := postTest(m, mem, verbs.SendWR{Opcode: verbs.OpRDMARead}, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendFence})
	if len(r.Requests) != 1 {
		t.Errorf("%d messages, want the read only", len(r.Requests))
	}
}

func TestIWARPRefusesUnsolicitedResponses(t *testing.T) {
	for _, s := range []iwarp.Segment{iwarp.ReadResponse(endpointSTag, testAddr, nil), iwarp.AtomicResponse(1, 1, 1)} {
		m, _ := newTestIWARP()
		if r := receive(m, s); r.Refusal == nil {
			t.Errorf("%v is accepted", s)
		}
	}
}
