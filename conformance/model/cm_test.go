package model

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
)

// newPassive returns a connection of the passive side whose REP was sent.
func newPassive() *CMConn {
	return &CMConn{State: CMReplied, PeerID: 1, DeviceID: 2, DeviceQPN: 0x11, Reply: &ib.REP{LocalCommID: new(uint32(2))}}
}

// newActive returns a connection of the active side whose REQ was sent.
func newActive() *CMConn {
	return &CMConn{Active: true, State: CMRequesting, PeerID: 1, DeviceID: 2, DeviceQPN: 0x11}
}

func TestCMConnChangesState(t *testing.T) {
	peer, device, other := new(uint32(1)), new(uint32(2)), new(uint32(3))
	rtu := ib.RTU{LocalCommID: peer, RemoteCommID: device}
	rep := ib.REP{LocalCommID: peer, RemoteCommID: device, QPN: new(uint32(0x22))}
	rej := ib.REJ{LocalCommID: peer, RemoteCommID: device, Reason: new(ib.RejConsumer)}
	dreq := ib.DREQ{LocalCommID: peer, RemoteCommID: device, RemoteQPN: new(uint32(0x11))}
	for name, test := range map[string]struct {
		conn *CMConn
		in   []ib.Message
		want CMState
		must bool // the device must answer the last message
	}{
		"RTU":                        {newPassive(), []ib.Message{rtu}, CMEstablished, false},
		"RTU with an unknown ID":     {newPassive(), []ib.Message{ib.RTU{LocalCommID: peer, RemoteCommID: other}}, CMReplied, false},
		"REJ of a REP":               {newPassive(), []ib.Message{rej}, CMIdle, false},
		"DREQ":                       {newPassive(), []ib.Message{rtu, dreq}, CMTimeWait, true},
		"DREQ again":                 {newPassive(), []ib.Message{rtu, dreq, dreq}, CMTimeWait, true},
		"DREQ for another QP":        {newPassive(), []ib.Message{rtu, ib.DREQ{LocalCommID: peer, RemoteCommID: device, RemoteQPN: other}}, CMEstablished, false},
		"REP":                        {newActive(), []ib.Message{rep}, CMEstablished, true},
		"REP again":                  {newActive(), []ib.Message{rep, rep}, CMEstablished, true},
		"REP for another REQ":        {newActive(), []ib.Message{ib.REP{LocalCommID: peer, RemoteCommID: other}}, CMRequesting, false},
		"REJ of a REQ":               {newActive(), []ib.Message{rej}, CMIdle, false},
		"RTU to the active side":     {newActive(), []ib.Message{rtu}, CMRequesting, false},
		"DREP that nobody asked for": {newPassive(), []ib.Message{rtu, ib.DREP{LocalCommID: peer, RemoteCommID: device}}, CMEstablished, false},
	} {
		var reply CMReply
		for _, m := range test.in {
			reply = test.conn.Receive(m)
		}
		if test.conn.State != test.want || (reply.Must != nil) != test.must {
			t.Errorf("%s: %v with the answer %v, want %v", name, test.conn.State, reply.Must, test.want)
		}
	}
}

func TestCMConnDataStandsForRTU(t *testing.T) {
	c := newPassive()
	if c.Data(); c.State != CMEstablished || !c.WasEstablished {
		t.Errorf("%v after data, want %v", c.State, CMEstablished)
	}
}

func TestCMTimer(t *testing.T) {
	const ms = time.Millisecond
	timer := CMTimer{Timeout: 100 * ms, Retries: 2}
	timer.Start(0)
	if timer.Retransmitted(50*ms) == nil {
		t.Error("a retransmission after half the timeout is accepted")
	}
	if err := timer.Retransmitted(100 * ms); err != nil {
		t.Error(err)
	}
	timer.Prolong(110*ms, 400*ms)
	if timer.Retransmitted(250*ms) == nil {
		t.Error("a retransmission before the service timeout is accepted")
	}
	if err := timer.Retransmitted(520 * ms); err != nil {
		t.Error(err)
	}
	if timer.Retransmitted(620*ms) == nil {
		t.Error("a third retransmission is accepted")
	}
	if timer.GivenUp(550*ms) || !timer.GivenUp(620*ms) {
		t.Error("the device gives up one timeout after the last retry")
	}
}

func TestSIDRIgnoresOtherAndSecondReplies(t *testing.T) {
	q := SIDRResolve{ID: 7}
	for _, rep := range []ib.SIDRREP{
		{RequestID: new(uint32(8)), QPN: new(uint32(1))}, {RequestID: new(uint32(7)), QPN: new(uint32(2))}, {RequestID: new(uint32(7)), QPN: new(uint32(3))},
	} {
		q.Receive(rep)
	}
	if q.Reply == nil || *q.Reply.QPN != 2 {
		t.Errorf("%+v, want the second reply", q.Reply)
	}
}
