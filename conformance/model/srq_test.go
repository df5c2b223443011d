package model

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestSRQLimitIsReachedOnce(t *testing.T) {
	q := &SRQueue{Len: 512, Posted: []uint64{1, 2, 3, 4}}
	q.SetLimit(3)
	for i, want := range []bool{false, true, false, false} {
		q.take()
		if q.Reached != want {
			t.Errorf("message %d: limit reached %v, want %v", i, q.Reached, want)
		}
		q.Reached = false
	}
	if q.take() {
		t.Error("a fifth message found a receive")
	}
}

func TestSRQPairReactions(t *testing.T) {
	data := make([]byte, 256)
	for _, c := range []struct {
		name     string
		service  ib.Transport
		receives []uint64
		packets  []ib.Packet
		response string // to the last; "" for none
		done     bool
	}{
		{"SEND", ib.RC, []uint64{1}, []ib.Packet{ib.SendOnly(9, data).AckReq()}, "ACK psn 9 msn 1", true},
		{"no receive", ib.RC, nil, []ib.Packet{ib.SendOnly(9, data).AckReq()}, "RNR_NAK psn 9 timer 7 (120µs) msn 0", false},
		{"too long", ib.RC, []uint64{1}, ib.Send(9, make([]byte, 600), 256), "NAK psn 11 invalid request msn 0", true},
		{"UC without a receive", ib.UC, nil, []ib.Packet{ib.SendOnly(9, data).On(ib.UC)}, "", false},
		{"unknown SRQ", ib.XRC, []uint64{1}, []ib.Packet{ib.SendOnly(9, data).OnXRC(6)}, "XRC NAK psn 9 invalid request msn 0", false},
		{"XRC", ib.XRC, []uint64{1}, []ib.Packet{ib.SendOnly(9, data).OnXRC(5)}, "XRC ACK psn 9 msn 1", true},
	} {
		q := &SRQueue{Number: 5, Domain: 1, Len: 512, Posted: c.receives}
		p := &SRQPair{Service: c.service, State: verbs.QPStateRTS, PSN: 9, Timer: 7, Queue: q, Domain: 1}
		var effect SRQEffect
		for _, pkt := range c.packets {
			effect = p.Receive(pkt, []*SRQueue{q})
		}
		response := ""
		if effect.Response != nil {
			response = effect.Response.String()
		}
		if response != c.response || (effect.Completed != nil) != c.done {
			t.Errorf("%s: response %q, completed %v; want %q, %v", c.name, response, effect.Completed != nil, c.response, c.done)
		}
	}
}

func TestCNPs(t *testing.T) {
	m := NotificationPoint{Interval: time.Millisecond}
	pkt := ib.SendOnly(1, nil).Via(testPeer, testDevice).WithPKey(0x7fff)
	sender := ReactionPoint{testPeer, 99}
	m.Mark(MarkOf(pkt, 99))
	if !m.Required(0)[sender] {
		t.Error("no CNP is required for the first mark")
	}
	cnp := ib.CNP().To(99).Via(testDevice, testPeer).WithPKey(0x7fff)
	got, err := ib.Parse(cnp.Build())
	if err != nil {
		t.Fatal(err)
	}
	if to, ok := m.Take(got, 0); !ok || to != sender {
		t.Errorf("the CNP is for %v, %v, want %v", to, ok, sender)
	}
	if _, ok := m.Take(got, 0); ok {
		t.Error("a second CNP for one mark is permitted")
	}
	m.Mark(MarkOf(pkt, 99))
	if m.Required(time.Millisecond / 2)[sender] || !m.Required(2 * time.Millisecond)[sender] {
		t.Error("a CNP is required within the interval, or not after it")
	}
	m.Mark(MarkOf(pkt, 98))
	if !m.Required(0)[ReactionPoint{testPeer, 98}] {
		t.Error("no CNP is required for another sender")
	}
}
