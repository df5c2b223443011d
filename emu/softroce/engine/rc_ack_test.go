package engine

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// rc/ack/1, rc/ack/2: The responder acknowledges a request only if AckReq is set.
func TestRCResponderAcksWhenAckReqIsSet(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.recv(1, 8)
		p.send(wire.OpSendOnly, 0, data(4))
		p.silence(time.Second)
		p.send(wire.OpWriteOnly, 1, p.at(0, 0), ackReq)
		p.expect("ACK 1 msn 2")
	})
}

// rc/ack/3: READs and atomics are answered with or without AckReq.
func TestRCReadsAndAtomicsAreAnsweredWithoutAckReq(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.send(wire.OpReadRequest, 0, p.at(16, 4))
		p.expect("RR_ONLY 0 4B msn 1")
		p.send(wire.OpFetchAdd, 1, p.word(0, 1, 0))
		p.expect(fmt.Sprintf("ATOMIC_ACKNOWLEDGE 1 was %d msn 2", p.wordValue(targetData)))
		p.send(wire.OpAtomicWrite, 2, p.at(8, 8), data(8))
		p.expect("RR_ONLY 2 msn 3")
		p.send(wire.OpFlush, 3, p.at(0, 8), func(k *wire.Packet) { k.FETH.Placement = 1 })
		p.expect("RR_ONLY 3 msn 4")
	})
}

// rc/ack/4, rc/ack/7, rc/ack/8: An ACK acknowledges all PSNs up to its own, also
// within a message. The last packet of a message has AckReq set.
func TestRCAckCoversAllEarlierPSNs(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		for id := range uint64(3) {
			p.post(id, verbs.OpSend, 4)
		}
		p.post(3, verbs.OpRDMAWrite, 4*p.mtu+1)
		m := func(name string, k int) string { return fmt.Sprintf("%s %d %dB", name, k, p.mtu) }
		p.expect("SEND_ONLY 0 4B ackreq", "SEND_ONLY 1 4B ackreq", "SEND_ONLY 2 4B ackreq",
			m("WRITE_FIRST", 3)+fmt.Sprintf(" va+0 len %d", 4*p.mtu+1), m("WRITE_MIDDLE", 4), m("WRITE_MIDDLE", 5), m("WRITE_MIDDLE", 6), "WRITE_LAST 7 1B ackreq")
		p.ack(2)
		p.wcs("0 SUCCESS SEND", "1 SUCCESS SEND", "2 SUCCESS SEND")
		p.ack(5)
		p.wcs()
		p.ack(7)
		p.wcs("3 SUCCESS RDMA_WRITE")
		p.expect()
	})
}

// rc/ack/8: The requester sets AckReq within a long message often enough to keep the window open.
func TestRCRequesterSetsAckReqBeforeWindowIsFull(t *testing.T) {
	for _, window := range []int{1, 2, 8, 31} {
		each(t, setup{nic: func(c *Config) { c.WindowPackets = window }}, func(p *peer) {
			p.post(1, verbs.OpRDMAWrite, 40*p.mtu)
			for acked := 0; acked < 40; {
				n := p.h.nic.Output(p.now, p.ds)
				last := -1
				for i := range n {
					p.checkPacket(&p.ds[i])
					if k := &p.got[len(p.got)-1]; k.BTH.AckReq {
						last = int(k.BTH.PSN.Sub(p.sq))
					}
				}
				if last < 0 || n > window {
					p.Fatalf("window %d: %d packets sent, the last with AckReq is %d", window, n, last)
				}
				p.ack(last)
				acked = last + 1
			}
			p.wcs("1 SUCCESS RDMA_WRITE")
		})
	}
}

// rc/ack/5: An ACK after an unanswered READ or atomic shows that the response was
// lost: earlier requests complete, the rest is retransmitted.
func TestRCAckAfterUnansweredReadRetransmits(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicWrite, verbs.OpFlush} {
		t.Run(op.String(), func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				p.post(1, verbs.OpRDMAWrite, 4)
				p.post(2, op, 8)
				p.post(3, verbs.OpRDMAWrite, 4)
				p.post(4, verbs.OpSend, 4)
				n := p.h.nic.Output(p.now, p.ds)
				var sent []string
				for i := range n {
					sent = append(sent, p.checkPacket(&p.ds[i]))
				}
				p.ack(3)
				p.expect(sent[1:]...)
				p.wcs("1 SUCCESS RDMA_WRITE")
				p.ack(3) // a duplicate: no progress
				p.ack(2)
				p.nak(2, wire.NakPSNSequence)
				p.expect()
				if n := p.h.nic.Count.ImpliedNAKs; n != 4 {
					p.Errorf("%d implied NAKs counted, want 4", n)
				}
			})
		})
	}
}

