package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// sparse saves ACKs of unsignaled WRITEs.
func sparse(c *Config) { c.SparseAckReq = true }

// writeOnly returns how the k-th WRITE of four bytes is printed.
func writeOnly(k int) string { return fmt.Sprintf("WRITE_ONLY %d 4B va+0 len 4", k) }

// rc/ack/8: An unsignaled WRITE requests no ACK, and completes with the ACK of the next signaled request.
func TestRCUnsignaledWriteRequestsNoAck(t *testing.T) {
	each(t, setup{nic: sparse}, func(p *peer) {
		p.post(1, verbs.OpRDMAWrite, 4, unsignaled)
		p.post(2, verbs.OpRDMAWrite, p.mtu+1, unsignaled)
		p.post(3, verbs.OpSend, 4, unsignaled)
		p.post(4, verbs.OpRDMAWrite, 4)
		p.expect(writeOnly(0), fmt.Sprintf("WRITE_FIRST 1 %dB va+0 len %d", p.mtu, p.mtu+1), "WRITE_LAST 2 1B", "SEND_ONLY 3 4B ackreq", writeOnly(4)+" ackreq")
		p.ack(4)
		p.wcs("4 SUCCESS RDMA_WRITE")
		p.silence(time.Second)
		if d := p.h.nic.Deadline(); d != mono.Never {
			p.Errorf("deadline %v with nothing outstanding", d)
		}
	})
}

// rc/ack/8: Of many unsignaled WRITEs the requester requests ACKs four times per send queue.
func TestRCRequestsAcksOfManyUnsignaledWrites(t *testing.T) {
	each(t, setup{nic: sparse, qp: func(c *QPConfig) { c.Caps.MaxSendWR = 16 }}, func(p *peer) {
		var want []string
		for k := range 12 {
			p.post(uint64(k), verbs.OpRDMAWrite, 4, unsignaled)
			want = append(want, writeOnly(k))
			if k%4 == 0 && k > 0 {
				want[k] += " ackreq"
			}
		}
		p.expect(want...)
	})
}

// rc/tmo/1, rc/ack/8: If the transport timer expires and no ACK was requested, the requester retransmits
// the newest packet to request one, which uses no retry. Then it retransmits everything.
func TestRCTimeoutSolicitsAckOfUnsignaledWrites(t *testing.T) {
	const T = 4096 << 8
	each(t, setup{nic: sparse, attr: func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt = 8, 1 }}, func(p *peer) {
		p.to(1000)
		for k := range 3 {
			p.post(uint64(k), verbs.OpRDMAWrite, 4, unsignaled)
		}
		p.expect(writeOnly(0), writeOnly(1), writeOnly(2))
		p.wait(T)
		p.expect(writeOnly(2) + " ackreq")
		p.wait(T)
		p.expect(writeOnly(0), writeOnly(1), writeOnly(2)+" ackreq")
		p.ack(2)
		p.silence(10 * T)
		p.post(9, verbs.OpSend, 4)
		p.expect("SEND_ONLY 3 4B ackreq")
		p.ack(3)
		p.wcs("9 SUCCESS SEND")
	})
}

// rc/psn/4: A NAK for a lost unsignaled WRITE makes the requester retransmit from it on, and request an ACK.
func TestRCRetransmittedUnsignaledWritesRequestAck(t *testing.T) {
	each(t, setup{nic: sparse}, func(p *peer) {
		for k := range 3 {
			p.post(uint64(k), verbs.OpRDMAWrite, 4, unsignaled)
		}
		p.expect(writeOnly(0), writeOnly(1), writeOnly(2))
		p.nak(1, wire.NakPSNSequence)
		p.expect(writeOnly(1), writeOnly(2)+" ackreq")
	})
}

// qp/sqd: A queue pair that drains its send queue requests the ACK of unsignaled WRITEs.
func TestRCDrainSolicitsAck(t *testing.T) {
	each(t, setup{nic: sparse}, func(p *peer) {
		p.post(1, verbs.OpRDMAWrite, 4, unsignaled)
		p.expect(writeOnly(0))
		p.enter(verbs.QPStateSQD)
		p.expect(writeOnly(0) + " ackreq")
		if !p.q.Query().SQDraining {
			p.Error("the send queue has drained without an ACK")
		}
		p.ack(0)
		if p.q.Query().SQDraining {
			p.Error("the send queue still drains after the ACK")
		}
	})
}

// mw/4: A local invalidate after an unsignaled WRITE waits for its ACK. The WRITE has AckReq if the
// invalidate is posted already, else the requester retransmits it with AckReq.
func TestRCLocalInvalidateRequestsAck(t *testing.T) {
	for _, late := range []bool{false, true} {
		each(t, setup{nic: sparse}, func(p *peer) {
			key := p.bindWindow(1)
			p.post(2, verbs.OpRDMAWrite, 4, unsignaled)
			p.post(3, verbs.OpRDMAWrite, 4, unsignaled)
			if late {
				p.expect(writeOnly(0), writeOnly(1))
			}
			p.post(4, verbs.OpLocalInv, 0, func(wr *verbs.SendWR) { wr.SGL, wr.InvalidateRKey = nil, verbs.RKey(key) })
			if late {
				p.expect(writeOnly(1) + " ackreq")
			} else {
				p.expect(writeOnly(0), writeOnly(1)+" ackreq")
			}
			p.wcs()
			p.ack(1)
			p.silence(time.Second)
			p.wcs("4 SUCCESS LOCAL_INV")
		})
	}
}

// A fenced request waits for the rest of a READ response, and causes no packet meanwhile.
func TestRCFenceAfterPartOfReadSendsNothing(t *testing.T) {
	each(t, setup{nic: sparse}, func(p *peer) {
		p.post(1, verbs.OpRDMARead, 2*p.mtu)
		p.post(2, verbs.OpRDMAWrite, 4, func(wr *verbs.SendWR) { wr.Flags |= verbs.SendFence })
		p.expect(fmt.Sprintf("READ_REQUEST 0 va+0 len %d ackreq", 2*p.mtu))
		p.send(wire.OpReadResponseFirst, 0, data(p.mtu))
		p.expect()
		p.send(wire.OpReadResponseLast, 1, data(p.mtu))
		p.expect(writeOnly(2) + " ackreq")
		p.ack(2)
		p.wcs(fmt.Sprintf("1 SUCCESS RDMA_READ %dB", 2*p.mtu), "2 SUCCESS RDMA_WRITE")
	})
}

// rc/credit/2: A SEND without credits waits for the ACK of an unsignaled WRITE, which the requester requests.
// Later WRITEs have AckReq.
func TestRCSendWithoutCreditsSolicitsAck(t *testing.T) {
	each(t, setup{nic: sparse}, func(p *peer) {
		p.post(1, verbs.OpSend, 4)
		p.post(2, verbs.OpRDMAWrite, 4, unsignaled)
		p.expect("SEND_ONLY 0 4B ackreq", writeOnly(1))
		p.send(wire.OpAcknowledge, 0, syndrome(wire.Ack(wire.CreditCode(0))))
		p.post(3, verbs.OpSend, 4)
		p.expect(writeOnly(1) + " ackreq")
		p.ack(1)
		p.expect("SEND_ONLY 2 4B ackreq")
		p.send(wire.OpAcknowledge, 2, syndrome(wire.Ack(wire.CreditCode(0))))
		p.post(4, verbs.OpRDMAWrite, 4, unsignaled)
		p.expect(writeOnly(3) + " ackreq")
		p.wcs("1 SUCCESS SEND", "3 SUCCESS SEND")
	})
}
