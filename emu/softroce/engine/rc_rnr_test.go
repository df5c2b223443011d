package engine

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// rc/rnr/1, rc/rnr/11: A message without a receive gets an RNR NAK with the
// configured timer code, including 0.
func TestRCMessageWithoutReceiveGetsRNRNAK(t *testing.T) {
	for _, code := range []uint8{0, 1, 12, 31} {
		for _, op := range []wire.Operation{wire.OpSendFirst, wire.OpSendOnly, wire.OpSendOnlyImm, wire.OpSendOnlyInv, wire.OpWriteOnlyImm} {
			t.Run(fmt.Sprintf("%v code %d", wire.Opcode(op), code), func(t *testing.T) {
				each(t, setup{attr: func(a *verbs.QPAttr) { a.MinRNRTimer = code }}, func(p *peer) {
					p.send(op, 0, p.at(0, p.mtu), data(p.mtu))
					p.expect(fmt.Sprintf("RNR 0 code %d msn 0", code))
					p.state(verbs.QPStateRTS)
					p.events()
				})
			})
		}
	}
}

// rc/rnr/2: An RNR NAK changes no state; the packet is accepted later.
func TestRCRNRNAKChangesNoState(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		before := bytes.Clone(p.target(0, 64))
		write := func() { p.send(wire.OpWriteOnlyImm, 0, p.at(0, 8), data(8), imm(7), ackReq) }
		write()
		p.expect("RNR 0 code 12 msn 0")
		write()
		p.expect("RNR 0 code 12 msn 0")
		if !bytes.Equal(p.target(0, 64), before) {
			p.Error("data of a NAKed WRITE was written")
		}
		p.recv(1, 0)
		write()
		p.expect("ACK 0 msn 1")
		p.wcs("1 SUCCESS RECV_RDMA_WITH_IMM 8B imm 00000007")
		if bytes.Equal(p.target(0, 8), before[:8]) {
			p.Error("data was not written")
		}
	})
}

// rc/rnr/3: A WRITE with immediate gets the RNR NAK at its last packet, and only
// that packet is retransmitted.
func TestRCRNRNAKOfWriteWithImmediateIsAtLastPacket(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.send(wire.OpWriteFirst, 0, p.at(0, p.mtu+4), data(p.mtu))
		p.expect()
		p.send(wire.OpWriteLastImm, 1, data(4), imm(1))
		p.expect("RNR 1 code 12 msn 0")
		p.recv(1, 0)
		p.send(wire.OpWriteLastImm, 1, data(4), imm(1), ackReq)
		p.expect("ACK 1 msn 1")
		p.wcs(fmt.Sprintf("1 SUCCESS RECV_RDMA_WITH_IMM %dB imm 00000001", p.mtu+4))
	})
}

// rc/rnr/4: Packets after an RNR NAK are dropped without a NAK. Later gaps are NAKed again.
func TestRCPacketsAfterRNRNAKAreDropped(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.send(wire.OpSendOnly, 0)
		p.expect("RNR 0 code 12 msn 0")
		p.send(wire.OpSendOnly, 1, ackReq)
		p.send(wire.OpWriteOnly, 2, p.at(0, 0), ackReq)
		p.silence(time.Second)
		p.recv(1, 8)
		p.send(wire.OpSendOnly, 0, ackReq)
		p.expect("ACK 0 msn 1")
		p.send(wire.OpWriteOnly, 2, p.at(0, 0), ackReq)
		p.expect("NAK 1 sequence msn 1")
	})
}

// rc/rnr/5, rc/rnr/10, rc/rnr/11: The requester retransmits exactly when the RNR
// timer expires, independent of the transport timer.
func TestRCRequesterWaitsForRNRTimer(t *testing.T) {
	us := func(n int) time.Duration { return time.Duration(n) * time.Microsecond }
	for code, delay := range []time.Duration{
		us(655360), us(10), us(20), us(30), us(40), us(60), us(80), us(120),
		us(160), us(240), us(320), us(480), us(640), us(960), us(1280), us(1920),
		us(2560), us(3840), us(5120), us(7680), us(10240), us(15360), us(20480), us(30720),
		us(40960), us(61440), us(81920), us(122880), us(163840), us(245760), us(327680), us(491520),
	} {
		for _, timeout := range []uint8{0, 1, 14} { // off, 8.2 µs, 67 ms
			p := newPeer(t, flavours[code%len(flavours)], setup{attr: func(a *verbs.QPAttr) { a.Timeout = timeout }})
			p.post(1, verbs.OpSend, 4)
			p.expect("SEND_ONLY 0 4B ackreq")
			p.now += 1000
			p.rnr(0, uint8(code))
			p.post(2, verbs.OpRDMAWrite, 4) // the rest of the queue waits too
			p.wait(delay)
			p.expect("SEND_ONLY 0 4B ackreq", "WRITE_ONLY 1 4B va+0 len 4 ackreq")
			if timeout != 0 {
				p.wait(wire.AckTimeout(timeout)) // the timer is restarted
				p.expect("SEND_ONLY 0 4B ackreq", "WRITE_ONLY 1 4B va+0 len 4 ackreq")
			}
		}
	}
}

