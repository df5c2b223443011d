package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	testKey = 0x1234
	testMTU = 256
	testVA  = 0x10000
)

// newTestResponder returns a model with a region of 1024 bytes and some receives of 512 bytes.
func newTestResponder(transport ib.Transport, receives int) *RCResponder {
	all := verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	m := NewRCResponder(RCResponderAttr{Transport: transport, FirstPSN: 100, MTU: testMTU, MaxDestRdAtomic: 2, MinRNRTimer: 7, Access: all})
	mem := &RCMemory{Bytes: make([]byte, 1024)}
	m.Keys[testKey] = &RCKey{Mem: mem, Len: 1024, Addr: testVA, Access: all}
	for i := range receives {
		m.PostReceive(0, &RCReceive{ID: uint64(i + 1), Mem: &RCMemory{Bytes: make([]byte, 512)}, SGL: []RCSegment{{0, 512}}})
	}
	m.Take()
	return m
}

// describe formats a reaction: responses, optional ones in parentheses, completions and events.
func (r RCReaction) describe() string {
	var all []string
	for _, a := range r.Responses {
		text := fmt.Sprintf("%v msn %d", a.Packet, a.MaxMSN)
		if a.Optional {
			text = "(" + text + ")"
		}
		all = append(all, text)
	}
	for _, c := range r.Completions {
		text := fmt.Sprintf("wc %d of %d bytes", c.WC.WRID, c.WC.ByteLen)
		if len(c.Errors) > 0 {
			text = fmt.Sprintf("wc %d %v", c.WC.WRID, c.Errors[0])
		}
		all = append(all, text)
	}
	for _, e := range r.Events {
		all = append(all, e.String())
	}
	return strings.Join(all, "; ")
}

