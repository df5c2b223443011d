package engine

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// responses returns the expected responses to a READ of n bytes at the k-th PSN.
func (p *peer) responses(k, n int, msn int) []string {
	m := p.mtu
	if n <= m {
		text := ""
		if n > 0 {
			text = fmt.Sprintf(" %dB", n)
		}
		return []string{fmt.Sprintf("RR_ONLY %d%s msn %d", k, text, msn)}
	}
	out := []string{fmt.Sprintf("RR_FIRST %d %dB msn %d", k, m, msn)}
	for k, n = k+1, n-m; n > m; k, n = k+1, n-m {
		out = append(out, fmt.Sprintf("RR_MIDDLE %d %dB", k, m))
	}
	return append(out, fmt.Sprintf("RR_LAST %d %dB msn %d", k, n, msn))
}

// answered returns the payloads of the packets that expect saw last.
func (p *peer) answered() []byte {
	var b []byte
	for i := range p.got {
		b = append(b, p.got[i].Payload...)
	}
	return b
}

// rc/read/1, rc/read/2, rc/read/3, rc/read/4, rc/msn/3: READ responses are
// segmented at the path MTU, with PSNs from that of the request.
func TestRCResponderSegmentsReadsAtPathMTU(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		k := 0
		for i, n := range []int{0, 1, p.mtu - 1, p.mtu, p.mtu + 1, 2 * p.mtu, 5*p.mtu + 3} {
			p.send(wire.OpReadRequest, k, p.at(7, n))
			p.expect(p.responses(k, n, i+1)...)
			if !bytes.Equal(p.answered(), p.target(7, n)) {
				p.Fatalf("%d bytes: other data", n)
			}
			k += max(1, (n+p.mtu-1)/p.mtu)
		}
		p.send(wire.OpReadRequest, k, p.at(0, 0), rkey(0xbad)) // C9-88
		p.expect(fmt.Sprintf("RR_ONLY %d msn 8", k))
	})
}

// rc/read/5, rc/read/6, rc/read/7, rc/psn/11: A duplicate READ is executed again,
// completely or from a later packet on, with the original PSNs.
func TestRCDuplicateReadIsExecutedAgain(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		m := p.mtu
		n := 3*m + 5
		p.send(wire.OpReadRequest, 0, p.at(0, n))
		p.expect(p.responses(0, n, 1)...)
		p.send(wire.OpWriteOnly, 4, p.at(m, 4), payload([]byte("new!")), ackReq)
		p.expect("ACK 4 msn 2")
		for from := range 4 {
			p.send(wire.OpReadRequest, from, p.at(from*m, n-from*m))
			p.expect(p.responses(from, n-from*m, 1)...)
			if !bytes.Equal(p.answered(), p.target(from*m, n-from*m)) {
				p.Fatalf("from packet %d: other data", from)
			}
		}
		p.send(wire.OpReadRequest, 1, p.at(m, m)) // a part in the middle
		p.expect(fmt.Sprintf("RR_ONLY 1 %dB msn 1", m))
		p.send(wire.OpReadRequest, 0, p.at(0, n)) // the whole READ
		p.expect(p.responses(0, n, 1)...)
	})
}

// rc/read/9: A duplicate READ with a larger range, other memory or another key is dropped.
func TestRCDuplicateReadOutsideTheOriginalIsDropped(t *testing.T) {
	for name, wrong := range map[string]func(p *peer) []edit{
		"longer":          func(p *peer) []edit { return []edit{p.at(0, 2*p.mtu+1)} },
		"other key":       func(p *peer) []edit { return []edit{p.at(0, 2*p.mtu), rkey(p.h.mr.Key ^ 1)} },
		"other address":   func(p *peer) []edit { return []edit{p.at(4, 2*p.mtu)} },
		"earlier address": func(p *peer) []edit { return []edit{p.at(-4, 2*p.mtu)} },
		"beyond 2^31":     func(p *peer) []edit { return []edit{p.at(0, 1<<31+1)} },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				p.send(wire.OpReadRequest, 0, p.at(0, 2*p.mtu))
				p.expect(p.responses(0, 2*p.mtu, 1)...)
				p.send(wire.OpReadRequest, 0, wrong(p)...)
				p.send(wire.OpReadRequest, 1, p.at(p.mtu, p.mtu+1))
				p.send(wire.OpReadRequest, 1, p.at(0, p.mtu))
				p.send(wire.OpFetchAdd, 0, p.word(0, 1, 0))
				p.silence(time.Second)
				p.state(verbs.QPStateRTS)
				if p.h.nic.Count.DropReplay != 4 {
					p.Errorf("%d counted", p.h.nic.Count.DropReplay)
				}
				p.send(wire.OpReadRequest, 2, p.at(0, 1))
				p.expect("RR_ONLY 2 1B msn 2")
			})
		})
	}
}