// rc/rnr/6: rnr_retry n allows n retransmissions, 7 (rc/rnr/7) any number. The
// counter is independent of retry_cnt (rc/rnr/8).
func TestRCRNRRetriesAreLimited(t *testing.T) {
	for retries := range uint8(8) {
		t.Run(fmt.Sprint(retries), func(t *testing.T) {
			each(t, setup{attr: func(a *verbs.QPAttr) { a.RNRRetry, a.RetryCnt = retries, 0 }}, func(p *peer) {
				p.post(1, verbs.OpSend, 4)
				p.post(2, verbs.OpSend, 4)
				p.expect("SEND_ONLY 0 4B ackreq", "SEND_ONLY 1 4B ackreq")
				rounds := int(retries)
				if retries == 7 {
					rounds = 40
				}
				for range rounds {
					p.rnr(0, 1)
					p.wcs()
					p.wait(10 * time.Microsecond)
					p.expect("SEND_ONLY 0 4B ackreq", "SEND_ONLY 1 4B ackreq")
				}
				if retries == 7 {
					p.state(verbs.QPStateRTS)
					p.ack(1)
					p.wcs("1 SUCCESS SEND", "2 SUCCESS SEND")
					return
				}
				p.rnr(0, 1)
				p.wcs("1 RNR_RETRY_EXC_ERR", "2 WR_FLUSH_ERR")
				p.state(verbs.QPStateErr)
				p.silence(time.Second)
			})
		})
	}
}

// rc/rnr/8: retry_cnt and rnr_retry are counted separately, and both are restored by progress.
func TestRCRetryCountersAreIndependentAndReload(t *testing.T) {
	const timeout = 4096 << 8
	each(t, setup{attr: func(a *verbs.QPAttr) { a.RNRRetry, a.RetryCnt, a.Timeout = 1, 1, 8 }}, func(p *peer) {
		for k := range 3 {
			send := fmt.Sprintf("SEND_ONLY %d 4B ackreq", k)
			p.post(uint64(k), verbs.OpSend, 4)
			p.expect(send)
			p.wait(timeout)
			p.expect(send)
			p.rnr(k, 1)
			p.wait(10 * time.Microsecond)
			p.expect(send)
			p.ack(k)
			p.wcs(fmt.Sprintf("%d SUCCESS SEND", k))
		}
		p.post(3, verbs.OpSend, 4)
		p.expect("SEND_ONLY 3 4B ackreq")
		p.rnr(3, 1)
		p.wait(10 * time.Microsecond)
		p.expect("SEND_ONLY 3 4B ackreq")
		p.wait(timeout)
		p.expect("SEND_ONLY 3 4B ackreq")
		p.rnr(3, 1)
		p.wcs("3 RNR_RETRY_EXC_ERR")
	})
}

// rc/rnr/9: An RNR NAK acknowledges all earlier PSNs.
func TestRCRNRNAKAcknowledgesEarlierPSNs(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpRDMAWrite, p.mtu+1)
		p.post(2, verbs.OpRDMAWriteImm, p.mtu+1)
		p.h.nic.Output(p.now, p.ds)
		p.rnr(3, 1)
		p.wcs("1 SUCCESS RDMA_WRITE")
		p.wait(10 * time.Microsecond)
		p.expect("WRITE_LAST_IMM 3 1B imm 00000000 ackreq") // rc/rnr/3
	})
}

// rc/rnr/5: A duplicate RNR NAK during the wait neither extends it nor counts; a
// sequence NAK for the same PSN does not shorten it.
func TestRCDuplicateRNRNAKIsIgnored(t *testing.T) {
	each(t, setup{attr: func(a *verbs.QPAttr) { a.RNRRetry, a.RetryCnt = 1, 0 }}, func(p *peer) {
		p.post(1, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.rnr(0, 12)
		for range 3 {
			p.silence(100 * time.Microsecond)
			p.rnr(0, 12)
			p.nak(0, wire.NakPSNSequence)
		}
		p.wcs()
		p.wait(340 * time.Microsecond)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.state(verbs.QPStateRTS)
	})
}

// rc/rnr/5: An ACK of the packet ends the RNR wait.
func TestRCAckEndsRNRWait(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpSend, 4)
		p.post(2, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq", "SEND_ONLY 1 4B ackreq")
		p.rnr(0, 0)
		p.wait(time.Millisecond)
		p.ack(0)
		p.wcs("1 SUCCESS SEND")
		p.expect("SEND_ONLY 1 4B ackreq")
		p.ack(1)
		p.wcs("2 SUCCESS SEND")
		p.silence(2 * time.Second)
	})
}