// rc/ack/6: A response acknowledges all earlier requests.
func TestRCResponsesAcknowledgeEarlierRequests(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpRDMAWrite, p.mtu+1)
		p.post(2, verbs.OpRDMARead, p.mtu+1)
		p.post(3, verbs.OpSend, 1)
		p.post(4, verbs.OpAtomicFetchAdd, 8)
		p.h.nic.Output(p.now, p.ds)
		p.send(wire.OpReadResponseFirst, 2, data(p.mtu))
		p.wcs("1 SUCCESS RDMA_WRITE")
		p.send(wire.OpReadResponseLast, 3, data(1))
		p.wcs(fmt.Sprintf("2 SUCCESS RDMA_READ %dB", p.mtu+1))
		p.send(wire.OpAtomicAcknowledge, 5)
		p.wcs("3 SUCCESS SEND", "4 SUCCESS FETCH_ADD 8B")
		p.expect()
	})
}

// rc/ack/9: An ACK does not complete a READ or atomic.
func TestRCAckDoesNotCompleteReadOrAtomic(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpAtomicFetchAdd, verbs.OpAtomicWrite} {
		each(t, setup{}, func(p *peer) {
			p.post(1, op, 8)
			p.h.nic.Output(p.now, p.ds)
			p.ack(0)
			if n := p.h.nic.Output(p.now, p.ds); n != 1 {
				p.Errorf("%v: retransmitted with %d packets", op, n)
			}
			p.wcs()
			p.state(verbs.QPStateRTS)
		})
	}
}

// rc/ack/10: A stale ACK among READ responses is ignored.
func TestRCStaleAckAmongReadResponsesIsIgnored(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		m := p.mtu
		p.post(1, verbs.OpRDMAWrite, 4)
		p.post(2, verbs.OpRDMARead, 2*m+10)
		p.h.nic.Output(p.now, p.ds)
		p.ack(0)
		p.send(wire.OpReadResponseFirst, 1, data(m))
		p.ack(0)
		p.send(wire.OpReadResponseMiddle, 2, data(m))
		p.send(wire.OpReadResponseFirst, 1, payload(make([]byte, m))) // a duplicate with other data
		p.ack(0)
		p.send(wire.OpReadResponseLast, 3, data(10))
		p.wcs("1 SUCCESS RDMA_WRITE", fmt.Sprintf("2 SUCCESS RDMA_READ %dB", 2*m+10))
		var want []byte
		for _, e := range []struct {
			op wire.Operation
			n  int
		}{{wire.OpReadResponseFirst, m}, {wire.OpReadResponseMiddle, m}, {wire.OpReadResponseLast, 10}} {
			want = append(want, pattern(e.n, int(e.op)+e.n)...)
		}
		if !bytes.Equal(p.h.mem[sinkAt:][:2*m+10], want) {
			p.Error("the READ returned other data than was sent")
		}
		p.expect()
	})
}

// rc/ack/11: ACKs and NAKs are sent after the responses to earlier requests.
func TestRCAcksAreSentAfterEarlierResponses(t *testing.T) {
	for name, tc := range map[string]struct {
		then func(p *peer)
		want string
	}{
		"ACK":       {func(p *peer) { p.send(wire.OpWriteOnly, 4, p.at(0, 0), ackReq) }, "ACK 4 msn 3"},
		"gap":       {func(p *peer) { p.send(wire.OpWriteOnly, 5, p.at(0, 0)) }, "NAK 4 sequence msn 2"},
		"RNR":       {func(p *peer) { p.send(wire.OpSendOnly, 4) }, "RNR 4 code 12 msn 2"},
		"NAK":       {func(p *peer) { p.send(wire.OpWriteOnly, 4, p.at(0, 4)) }, "NAK 4 invalid msn 2"},
		"duplicate": {func(p *peer) { p.send(wire.OpWriteOnly, -1, p.at(0, 0)) }, "ACK 3 msn 2"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				p.send(wire.OpReadRequest, 0, p.at(0, 2*p.mtu+1))
				p.send(wire.OpFetchAdd, 3, p.word(0, 1, 0))
				tc.then(p)
				p.expect(
					fmt.Sprintf("RR_FIRST 0 %dB msn 1", p.mtu), fmt.Sprintf("RR_MIDDLE 1 %dB", p.mtu), "RR_LAST 2 1B msn 1",
					fmt.Sprintf("ATOMIC_ACKNOWLEDGE 3 was %d msn 2", p.wordValue(targetData)), tc.want,
				)
			})
		})
	}
}