// rc/read/8, rc/read/10, rc/read/11, rc/read/12: If a READ response is lost, the
// requester requests the rest: at once if a later response arrives, else after the
// timeout. Both forms of the responses to the rest are accepted.
func TestRCRequesterRetransmitsMissingPartOfRead(t *testing.T) {
	const packets = 4
	for lost := range packets {
		for _, own := range []bool{true, false} {
			t.Run(fmt.Sprintf("lost %d own %v", lost, own), func(t *testing.T) {
				each(t, setup{}, func(p *peer) {
					m := p.mtu
					n := packets*m - 3
					want := pattern(n, 11)
					respond := func(k, from int) { // packet k of the response to a READ from packet from on
						op := wire.OpReadResponseMiddle
						switch first, last := k == from, k == packets-1; {
						case first && last && (own || from == 0):
							op = wire.OpReadResponseOnly
						case last:
							op = wire.OpReadResponseLast
						case first && (own || from == 0):
							op = wire.OpReadResponseFirst
						}
						p.send(op, k, payload(want[k*m:min((k+1)*m, n)]))
					}
					p.post(1, verbs.OpRDMARead, n, func(wr *verbs.SendWR) {
						wr.SGL = []verbs.SGE{p.h.sge(sinkAt, m+1), p.h.sge(sinkAt+0x10000, n-m-1)}
					})
					p.post(2, verbs.OpSend, 4)
					p.expect(fmt.Sprintf("READ_REQUEST 0 va+0 len %d ackreq", n), fmt.Sprintf("SEND_ONLY %d 4B ackreq", packets))
					for k := range lost {
						respond(k, 0)
					}
					if lost < packets-1 {
						respond(packets-1, 0) // shows the loss
					} else {
						p.wait(wire.AckTimeout(14))
					}
					p.wcs()
					p.expect(fmt.Sprintf("READ_REQUEST %d va+%d len %d ackreq", lost, lost*m, n-lost*m), fmt.Sprintf("SEND_ONLY %d 4B ackreq", packets))
					for k := lost; k < packets; k++ {
						respond(k, lost)
					}
					p.ack(packets)
					p.wcs(fmt.Sprintf("1 SUCCESS RDMA_READ %dB", n), "2 SUCCESS SEND")
					got := append(bytes.Clone(p.h.mem[sinkAt:][:m+1]), p.h.mem[sinkAt+0x10000:][:n-m-1]...)
					if !bytes.Equal(got, want) {
						p.Error("other data")
					}
				})
			})
		}
	}
}

// rc/read/15: A READ or atomic whose result cannot be stored is not sent.
func TestRCReadIntoUnwritableMemoryFailsBeforeSending(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp} {
		for name, spoil := range map[string]func(p *peer, s *verbs.SGE){
			"no access": func(p *peer, s *verbs.SGE) {
				mr := must.Get(p.h.nic.RegMR(p.h.pd, nic.Bytes(make([]byte, 64)), 0, verbs.AccessRemoteRead))(p)
				s.Addr, s.LKey = mr.Addr, verbs.LKey(mr.Key)
			},
			"no key":            func(_ *peer, s *verbs.SGE) { s.LKey ^= 1 },
			"beyond the region": func(_ *peer, s *verbs.SGE) { s.Addr += memSize },
		} {
			t.Run(fmt.Sprint(op, " ", name), func(t *testing.T) {
				each(t, setup{}, func(p *peer) {
					p.post(1, verbs.OpSend, 4)
					p.post(2, op, 8, func(wr *verbs.SendWR) { spoil(p, &wr.SGL[0]) })
					p.post(3, verbs.OpSend, 4)
					p.expect("SEND_ONLY 0 4B ackreq")
					p.wcs() // err/3: the first may still succeed
					p.ack(0)
					p.wcs("1 SUCCESS SEND", "2 LOC_PROT_ERR", "3 WR_FLUSH_ERR")
					p.state(verbs.QPStateErr)
				})
			})
		}
	}
}

