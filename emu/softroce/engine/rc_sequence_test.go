package engine

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// rc/seq/1, rc/seq/2, rc/seq/3, rc/seq/4, rc/seq/8: A packet whose opcode does not
// fit the unfinished message gets an invalid request NAK with its PSN.
func TestRCPacketsOutOfOpcodeSequenceAreNAKed(t *testing.T) {
	const none = wire.Operation(0xff)
	for _, tc := range []struct {
		open  wire.Operation
		wrong []wire.Operation
	}{
		{none, []wire.Operation{
			wire.OpSendMiddle, wire.OpSendLast, wire.OpSendLastImm, wire.OpSendLastInv,
			wire.OpWriteMiddle, wire.OpWriteLast, wire.OpWriteLastImm,
		}},
		{wire.OpSendFirst, []wire.Operation{
			wire.OpSendFirst, wire.OpSendOnly, wire.OpSendOnlyImm, wire.OpSendOnlyInv,
			wire.OpWriteFirst, wire.OpWriteMiddle, wire.OpWriteLast, wire.OpWriteLastImm, wire.OpWriteOnly, wire.OpWriteOnlyImm,
			wire.OpReadRequest, wire.OpCompareSwap, wire.OpFetchAdd, wire.OpFlush, wire.OpAtomicWrite,
		}},
		{wire.OpWriteFirst, []wire.Operation{
			wire.OpWriteFirst, wire.OpWriteOnly, wire.OpWriteOnlyImm,
			wire.OpSendFirst, wire.OpSendMiddle, wire.OpSendLast, wire.OpSendLastImm, wire.OpSendLastInv, wire.OpSendOnly,
			wire.OpReadRequest, wire.OpCompareSwap, wire.OpFetchAdd, wire.OpFlush, wire.OpAtomicWrite,
		}},
	} {
		for _, wrong := range tc.wrong {
			t.Run(fmt.Sprintf("%v after %v", wire.Opcode(wrong), wire.Opcode(tc.open)), func(t *testing.T) {
				each(t, setup{}, func(p *peer) {
					p.recv(1, 3*p.mtu)
					p.recv(2, 3*p.mtu)
					k := 0
					if tc.open != none {
						p.send(tc.open, 0, p.at(0, 3*p.mtu), data(p.mtu))
						k = 1
					}
					edits := []edit{p.at(0, 3*p.mtu), p.word(0, 1, 0)}
					if info, _ := wire.Opcode(wrong).Info(); info.Class.Has(wire.HasPayload) {
						edits = append(edits, data(p.mtu))
					}
					p.send(wrong, k, edits...)
					p.expect(fmt.Sprintf("NAK %d invalid msn 0", k))
					p.state(verbs.QPStateErr)
					// rc/seq/9: The claimed receive reports the error, the others are flushed.
					if tc.open == wire.OpSendFirst {
						p.wcs("1 REM_INV_REQ_ERR", "2 WR_FLUSH_ERR")
						p.events()
					} else {
						p.wcs("1 WR_FLUSH_ERR", "2 WR_FLUSH_ERR")
						p.events(verbs.EventQPReqErr)
					}
					p.send(wire.OpSendOnly, k, ackReq)
					p.silence(time.Second)
				})
			})
		}
	}
}

// rc/seq/8: Each LAST opcode completes a message once.
func TestRCEachLastOpcodeCompletesMessage(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		window := p.bindWindow(0x100)
		for id := range uint64(4) {
			p.recv(id, 2*p.mtu)
		}
		p.send(wire.OpSendFirst, 0, data(p.mtu))
		p.send(wire.OpSendLast, 1, data(1))
		p.send(wire.OpSendFirst, 2, data(p.mtu))
		p.send(wire.OpSendLastImm, 3, data(2), imm(0x01020304))
		p.send(wire.OpSendFirst, 4, data(p.mtu))
		p.send(wire.OpSendLastInv, 5, data(3), inv(window))
		p.send(wire.OpWriteFirst, 6, data(p.mtu), p.at(0, p.mtu+4))
		p.send(wire.OpWriteLastImm, 7, data(4), imm(5), ackReq)
		p.expect("ACK 7 msn 4")
		p.wcs(
			fmt.Sprintf("0 SUCCESS RECV %dB", p.mtu+1),
			fmt.Sprintf("1 SUCCESS RECV %dB imm 01020304", p.mtu+2),
			fmt.Sprintf("2 SUCCESS RECV %dB inv %x", p.mtu+3, window),
			fmt.Sprintf("3 SUCCESS RECV_RDMA_WITH_IMM %dB imm 00000005", p.mtu+4),
		)
	})
}

