package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// rc/tmo/1, rc/tmo/2, rc/tmo/4, rc/tmo/5: retry_cnt n allows n retransmissions, one
// timeout apart; 7 is not unlimited.
func TestRCRequesterRetransmitsAfterTimeoutUntilRetriesEnd(t *testing.T) {
	for retries := range uint8(8) {
		for _, code := range []uint8{1, 8, 14, 31} {
			T := 4096 * time.Nanosecond << code
			p := newPeer(t, flavours[int(retries+code)%len(flavours)], setup{attr: func(a *verbs.QPAttr) { a.RetryCnt, a.Timeout = retries, code }})
			p.recv(9, 8)
			p.to(12345)
			p.post(1, verbs.OpSend, 4)
			p.post(2, verbs.OpRDMARead, 4)
			sent := []string{"SEND_ONLY 0 4B ackreq", "READ_REQUEST 1 va+0 len 4 ackreq"}
			p.expect(sent...)
			for range retries {
				p.wait(T)
				p.expect(sent...)
				p.wcs()
			}
			p.silence(T - 1)
			p.wcs()
			p.silence(1)
			p.wcs("1 RETRY_EXC_ERR", "2 WR_FLUSH_ERR", "9 WR_FLUSH_ERR")
			p.state(verbs.QPStateErr)
			p.silence(10 * T)
		}
	}
}

// rc/tmo/3: timeout 0 turns the timer off.
func TestRCTimeoutZeroNeverFires(t *testing.T) {
	each(t, setup{attr: func(a *verbs.QPAttr) { a.Timeout = 0 }}, func(p *peer) {
		p.post(1, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq")
		if d := p.h.nic.Deadline(); d != mono.Never {
			p.Errorf("deadline %v", d)
		}
		p.silence(24 * time.Hour)
		p.ack(0)
		p.wcs("1 SUCCESS SEND")
	})
}

// rc/tmo/2: The timer starts with the first unacknowledged packet. Progress
// restarts it, sending does not.
func TestRCTimerRestartsOnProgress(t *testing.T) {
	const T = 4096 << 8
	each(t, setup{attr: func(a *verbs.QPAttr) { a.Timeout = 8 }}, func(p *peer) {
		p.to(1000)
		p.post(1, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.to(1000 + T/2)
		p.post(2, verbs.OpSend, 4)
		p.expect("SEND_ONLY 1 4B ackreq")
		p.to(1000 + T)
		p.expect("SEND_ONLY 0 4B ackreq", "SEND_ONLY 1 4B ackreq")
		p.to(1000 + 3*T/2)
		p.ack(0)
		p.to(1000 + 5*T/2)
		p.expect("SEND_ONLY 1 4B ackreq")
		p.ack(1)
		p.silence(10 * T)
		if d := p.h.nic.Deadline(); d != mono.Never {
			p.Errorf("deadline %v with nothing outstanding", d)
		}
	})
}

// rc/tmo/6: Any progress restores the retry counter.
func TestRCProgressRestoresRetryCounter(t *testing.T) {
	const T = 4096 << 8
	each(t, setup{attr: func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt = 8, 1 }}, func(p *peer) {
		for k := range 20 {
			p.post(uint64(k), verbs.OpSend, 4)
			send := fmt.Sprintf("SEND_ONLY %d 4B ackreq", k)
			p.expect(send)
			p.wait(T)
			p.expect(send)
			p.ack(k)
			p.wcs(fmt.Sprintf("%d SUCCESS SEND", k))
		}
		p.post(20, verbs.OpRDMARead, 3*p.mtu)
		p.expect(fmt.Sprintf("READ_REQUEST 20 va+0 len %d ackreq", 3*p.mtu))
		for k, op := range []wire.Operation{wire.OpReadResponseFirst, wire.OpReadResponseMiddle} {
			p.wait(T)
			p.h.nic.Output(p.now, p.ds)
			p.send(op, 20+k, data(p.mtu))
		}
		p.wait(T)
		p.expect(fmt.Sprintf("READ_REQUEST 22 va+%d len %d ackreq", 2*p.mtu, p.mtu))
		p.send(wire.OpReadResponseOnly, 22, data(p.mtu))
		p.wcs(fmt.Sprintf("20 SUCCESS RDMA_READ %dB", 3*p.mtu))
	})
}

// rc/tmo/7, rc/tmo/8, rc/tmo/10: A sequence NAK acknowledges earlier PSNs and
// causes retransmission of the rest at once.
func TestRCSequenceNAKRetransmitsWithinMessage(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		m := p.mtu
		p.post(1, verbs.OpSend, 4)
		p.post(2, verbs.OpRDMAWrite, 4*m+9)
		p.h.nic.Output(p.now, p.ds)
		p.nak(3, wire.NakPSNSequence)
		p.wcs("1 SUCCESS SEND")
		p.expect(fmt.Sprintf("WRITE_MIDDLE 3 %dB", m), fmt.Sprintf("WRITE_MIDDLE 4 %dB", m), "WRITE_LAST 5 9B ackreq")
		if string(p.got[0].Payload) != string(p.h.mem[sourceAt+2*m:][:m]) {
			p.Error("other data when retransmitted")
		}
	})
}

