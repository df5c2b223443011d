package model_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	testMTU    = 256
	testOldest = ib.PSN(0xffffff) // PSNs wrap in all tests
)

// requester returns a model that has sent a WRITE (1), a SEND of three packets (2), a READ of two
// responses (3) and a SEND (4): PSNs 0, 1 to 3, 4 to 5, and 6 after testOldest.
func requester(t *testing.T, a model.RCRequesterAttr) *model.RCRequester {
	t.Helper()
	a.MTU, a.FirstPSN = testMTU, testOldest
	if a.MaxRdAtomic == 0 {
		a.MaxRdAtomic = 1
	}
	m := model.NewRCRequester(a)
	post(m, 1, verbs.OpRDMAWrite, 8)
	post(m, 2, verbs.OpSend, 3*testMTU)
	post(m, 3, verbs.OpRDMARead, testMTU+1)
	post(m, 4, verbs.OpSend, 0)
	expectSent(t, m, 0, 0, 1, 2, 3, 4, 6)
	return m
}

func post(m *model.RCRequester, id uint64, op verbs.WROpcode, n int) {
	r := &model.RCRequest{SendWR: verbs.SendWR{WRID: id, Opcode: op, Flags: verbs.SendSignaled}}
	if op == verbs.OpRDMARead {
		r.Len = n
	} else {
		r.Data = make([]byte, n)
	}
	m.Post(r)
}

// expectSent sends the packets with these offsets from testOldest, which must be all that the model
// requires now.
func expectSent(t *testing.T, m *model.RCRequester, now time.Duration, offsets ...int) {
	t.Helper()
	for _, k := range offsets {
		permitted := m.Permitted(now)
		i := slices.IndexFunc(permitted, func(s model.RCSend) bool { return s.Packet.PSN() == testOldest.Add(k) })
		if i < 0 {
			t.Fatalf("packet %d is not permitted, but %v", k, permitted)
		}
		m.Sent(permitted[i], permitted[i].Packet.AckReq(), now)
	}
	if p, missing := m.Missing(); missing {
		t.Fatalf("%v is required too", p)
	}
}

// expectCompletions compares the completions, as "ID:status".
func expectCompletions(t *testing.T, m *model.RCRequester, want ...string) {
	t.Helper()
	var got []string
	for _, c := range m.TakeCompletions() {
		got = append(got, fmt.Sprintf("%d:%d", c.Request.WRID, c.Status))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("completions %v, want %v", got, want)
	}
}

func at(k int) ib.PSN { return testOldest.Add(k) }

func TestRCRequesterResponses(t *testing.T) {
	bytes := make([]byte, testMTU)
	for _, test := range []struct {
		name        string
		responses   []ib.Packet
		completions []string
		sent        []int
	}{
		{"ACK", []ib.Packet{ib.Ack(at(3), 2)}, []string{"1:0", "2:0"}, nil},
		{"ACK inside a message", []ib.Packet{ib.Ack(at(2), 1)}, []string{"1:0"}, nil},
		{"stale ACK", []ib.Packet{ib.Ack(at(-1), 1)}, nil, nil},
		{"ACK of an unsent PSN", []ib.Packet{ib.Ack(at(7), 1)}, nil, nil},
		{"ACK after an unanswered READ", []ib.Packet{ib.Ack(at(6), 1)}, []string{"1:0", "2:0"}, []int{4, 6}},
		{"sequence NAK", []ib.Packet{ib.Nak(at(2), ib.NakSequence, 1)}, []string{"1:0"}, []int{2, 3, 4, 6}},
		{"first READ response", []ib.Packet{ib.Response(ib.OpReadResponseFirst, at(4), 2, bytes)}, []string{"1:0", "2:0"}, nil},
		{"all responses", []ib.Packet{
			ib.Response(ib.OpReadResponseFirst, at(4), 2, bytes), ib.Response(ib.OpReadResponseLast, at(5), 3, bytes[:1]), ib.Ack(at(6), 4),
		}, []string{"1:0", "2:0", "3:0", "4:0"}, nil},
		{"lost READ response", []ib.Packet{ib.Response(ib.OpReadResponseFirst, at(4), 2, bytes), ib.Ack(at(6), 4)}, []string{"1:0", "2:0"}, []int{5, 6}},
		{"fatal NAK", []ib.Packet{ib.Nak(at(3), ib.NakRemoteAccess, 1)}, []string{"1:0", "2:10", "3:5", "4:5"}, nil},
		{"atomic response to a READ", []ib.Packet{ib.Ack(at(3), 2), ib.AtomicAck(at(4), 3, 0)}, []string{"1:0", "2:0", "3:7", "4:5"}, nil},
		{"long READ response", []ib.Packet{
			ib.Response(ib.OpReadResponseFirst, at(4), 2, bytes), ib.Response(ib.OpReadResponseLast, at(5), 3, bytes[:2]),
		}, []string{"1:0", "2:0", "3:21", "4:5"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := requester(t, model.RCRequesterAttr{RetryCnt: 7, RNRRetry: 7})
			for _, p := range test.responses {
				if !m.Defined(p) {
					t.Fatalf("the effect of %v is not defined", p)
				}
				m.Receive(p, 0)
			}
			expectCompletions(t, m, test.completions...)
			expectSent(t, m, 0, test.sent...)
		})
	}
}