// rc/ack/12, rc/ack/13, rc/read/13, rc/read/14, rc/read/20: A malformed response fails its request
// with BAD_RESP_ERR. Earlier requests succeed, later ones are flushed.
func TestRCMalformedResponsesFailQP(t *testing.T) {
	for name, tc := range map[string]struct {
		op    verbs.WROpcode
		n     int
		bad   func(p *peer)
		first string // completion of the WRITE before it
	}{
		"reserved syndrome":       {verbs.OpSend, 4, func(p *peer) { p.send(wire.OpAcknowledge, 1, syndrome(0x40)) }, "BAD_RESP_ERR"},
		"syndrome with bit 7":     {verbs.OpSend, 4, func(p *peer) { p.send(wire.OpAcknowledge, 1, syndrome(0x80)) }, "BAD_RESP_ERR"},
		"reserved NAK code":       {verbs.OpSend, 4, func(p *peer) { p.send(wire.OpAcknowledge, 1, syndrome(0x7f)) }, ""}, // rc/ack/14
		"NAK for RD":              {verbs.OpSend, 4, func(p *peer) { p.nak(1, wire.NakInvalidRD) }, ""},
		"READ response to SEND":   {verbs.OpSend, 4, func(p *peer) { p.send(wire.OpReadResponseOnly, 1, data(4)) }, ""},
		"atomic answer to SEND":   {verbs.OpSend, 4, func(p *peer) { p.send(wire.OpAtomicAcknowledge, 1) }, ""},
		"READ response to atomic": {verbs.OpAtomicFetchAdd, 8, func(p *peer) { p.send(wire.OpReadResponseOnly, 1, data(8)) }, ""},
		"atomic answer to READ":   {verbs.OpRDMARead, 8, func(p *peer) { p.send(wire.OpAtomicAcknowledge, 1) }, ""},
		"MIDDLE to short READ":    {verbs.OpRDMARead, 8, func(p *peer) { p.send(wire.OpReadResponseMiddle, 1, data(8)) }, ""},
		"LAST to short READ":      {verbs.OpRDMARead, 8, func(p *peer) { p.send(wire.OpReadResponseLast, 1, data(8)) }, ""},
		"FIRST to short READ":     {verbs.OpRDMARead, 8, func(p *peer) { p.send(wire.OpReadResponseFirst, 1, data(8)) }, ""},
		"ONLY to long READ":       {verbs.OpRDMARead, 9000, func(p *peer) { p.send(wire.OpReadResponseOnly, 1, data(p.mtu)) }, ""},
		"MIDDLE begins long READ": {verbs.OpRDMARead, 9000, func(p *peer) { p.send(wire.OpReadResponseMiddle, 1, data(p.mtu)) }, ""},
		"READ response with NAK":  {verbs.OpRDMARead, 9000, func(p *peer) { p.send(wire.OpReadResponseFirst, 1, data(p.mtu), syndrome(0x62)) }, ""},
		"READ response with RNR":  {verbs.OpRDMARead, 8, func(p *peer) { p.send(wire.OpReadResponseOnly, 1, data(8), syndrome(0x21)) }, ""},
		"atomic answer with NAK":  {verbs.OpAtomicFetchAdd, 8, func(p *peer) { p.send(wire.OpAtomicAcknowledge, 1, syndrome(0x61)) }, ""},
		"READ response too short": {verbs.OpRDMARead, 8, func(p *peer) { p.send(wire.OpReadResponseOnly, 1, data(4)) }, ""},
		"READ response too long":  {verbs.OpRDMARead, 8, func(p *peer) { p.send(wire.OpReadResponseOnly, 1, data(16)) }, ""},
		"READ response empty":     {verbs.OpRDMARead, 8, func(p *peer) { p.send(wire.OpReadResponseOnly, 1) }, ""},
		"FIRST below the MTU":     {verbs.OpRDMARead, 9000, func(p *peer) { p.send(wire.OpReadResponseFirst, 1, data(p.mtu-4)) }, ""},
		"FIRST again": {verbs.OpRDMARead, 9000, func(p *peer) {
			p.send(wire.OpReadResponseFirst, 1, data(p.mtu))
			p.send(wire.OpReadResponseFirst, 2, data(p.mtu))
		}, ""},
		"LAST too early": {verbs.OpRDMARead, 9000, func(p *peer) {
			p.send(wire.OpReadResponseFirst, 1, data(p.mtu))
			p.send(wire.OpReadResponseLast, 2, data(p.mtu))
		}, ""},
		"data for ATOMIC WRITE": {verbs.OpAtomicWrite, 8, func(p *peer) { p.send(wire.OpReadResponseOnly, 1, data(8)) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				p.recv(9, 8)
				p.post(1, verbs.OpRDMAWrite, 4)
				p.post(2, tc.op, tc.n)
				p.post(3, verbs.OpSend, 4)
				p.h.nic.Output(p.now, p.ds)
				guard := bytes.Clone(p.h.mem[sinkAt:][:0x20000])
				tc.bad(p)
				if tc.first == "" {
					p.wcs("1 SUCCESS RDMA_WRITE", "2 BAD_RESP_ERR", "3 WR_FLUSH_ERR", "9 WR_FLUSH_ERR")
				} else {
					p.wcs("1 "+tc.first, "2 WR_FLUSH_ERR", "3 WR_FLUSH_ERR", "9 WR_FLUSH_ERR")
				}
				p.state(verbs.QPStateErr)
				p.silence(time.Second)
				if tc.n < 9000 && !bytes.Equal(p.h.mem[sinkAt:][:0x20000], guard) {
					p.Error("memory was written")
				}
			})
		})
	}
}