// rc/tmo/9, rc/tmo/11: Duplicate NAKs cause one retransmission; a NAK for a later
// PSN causes another.
func TestRCEachLossCausesOneRetransmission(t *testing.T) {
	each(t, setup{attr: func(a *verbs.QPAttr) { a.RetryCnt = 1 }}, func(p *peer) {
		var sent []string
		for k := range 5 {
			p.post(uint64(k), verbs.OpSend, 4)
			sent = append(sent, fmt.Sprintf("SEND_ONLY %d 4B ackreq", k))
		}
		p.expect(sent...)
		for range 8 {
			p.nak(1, wire.NakPSNSequence)
		}
		p.expect(sent[1:]...)
		p.nak(1, wire.NakPSNSequence)
		p.expect()
		p.nak(3, wire.NakPSNSequence)
		p.expect(sent[3:]...)
		p.wcs("0 SUCCESS SEND", "1 SUCCESS SEND", "2 SUCCESS SEND")
		p.nak(3, wire.NakPSNSequence)
		p.expect()
		// The timer still runs.
		p.wait(wire.AckTimeout(14))
		p.wcs("3 RETRY_EXC_ERR", "4 WR_FLUSH_ERR")
	})
}

// rc/tmo/4: Retransmissions after NAKs count as retries.
func TestRCNAKsWithoutProgressExhaustTheRetries(t *testing.T) {
	const T = 4096 << 8
	each(t, setup{attr: func(a *verbs.QPAttr) { a.RetryCnt, a.Timeout = 2, 8 }}, func(p *peer) {
		p.post(1, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.nak(0, wire.NakPSNSequence)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.wait(T)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.nak(0, wire.NakPSNSequence)
		p.wcs("1 RETRY_EXC_ERR")
	})
}

// rc/tmo/7: An ACK during retransmission makes the requester skip the acknowledged packets.
func TestRCAckDuringRetransmissionSkipsPackets(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		m := p.mtu
		p.post(1, verbs.OpRDMAWrite, 4*m)
		p.post(2, verbs.OpRDMARead, 2*m)
		p.post(3, verbs.OpSend, 4)
		p.h.nic.Output(p.now, p.ds)
		p.nak(0, wire.NakPSNSequence)
		if n := p.h.nic.Output(p.now, p.ds[:1]); n != 1 {
			p.Fatal("nothing sent")
		}
		p.ack(2) // of the first transmission
		p.expect(fmt.Sprintf("WRITE_LAST 3 %dB ackreq", m), fmt.Sprintf("READ_REQUEST 4 va+0 len %d ackreq", 2*m), "SEND_ONLY 6 4B ackreq")
		p.nak(3, wire.NakPSNSequence)
		p.send(wire.OpReadResponseFirst, 4, data(m)) // the response to the first request
		p.wcs("1 SUCCESS RDMA_WRITE")
		p.expect(fmt.Sprintf("READ_REQUEST 5 va+%d len %d ackreq", m, m), "SEND_ONLY 6 4B ackreq")
		p.send(wire.OpReadResponseLast, 5, data(m))
		p.send(wire.OpReadResponseOnly, 5, data(m)) // the response to the second
		p.ack(6)
		p.wcs(fmt.Sprintf("2 SUCCESS RDMA_READ %dB", 2*m), "3 SUCCESS SEND")
		p.silence(time.Second)
	})
}