func TestRCRequesterWaitsForRNRTimer(t *testing.T) {
	m := requester(t, model.RCRequesterAttr{RetryCnt: 7, RNRRetry: 1})
	m.Receive(ib.RNR(at(1), 12, 1), 0) // 640 µs
	expectCompletions(t, m, "1:0")
	if got := m.Permitted(639 * time.Microsecond); len(got) > 0 {
		t.Fatalf("%v is permitted before the timer has expired", got)
	}
	expectSent(t, m, 640*time.Microsecond, 1, 2, 3, 4, 6)
	m.Receive(ib.RNR(at(1), 12, 1), time.Millisecond)
	expectCompletions(t, m, "2:13", "3:5", "4:5")
}

func TestRCRequesterTimesOut(t *testing.T) {
	m := requester(t, model.RCRequesterAttr{RetryCnt: 1, RNRRetry: 7, Timeout: time.Millisecond})
	if got := m.Permitted(999 * time.Microsecond); len(got) > 0 {
		t.Fatalf("%v is permitted before the timeout", got)
	}
	expectSent(t, m, time.Millisecond, 0, 1, 2, 3, 4, 6)
	if m.MayFail(verbs.WCRetryExcErr, 1999*time.Microsecond) || !m.MayFail(verbs.WCRetryExcErr, 2*time.Millisecond) || !m.MustGiveUp() {
		t.Error("the request does not fail at the second timeout")
	}
}

func TestRCRequesterLimitsReads(t *testing.T) {
	m := requester(t, model.RCRequesterAttr{MaxRdAtomic: 2, RetryCnt: 7})
	post(m, 5, verbs.OpRDMARead, 8)
	expectSent(t, m, 0, 7)
	post(m, 6, verbs.OpRDMARead, 8)
	post(m, 7, verbs.OpSend, 8)
	expectSent(t, m, 0)
}

func TestRCRequesterSendsOnePacketWithoutCredit(t *testing.T) {
	m := requester(t, model.RCRequesterAttr{MaxRdAtomic: 4, RetryCnt: 7, HeedsCredits: true})
	m.Receive(ib.Ack(at(0), 1).WithCredits(3), 0) // for requests 2 to 4
	post(m, 5, verbs.OpRDMAWrite, 8)
	post(m, 6, verbs.OpSend, 2*testMTU)
	expectSent(t, m, 0, 7, 8)
	if got := m.Permitted(0); len(got) > 0 {
		t.Fatalf("%v is permitted without a credit", got)
	}
	m.Receive(ib.Ack(at(0), 1).WithCredits(6), 0)
	expectSent(t, m, 0, 9)
}

func TestRCRequesterSendsAllWithoutCreditCount(t *testing.T) {
	m := model.NewRCRequester(model.RCRequesterAttr{MTU: testMTU, FirstPSN: testOldest, MaxRdAtomic: 1, HeedsCredits: true})
	for id := range uint64(4) {
		post(m, id+1, verbs.OpSend, 8)
		if id == 0 {
			expectSent(t, m, 0, 0)
			m.Receive(ib.Ack(at(0), 1).WithCredits(0), 0)
		}
	}
	expectSent(t, m, 0, 1)
	m.Receive(ib.Ack(at(1), 2).WithCredits(ib.NoCreditCount), 0)
	expectSent(t, m, 0, 2, 3)
}

func TestRCRequesterCompletesFlushByEmptyResponse(t *testing.T) {
	m := model.NewRCRequester(model.RCRequesterAttr{MTU: testMTU, FirstPSN: testOldest, MaxRdAtomic: 1})
	m.Post(&model.RCRequest{SendWR: verbs.SendWR{WRID: 1, Opcode: verbs.OpFlush, Flags: verbs.SendSignaled}})
	expectSent(t, m, 0, 0)
	m.Receive(ib.ReadResponseOnly(at(0), 1, []byte{}), 0)
	if !m.Idle() || len(m.TakeCompletions()) != 1 {
		t.Error("the FLUSH is not complete")
	}
}

func TestRCRequesterBindsInOrder(t *testing.T) {
	m := requester(t, model.RCRequesterAttr{RetryCnt: 7})
	window := new(model.RCWindow)
	for id, op := range []verbs.WROpcode{verbs.OpBindMW, verbs.OpLocalInv, verbs.OpBindMW, verbs.OpBindMW} {
		m.Post(&model.RCRequest{SendWR: verbs.SendWR{WRID: uint64(5 + id), Opcode: op, Flags: verbs.SendSignaled}, Window: window})
	}
	m.Receive(ib.Response(ib.OpReadResponseFirst, at(4), 2, make([]byte, testMTU)), 0)
	expectCompletions(t, m, "1:0", "2:0")
	m.Receive(ib.Response(ib.OpReadResponseLast, at(5), 3, []byte{1}), 0)
	m.Receive(ib.Ack(at(6), 4), 0)
	expectCompletions(t, m, "3:0", "4:0", "5:0", "6:0", "7:0", "8:6")
	if !m.Failed() {
		t.Error("the queue pair is not in ERR")
	}
}