// rc/read/16: At most max_rd_atomic READs and atomics are outstanding.
func TestRCRequesterLimitsOutstandingReads(t *testing.T) {
	each(t, setup{attr: func(a *verbs.QPAttr) { a.MaxRdAtomic = 3 }}, func(p *peer) {
		for id := range uint64(3) {
			p.post(2*id, verbs.OpRDMARead, p.mtu+1)
			p.post(2*id+1, verbs.OpAtomicFetchAdd, 8)
		}
		p.post(6, verbs.OpSend, 4)
		read := func(k int) string { return fmt.Sprintf("READ_REQUEST %d va+0 len %d ackreq", k, p.mtu+1) }
		add := func(k int) string { return fmt.Sprintf("FETCH_ADD %d va+0 0 0 ackreq", k) }
		p.expect(read(0), add(2), read(3))
		p.send(wire.OpReadResponseFirst, 0, data(p.mtu))
		p.expect()
		p.send(wire.OpReadResponseLast, 1, data(1))
		p.expect(add(5))
		p.nak(2, wire.NakPSNSequence) // retransmission does not change the limit
		p.expect(add(2), read(3), add(5))
		p.send(wire.OpAtomicAcknowledge, 2)
		p.expect(read(6))
		p.send(wire.OpReadResponseFirst, 3, data(p.mtu))
		p.send(wire.OpReadResponseLast, 4, data(1))
		p.expect(add(8), "SEND_ONLY 9 4B ackreq")
	})
}

// rc/read/17: READs are NAKed if max_dest_rd_atomic is 0.
func TestRCResponderWithoutReadResourcesNAKs(t *testing.T) {
	each(t, setup{attr: func(a *verbs.QPAttr) { a.MaxDestRdAtomic = 0 }}, func(p *peer) {
		p.send(wire.OpReadRequest, 0, p.at(0, 4))
		p.expect("NAK 0 invalid msn 0")
		p.state(verbs.QPStateErr)
	})
}

// rc/read/18, rc/atm/6: A READ beyond max_dest_rd_atomic is NAKed while the first is unanswered.
func TestRCResponderNAKsExcessReads(t *testing.T) {
	each(t, setup{attr: func(a *verbs.QPAttr) { a.MaxDestRdAtomic = 2 }}, func(p *peer) {
		before := p.wordValue(targetData)
		p.send(wire.OpReadRequest, 0, p.at(16, 2*p.mtu))
		p.send(wire.OpFetchAdd, 2, p.word(0, 1, 0))
		if n := p.h.nic.Output(p.now, p.ds[:1]); n != 1 {
			p.Fatal("no answer")
		}
		p.send(wire.OpFetchAdd, 3, p.word(0, 1, 0))
		p.expect(fmt.Sprintf("RR_LAST 1 %dB msn 1", p.mtu), fmt.Sprintf("ATOMIC_ACKNOWLEDGE 2 was %d msn 2", before), "NAK 3 invalid msn 2")
		p.state(verbs.QPStateErr)
		if got := p.wordValue(p.target(0, 8)); got != before+1 {
			p.Errorf("the NAKed atomic was executed: %d", got-before)
		}
	})
}

// rc/atm/5, rc/read/18: An unsent repeated response does not count against max_dest_rd_atomic.
func TestRCLateDuplicatesUseNoReadResources(t *testing.T) {
	each(t, setup{attr: func(a *verbs.QPAttr) { a.MaxDestRdAtomic = 1 }}, func(p *peer) {
		p.send(wire.OpReadRequest, 0, p.at(0, 4))
		p.expect("RR_ONLY 0 4B msn 1")
		p.send(wire.OpReadRequest, 0, p.at(0, 4)) // a duplicate of the network
		p.send(wire.OpReadRequest, 1, p.at(0, 4))
		p.expect("RR_ONLY 1 4B msn 2")
		p.state(verbs.QPStateRTS)
	})
}