// rc/tmo/7: A bind has no packet. An ACK during the retransmission of the requests
// around it completes it, and the retransmission continues.
func TestRCAckAtLocalOperationDuringRetransmission(t *testing.T) {
	each(t, setup{attr: func(a *verbs.QPAttr) { a.Timeout = 8 }}, func(p *peer) {
		p.post(1, verbs.OpSend, 4)
		p.bind(2, p.window(verbs.MWType2), 0, 64)
		p.post(3, verbs.OpSend, 4)
		sent := []string{"SEND_ONLY 0 4B ackreq", "SEND_ONLY 1 4B ackreq"}
		p.expect(sent...)
		p.wait(4096 << 8)
		p.expectSome(sent[0])
		p.ack(0)
		p.wcs("1 SUCCESS SEND", "2 SUCCESS BIND_MW")
		p.expect(sent[1])
		p.ack(1)
		p.wcs("3 SUCCESS SEND")
	})
}

// rc/tmo/4: Time that a retransmission waits for congestion control does not use a retry.
func TestRCRateLimitedRetransmissionUsesRetryWhenSent(t *testing.T) {
	const T = 4096 << 1
	each(t, setup{attr: func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt = 1, 2 }}, func(p *peer) {
		p.post(1, verbs.OpSend, 200)
		for range 2000 { // as slow as it gets
			p.now += 60_000
			p.q.limiter.OnCNP(p.now, &p.h.nic.cfg.Congestion)
		}
		if rate := p.q.limiter.RateBps(&p.q.nic.cfg.Congestion); rate > 100_000_000 {
			p.Fatalf("rate is still %d", rate)
		}
		p.expect("SEND_ONLY 0 200B ackreq")
		for range 2 {
			last := p.now
			for n := 0; n == 0; n = p.h.nic.Output(p.now, p.ds) {
				p.wcs()
				p.now = p.h.nic.Deadline()
				p.h.nic.Tick(p.now)
			}
			if waited := p.now.Sub(last); waited < 2*T {
				p.Fatalf("retransmitted after %v, longer than the rate requires", waited)
			}
		}
		p.silence(T - 1)
		p.wcs()
		p.silence(1)
		p.wcs("1 RETRY_EXC_ERR")
	})
}

// rc/tmo/13: After RESET or destroy, the QP sends no packets and completions and has no timers.
func TestRCResetAndDestroyStopAllActivity(t *testing.T) {
	for name, end := range map[string]func(p *peer) error{
		"RESET": func(p *peer) error {
			return p.q.Modify(p.now, verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState)
		},
		"destroy": func(p *peer) error { return p.h.nic.DestroyQP(p.q) },
	} {
		for _, output := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s sent=%v", name, output), func(t *testing.T) {
				each(t, setup{}, func(p *peer) {
					p.post(1, verbs.OpSend, 4)
					p.post(2, verbs.OpRDMARead, 4)
					if output {
						p.h.nic.Output(p.now, p.ds)
						p.rnr(0, 20)
					}
					p.send(wire.OpReadRequest, 0, p.at(0, 4*p.mtu))
					p.send(wire.OpWriteOnly, 4, p.at(0, 0), ackReq)
					must.Do(p, end(p))
					p.silence(10 * time.Second)
					p.ack(0)
					p.wcs()
					if d := p.h.nic.Deadline(); d != mono.Never {
						p.Errorf("deadline %v", d)
					}
				})
			})
		}
	}
}

// sqd/1, sqd/2: In SQD, sent requests finish and no new ones start. SQ_DRAINED is
// raised although requests are queued.
func TestRCSQDFinishesSentRequests(t *testing.T) {
	each(t, setup{nic: func(c *Config) { c.WindowPackets = 2 }}, func(p *peer) {
		p.post(1, verbs.OpSend, p.mtu+1)
		p.post(2, verbs.OpSend, 4)
		p.expect(fmt.Sprintf("SEND_FIRST 0 %dB ackreq", p.mtu), "SEND_LAST 1 1B ackreq")
		p.h.modify(p.q, verbs.QPAttr{State: verbs.QPStateSQD, EnSQDAsyncNotify: true}, verbs.QPAttrState|verbs.QPAttrEnSQDAsyncNotify)
		p.events()
		p.ack(0)
		p.expect()
		p.events()
		p.ack(1)
		p.events(verbs.EventSQDrained)
		p.wcs("1 SUCCESS SEND")
		p.silence(time.Second)
		p.h.modify(p.q, verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState)
		p.expect("SEND_ONLY 2 4B ackreq")
	})
}