// rc/seq/5, rc/mtu/2: The packets of a message are contiguous and full except the
// last, also when retransmitted.
func TestRCRequesterNeverInterleavesMessages(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		for id := range uint64(3) {
			p.post(id, verbs.OpSend, 2*p.mtu+7)
		}
		message := func(k int) []string {
			return []string{
				fmt.Sprintf("SEND_FIRST %d %dB", k, p.mtu), fmt.Sprintf("SEND_MIDDLE %d %dB", k+1, p.mtu),
				fmt.Sprintf("SEND_LAST %d 7B ackreq", k+2),
			}
		}
		all := append(append(message(0), message(3)...), message(6)...)
		p.expect(all...)
		p.nak(4, wire.NakPSNSequence)
		p.expect(all[4:]...)
		p.wcs("0 SUCCESS SEND")
		var again []byte
		for _, k := range p.got[:2] {
			again = append(again, k.Payload...)
		}
		// rc/tmo/12: Retransmitted packets have the same data.
		if !bytes.Equal(again, p.h.mem[sourceAt+p.mtu:][:p.mtu+7]) {
			p.Error("other data when retransmitted")
		}
	})
}

// rc/seq/6: A duplicate READ between FIRST and MIDDLE, or of a packet of the
// message, does not affect the unfinished message.
func TestRCDuplicatesDoNotAffectUnfinishedMessage(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		m := p.mtu
		read := []string{
			fmt.Sprintf("RR_FIRST 0 %dB msn 1", m), fmt.Sprintf("RR_MIDDLE 1 %dB", m), "RR_LAST 2 9B msn 1",
		}
		p.send(wire.OpReadRequest, 0, p.at(0, 2*m+9))
		p.expect(read...)
		p.send(wire.OpFetchAdd, 3, p.word(0, 1, 0))
		atomic := fmt.Sprintf("ATOMIC_ACKNOWLEDGE 3 was %d msn 2", p.wordValue(targetData))
		p.expect(atomic)
		first := []edit{p.at(m, 2*m+1), data(m)}
		p.send(wire.OpWriteFirst, 4, first...)
		p.send(wire.OpReadRequest, 0, p.at(0, 2*m+9))
		want := bytes.Clone(p.target(0, 2*m+9))
		p.expect(read...)
		if !bytes.Equal(append(append(p.got[0].Payload, p.got[1].Payload...), p.got[2].Payload...), want) {
			p.Error("the duplicate READ returned other data")
		}
		p.send(wire.OpFetchAdd, 3, p.word(0, 1, 0))
		p.expect(atomic)
		p.send(wire.OpWriteFirst, 4, first...)
		p.expect("ACK 4 msn 2")
		p.send(wire.OpWriteMiddle, 5, data(m))
		p.send(wire.OpWriteFirst, 4, first...)
		p.send(wire.OpWriteMiddle, 5, data(m))
		p.expect("ACK 5 msn 2")
		p.send(wire.OpWriteLast, 6, data(1), ackReq)
		p.expect("ACK 6 msn 3")
	})
}

// rc/seq/7: A packet out of order gets a sequence NAK, whatever its opcode.
func TestRCOpcodeSequenceIsCheckedAtExpectedPSNOnly(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.send(wire.OpSendMiddle, 5, data(p.mtu))
		p.expect("NAK 0 sequence msn 0")
		p.state(verbs.QPStateRTS)
		p.send(wire.OpSendMiddle, -1, data(p.mtu))
		p.expect("ACK -1 msn 0")
		p.state(verbs.QPStateRTS)
	})
}