func TestRCResponderReactions(t *testing.T) {
	at := func(n int) ib.RETH { return ib.At(testVA, testKey, n) }
	data := make([]byte, testMTU)
	write := ib.WriteOnly(100, at(8), data[:8]).AckReq()
	for _, c := range []struct {
		name     string
		receives int
		before   []ib.Packet
		packet   ib.Packet
		want     string
	}{
		{"SEND", 1, nil, ib.SendOnly(100, data[:8]).AckReq(), "ACK psn 100 msn 1; wc 1 of 8 bytes"},
		{"SEND without AckReq", 1, nil, ib.SendOnly(100, data[:8]), "(ACK psn 100 msn 1); wc 1 of 8 bytes"},
		{"SEND without receive", 0, nil, ib.SendOnly(100, data[:8]).AckReq(), "RNR_NAK psn 100 timer 7 (120µs) msn 0"},
		{"SEND too long", 1, []ib.Packet{ib.SendFirst(100, data), ib.New(ib.OpSendMiddle, 101, data)}, ib.New(ib.OpSendLast, 102, data[:1]), "NAK psn 102 invalid request msn 0; wc 1 IBV_WC_LOC_LEN_ERR"},
		{"READ", 0, nil, ib.ReadRequest(100, at(300)), "READ_RESPONSE_FIRST psn 100 256 B msn 1; READ_RESPONSE_LAST psn 101 44 B msn 1"},
		{"READ of nothing needs no key", 0, nil, ib.ReadRequest(100, ib.At(1, 2, 0)), "READ_RESPONSE_ONLY psn 100 0 B msn 1"},
		{"part of a READ again", 0, []ib.Packet{ib.ReadRequest(100, at(300))}, ib.ReadRequest(101, at(300).Skip(256)), "READ_RESPONSE_ONLY psn 101 44 B msn 1"},
		{"READ again with another key", 0, []ib.Packet{ib.ReadRequest(100, at(300))}, ib.ReadRequest(100, ib.At(testVA, 5, 300)), ""},
		{"FETCH_ADD again", 0, []ib.Packet{ib.FetchAdd(100, at(8), 5), ib.FetchAdd(101, at(8), 5)}, ib.FetchAdd(101, at(8), 5), "ATOMIC_ACKNOWLEDGE psn 101 original 0x5 msn 2"},
		{"WRITE again, after a READ", 0, []ib.Packet{write, ib.ReadRequest(101, at(8))}, write, "ACK psn 100 msn 2"},
		{"gap", 1, []ib.Packet{write}, ib.SendOnly(103, data[:8]), "NAK psn 101 sequence msn 1"},
		{"second packet after a gap", 1, []ib.Packet{ib.SendOnly(103, nil)}, ib.SendOnly(104, nil), ""},
		{"MIDDLE without FIRST", 1, nil, ib.New(ib.OpWriteMiddle, 100, data), "NAK psn 100 invalid request msn 0; wc 1 IBV_WC_WR_FLUSH_ERR; IBV_EVENT_QP_REQ_ERR"},
		{"unknown key", 0, nil, ib.WriteOnly(100, ib.At(testVA, 5, 8), data[:8]), "NAK psn 100 remote access msn 0; IBV_EVENT_QP_ACCESS_ERR"},
		{"one byte too far", 0, nil, ib.WriteOnly(100, ib.At(testVA+1017, testKey, 8), data[:8]), "NAK psn 100 remote access msn 0; IBV_EVENT_QP_ACCESS_ERR"},
		{"after a failure", 0, []ib.Packet{ib.New(ib.OpWriteMiddle, 100, data)}, write, ""},
	} {
		m := newTestResponder(ib.RC, c.receives)
		for _, p := range append(slices.Clone(c.before), c.packet) {
			m.Take()
			if !m.Receive(p) {
				t.Errorf("%s: %v is not determined", c.name, p)
			}
		}
		if got := m.Take().describe(); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// A WRITE with immediate data and a bad key may be refused for the key, or for want of a receive.
func TestRCResponderLeavesSeveralFaultsOpen(t *testing.T) {
	m := newTestResponder(ib.RC, 0)
	if m.Receive(ib.WriteOnlyImm(100, ib.At(testVA, 5, 8), 1, make([]byte, 8))) {
		t.Error("determined")
	}
}

func TestUCReceiverDropsMessagesWithLosses(t *testing.T) {
	m, data := newTestResponder(ib.UC, 2), make([]byte, testMTU)
	for _, p := range []ib.Packet{
		ib.SendFirst(100, data), ib.New(ib.OpSendLast, 102, data), // without the MIDDLE
		ib.SendOnly(110, data[:9]), ib.WriteOnly(111, ib.At(testVA, 5, 8), data[:8]), ib.SendFirst(112, data), ib.SendOnly(113, data[:7]),
	} {
		if !m.Receive(p.On(ib.UC)) {
			t.Errorf("%v is not determined", p)
		}
	}
	if got, want := m.Take().describe(), "wc 1 of 9 bytes; wc 2 of 7 bytes"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMatchRCResponses(t *testing.T) {
	ack := func(psn ib.PSN, optional bool) RCResponse {
		return RCResponse{Packet: ib.Ack(psn, ib.AnyMSN), Optional: optional, MinMSN: 1, MaxMSN: 2, MaxCredits: -1}
	}
	three := []RCResponse{ack(1, false), ack(2, true), ack(3, false)}
	for _, c := range []struct {
		name    string
		got     []ib.Packet
		missing bool
		bad     int
	}{
		{"all", []ib.Packet{ib.Ack(1, 1), ib.Ack(2, 2), ib.Ack(3, 2)}, false, -1},
		{"coalesced", []ib.Packet{ib.Ack(3, 2)}, false, -1},
		{"the last is missing", []ib.Packet{ib.Ack(1, 1), ib.Ack(2, 1)}, true, -1},
		{"wrong order", []ib.Packet{ib.Ack(3, 2), ib.Ack(1, 1)}, false, 1},
		{"wrong MSN", []ib.Packet{ib.Ack(3, 3)}, true, 0},
		{"credits", []ib.Packet{ib.Ack(3, 2).WithCredits(1)}, true, 0},
	} {
		if missing, bad := MatchRCResponses(three, c.got); (missing != nil) != c.missing || bad != c.bad {
			t.Errorf("%s: missing %v, bad %d", c.name, missing, bad)
		}
	}
}

func TestRCMemoryPermitsOldAndNewBytesOfOpenMessages(t *testing.T) {
	m := &RCMemory{Bytes: make([]byte, 8)}
	m.mayHold(2, []byte{1, 2})
	for _, c := range []struct {
		got  []byte
		want int
	}{
		{[]byte{0, 0, 0, 0, 0, 0, 0, 0}, -1},
		{[]byte{0, 0, 1, 0, 0, 0, 0, 0}, -1},
		{[]byte{0, 0, 1, 2, 0, 0, 0, 0}, -1},
		{[]byte{0, 0, 2, 2, 0, 0, 0, 0}, 2},
		{[]byte{0, 0, 0, 0, 1, 0, 0, 0}, 4},
	} {
		if got := m.Diff(c.got); got != c.want {
			t.Errorf("%v: %d, want %d", c.got, got, c.want)
		}
	}
	m.complete()
	if m.Diff(make([]byte, 8)) != 2 {
		t.Error("old bytes after the message has completed")
	}
}