// rc/read/19, rc/psn/11: A NAK among READ responses fails the READ.
func TestRCNAKAmongReadResponsesFailsRead(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpRDMARead, 3*p.mtu)
		p.h.nic.Output(p.now, p.ds)
		p.send(wire.OpReadResponseFirst, 0, data(p.mtu))
		p.nak(1, wire.NakRemoteAccess)
		p.wcs("1 REM_ACCESS_ERR")
		p.state(verbs.QPStateErr)
	})
}

// rc/read/21, rc/psn/11, acc/6: If memory is deregistered before a READ response is
// sent, or before a duplicate, the NAK has the PSN of the missing response.
func TestRCReadOfDeregisteredMemoryIsNAKed(t *testing.T) {
	for name, prepare := range map[string]func(p *peer) (key uint32, invalidate func()){
		"region": func(p *peer) (uint32, func()) {
			mr := must.Get(p.h.nic.RegMR(p.h.pd, nic.Bytes(p.h.mem), p.h.mr.Addr, allAccess))(p)
			return mr.Key, func() {
				must.Do(p, p.h.nic.DeregMR(mr))
			}
		},
		"window": func(p *peer) (uint32, func()) {
			key := p.bindWindow(0x8000)
			return key, func() {
				must.Do(p, p.h.nic.Mem.Invalidate(key, p.h.pd, p.q.num))
			}
		},
	} {
		for sent := range 4 {
			t.Run(fmt.Sprintf("%s after %d packets", name, sent), func(t *testing.T) {
				each(t, setup{}, func(p *peer) {
					p.recv(1, 8)
					key, invalidate := prepare(p)
					n := 3*p.mtu - 1
					p.send(wire.OpReadRequest, 0, p.at(0, n), rkey(key))
					p.send(wire.OpWriteOnly, 3, p.at(0, 0), ackReq)
					want := append(p.responses(0, n, 1), "ACK 3 msn 2")
					p.expectSome(want[:sent]...)
					invalidate()
					failed := sent
					if sent == 3 {
						p.expect(want[3:]...)
						p.send(wire.OpReadRequest, 1, p.at(p.mtu, n-p.mtu), rkey(key))
						failed = 1
					}
					p.expect(fmt.Sprintf("NAK %d access msn 2", failed))
					p.state(verbs.QPStateErr)
					p.wcs("1 WR_FLUSH_ERR")
					p.events(verbs.EventQPAccessErr) // acc/7
					p.silence(time.Second)
				})
			})
		}
	}
}

// expectSome compares the first packets that the NIC sends now.
func (p *peer) expectSome(want ...string) {
	p.Helper()
	all := p.ds
	p.ds = make([]link.Datagram, len(want))
	defer func() { p.ds = all }()
	if len(want) > 0 {
		n := p.h.nic.Output(p.now, p.ds)
		var got []string
		for i := range n {
			got = append(got, p.checkPacket(&p.ds[i]))
		}
		p.compare("sent", got, want)
	}
}

// rc/read/15: If local memory is deregistered, the READ fails with a local error
// and nothing more is written.
func TestRCReadIntoDeregisteredMemoryFails(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		sink := make([]byte, 2*p.mtu)
		mr := must.Get(p.h.nic.RegMR(p.h.pd, nic.Bytes(sink), 0, allAccess))(p)
		p.post(1, verbs.OpRDMARead, 0, func(wr *verbs.SendWR) {
			wr.SGL = []verbs.SGE{{Addr: mr.Addr, Length: uint32(len(sink)), LKey: verbs.LKey(mr.Key)}}
		})
		p.h.nic.Output(p.now, p.ds)
		p.send(wire.OpReadResponseFirst, 0, data(p.mtu))
		must.Do(p, p.h.nic.DeregMR(mr))
		clear(sink)
		p.send(wire.OpReadResponseLast, 1, data(p.mtu))
		p.wcs("1 LOC_PROT_ERR")
		if !bytes.Equal(sink, make([]byte, len(sink))) {
			p.Error("written after deregistration")
		}
	})
}

// A queue pair whose own request has failed sends none of its pending responses.
func TestFailedRequestDropsPendingReadResponses(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpSend, 8)
		p.h.nic.Output(p.now, p.ds)
		p.send(wire.OpReadRequest, 0, p.at(0, 8))
		p.nak(0, wire.NakRemoteOperational)
		p.expect()
		p.state(verbs.QPStateErr)
	})
}