// rc/ack/15, err/5: A NAK code determines the completion status. Earlier requests
// succeed, later ones are flushed.
func TestRCFatalNAKStatus(t *testing.T) {
	for code, status := range map[wire.NakCode]string{
		wire.NakInvalidRequest:    "REM_INV_REQ_ERR",
		wire.NakRemoteAccess:      "REM_ACCESS_ERR",
		wire.NakRemoteOperational: "REM_OP_ERR",
	} {
		t.Run(status, func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				p.recv(9, 8)
				p.post(1, verbs.OpSend, 4)
				p.post(2, verbs.OpRDMAWrite, p.mtu+1, func(wr *verbs.SendWR) { wr.Flags = 0 }) // err/1
				p.post(3, verbs.OpSend, 4)
				p.h.nic.Output(p.now, p.ds)
				p.nak(2, code)
				p.wcs("1 SUCCESS SEND", "2 "+status, "3 WR_FLUSH_ERR", "9 WR_FLUSH_ERR")
				p.state(verbs.QPStateErr)
				p.ack(3)
				p.silence(time.Second)
				p.wcs()
			})
		})
	}
}

// At most one request is sent ahead of a pending ACK.
func TestRCOneRequestIsSentBeforeAck(t *testing.T) {
	net, a, b, qa, qb := rcPair(t, nil)
	b.recv(qb, 1, b.sge(0, 64))
	a.send(qa, 0, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{a.sge(0, 8)}})
	if n := a.nic.Output(0, net.batch); n != 1 {
		t.Fatalf("%d packets for one SEND", n)
	}
	net.deliver(&net.batch[0])
	for range 3 {
		b.send(qb, 0, verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{b.sge(0, 8)}})
	}
	var got []wire.Operation
	n := b.nic.Output(0, net.batch)
	for i := range n {
		got = append(got, wire.Opcode(net.batch[i].Payload[0]).Operation())
	}
	want := []wire.Operation{wire.OpSendOnly, wire.OpAcknowledge, wire.OpSendOnly, wire.OpSendOnly}
	if !slices.Equal(got, want) {
		t.Errorf("sent %v, want %v", got, want)
	}
}
