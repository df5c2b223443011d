package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// badKey sets an invalid L_Key.
func badKey(wr *verbs.SendWR) { wr.SGL[0].LKey = 0xbad }

// unsignaled clears the signaled flag.
func unsignaled(wr *verbs.SendWR) { wr.Flags &^= verbs.SendSignaled }

// qp/7, qp/8, err/1: In ERR, all posted requests are flushed in order, first sends,
// then receives, signaled or not. Requests posted later are flushed at once.
func TestErrFlushesBothQueuesInOrder(t *testing.T) {
	for _, from := range []verbs.QPState{verbs.QPStateRTS, verbs.QPStateSQD} {
		each(t, setup{}, func(p *peer) {
			p.recv(10, 2*p.mtu)
			p.recv(11, 8)
			p.recv(12, 8)
			p.send(wire.OpSendFirst, 0, data(p.mtu)) // claims the first receive
			p.post(1, verbs.OpSend, 4)
			p.post(2, verbs.OpRDMARead, 4, unsignaled)
			p.expect("SEND_ONLY 0 4B ackreq", "READ_REQUEST 1 va+0 len 4 ackreq")
			if from == verbs.QPStateSQD {
				p.enter(from)
			}
			p.post(3, verbs.OpSend, 4, unsignaled)
			p.post(4, verbs.OpRDMAWrite, 3*p.mtu)
			p.enter(verbs.QPStateErr)
			p.wcs("1 WR_FLUSH_ERR", "2 WR_FLUSH_ERR", "3 WR_FLUSH_ERR", "4 WR_FLUSH_ERR",
				"10 WR_FLUSH_ERR", "11 WR_FLUSH_ERR", "12 WR_FLUSH_ERR")
			for i := range uint64(3) {
				p.recv(20+i, 8)
				p.post(30+i, verbs.OpSend, 4, unsignaled)
				p.wcs(fmt.Sprintf("%d WR_FLUSH_ERR", 20+i), fmt.Sprintf("%d WR_FLUSH_ERR", 30+i))
			}
			p.enter(verbs.QPStateErr)
			p.ack(0)
			p.silence(time.Minute)
			p.wcs()
			p.events()
		})
	}
}

// qp/8, err/4: In ERR, invalid requests are still rejected, and flushed ones name their QP.
func TestPostInERRIsChecked(t *testing.T) {
	p := newPeer(t, flavours[0], setup{})
	p.enter(verbs.QPStateErr)
	must.Fail(t, "receive with too many entries", p.q.PostRecv(&verbs.RecvWR{WRID: 1, SGL: make([]verbs.SGE, 5)}), verbs.ErrInvalid)
	must.Fail(t, "send with too many entries", p.q.PostSend(p.now, &verbs.SendWR{WRID: 2, Opcode: verbs.OpSend, SGL: make([]verbs.SGE, 5)}, Refs{}), verbs.ErrInvalid)
	p.wcs()
	p.recv(3, 8)
	p.post(4, verbs.OpSend, 4)
	for i, wc := range p.h.poll() {
		want := verbs.WC{WRID: uint64(3 + i), Status: verbs.WCWRFlushErr, QPN: verbs.QPN(p.q.num)}
		if wc.Opcode = 0; wc != want {
			t.Errorf("got %+v, want %+v", wc, want)
		}
	}
}

// err/1, err/2, err/3: A request with a local error completes after the earlier
// ones, with its status, signaled or not; only later ones are flushed.
func TestLocalErrorCompletesInOrderWithItsStatus(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpSend, 4)
		p.post(2, verbs.OpSend, 4, badKey, unsignaled)
		p.post(3, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.state(verbs.QPStateRTS)
		p.wcs()
		p.silence(time.Millisecond)
		p.ack(0)
		p.wcs("1 SUCCESS SEND", "2 LOC_PROT_ERR", "3 WR_FLUSH_ERR")
		p.state(verbs.QPStateErr)
		p.events()
		p.silence(time.Minute)
	})
}

// err/2: A message fails if a later part of its memory is invalid, although packets were sent.
func TestMessageWithInvalidSGEFails(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpSend, 2*p.mtu, func(wr *verbs.SendWR) {
			wr.SGL = []verbs.SGE{p.h.sge(0, p.mtu), {Addr: 0, Length: uint32(p.mtu), LKey: 0xbad}}
		})
		p.post(2, verbs.OpSend, 4)
		p.expect(fmt.Sprintf("SEND_FIRST 0 %dB", p.mtu))
		p.wcs("1 LOC_PROT_ERR", "2 WR_FLUSH_ERR")
		p.state(verbs.QPStateErr)
	})
}

// err/2, err/3: If an earlier request exceeds its retries, a later local error is flushed.
func TestLocalErrorAfterLostRequestIsFlushed(t *testing.T) {
	const T = 4096 << 8
	each(t, setup{attr: func(a *verbs.QPAttr) { a.Timeout, a.RetryCnt = 8, 1 }}, func(p *peer) {
		p.post(1, verbs.OpSend, 4)
		p.post(2, verbs.OpSend, 4, badKey)
		p.post(3, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.wait(T)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.silence(T)
		p.wcs("1 RETRY_EXC_ERR", "2 WR_FLUSH_ERR", "3 WR_FLUSH_ERR")
	})
}

// err/2: A bind that was executed after a failed request is flushed: no request
// after the failed one succeeds.
func TestLocalOperationAfterFailedRequestIsFlushed(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		w := must.Get(p.h.nic.AllocMW(p.h.pd, verbs.MWType2))(p)
		p.post(1, verbs.OpSend, 4)
		bind := verbs.SendWR{WRID: 2, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, Bind: verbs.Bind{
			RKey: verbs.RKey(w.Key), Info: verbs.BindInfo{Addr: p.h.mr.Addr + targetAt, Length: 64, Access: verbs.AccessRemoteWrite},
		}}
		must.Do(p, p.q.PostSend(p.now, &bind, Refs{Window: w, Region: p.h.mr}))
		p.post(3, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq", "SEND_ONLY 1 4B ackreq")
		if !p.bound(w) {
			p.Error("the bind waited for the earlier request")
		}
		p.wcs()
		p.nak(0, wire.NakInvalidRequest)
		p.wcs("1 REM_INV_REQ_ERR", "2 WR_FLUSH_ERR", "3 WR_FLUSH_ERR")
	})
}

// err/2: A READ or atomic is not sent if its result cannot be stored.
func TestReadIntoUnwritableMemoryIsNotSent(t *testing.T) {
	for op, n := range map[verbs.WROpcode]int{verbs.OpRDMARead: 64, verbs.OpAtomicFetchAdd: 8, verbs.OpAtomicCmpAndSwp: 8} {
		each(t, setup{}, func(p *peer) {
			p.post(1, verbs.OpSend, 4)
			p.post(2, op, n, badKey)
			p.expect("SEND_ONLY 0 4B ackreq")
			p.ack(0)
			p.wcs("1 SUCCESS SEND", "2 LOC_PROT_ERR")
			p.state(verbs.QPStateErr)
			p.silence(time.Minute)
		})
	}
}

// err/5: Each fatal NAK fails the request with its status. Earlier requests
// succeed, and the receive queue is flushed.
func TestFatalNAKFailsRequester(t *testing.T) {
	for code, status := range map[wire.NakCode]string{
		wire.NakInvalidRequest: "REM_INV_REQ_ERR", wire.NakRemoteAccess: "REM_ACCESS_ERR", wire.NakRemoteOperational: "REM_OP_ERR",
	} {
		each(t, setup{}, func(p *peer) {
			p.recv(9, 8)
			p.post(1, verbs.OpSend, 4, unsignaled)
			p.post(2, verbs.OpSend, 4)
			p.post(3, verbs.OpSend, 4, unsignaled)
			p.post(4, verbs.OpSend, 4)
			p.expect("SEND_ONLY 0 4B ackreq", "SEND_ONLY 1 4B ackreq", "SEND_ONLY 2 4B ackreq", "SEND_ONLY 3 4B ackreq")
			p.nak(2, code)
			p.wcs("2 SUCCESS SEND", "3 "+status, "4 WR_FLUSH_ERR", "9 WR_FLUSH_ERR")
			p.state(verbs.QPStateErr)
			p.send(wire.OpSendOnly, 0, data(8), ackReq)
			p.silence(time.Minute)
		})
	}
}

// err/5: A fatal NAK is sent even if the application, after the event, moves the QP
// to ERR before the NAK was sent.
func TestPendingNAKIsSentAfterModifyToERR(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.send(wire.OpWriteOnly, 0, p.at(0, 8), rkey(0xbad), data(8))
		p.events(verbs.EventQPAccessErr)
		p.enter(verbs.QPStateErr)
		p.expect("NAK 0 access msn 0")
		p.silence(time.Minute)
	})
}

// qp/7: A QP that the application moves to ERR sends no responses.
func TestNoResponsesAfterModifyToERR(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.recv(1, 8)
		p.send(wire.OpSendOnly, 0, data(8), ackReq)
		p.send(wire.OpReadRequest, 1, p.at(0, 3*p.mtu))
		p.enter(verbs.QPStateErr)
		p.wcs("1 SUCCESS RECV 8B")
		p.silence(time.Minute)
	})
}

// PostSend rejects invalid requests, and the queue continues.
func TestPostSendRejectsInvalidRequests(t *testing.T) {
	p := newPeer(t, flavours[0], setup{qp: func(c *QPConfig) { c.Caps.MaxSendWR = 2 }})
	inline := func(n int) func(*verbs.SendWR) {
		return func(wr *verbs.SendWR) { wr.Flags |= verbs.SendInline; wr.Inline = make([]byte, n) }
	}
	for _, tc := range []struct {
		name string
		op   verbs.WROpcode
		edit func(*verbs.SendWR)
	}{
		{"an unknown operation", 99, func(*verbs.SendWR) {}},
		{"too many SGEs", verbs.OpSend, func(wr *verbs.SendWR) { wr.SGL = make([]verbs.SGE, 5) }},
		{"too much inline", verbs.OpSend, inline(65)},
		{"an inline READ", verbs.OpRDMARead, inline(8)},
		{"an inline atomic", verbs.OpAtomicFetchAdd, inline(8)},
		{"an atomic of 4 bytes", verbs.OpAtomicCmpAndSwp, func(wr *verbs.SendWR) { wr.SGL[0].Length = 4 }},
		{"an atomic write of 16 bytes", verbs.OpAtomicWrite, func(wr *verbs.SendWR) { wr.SGL[0].Length = 16 }},
		{"a bind without a window", verbs.OpBindMW, func(*verbs.SendWR) {}},
		{"more than 2 GiB", verbs.OpSend, func(wr *verbs.SendWR) { wr.SGL = []verbs.SGE{{Length: 1 << 31}, {Length: 1}} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wr := verbs.SendWR{WRID: 1, Opcode: tc.op, SGL: []verbs.SGE{p.h.sge(0, 8)}}
			tc.edit(&wr)
			expectUnchanged(t, p.q, func() {
				must.Fail(t, "got", p.q.PostSend(p.now, &wr, Refs{}), verbs.ErrInvalid)
			})
		})
	}
	p.post(1, verbs.OpSend, 4)
	p.post(2, verbs.OpSend, 4)
	expectUnchanged(t, p.q, func() {
		must.Fail(t, "a third request in a queue of two", p.tryPost(3), verbs.ErrNoMemory)
	})
	p.expect("SEND_ONLY 0 4B ackreq", "SEND_ONLY 1 4B ackreq")
	p.ack(1)
	p.wcs("1 SUCCESS SEND", "2 SUCCESS SEND")
	p.post(4, verbs.OpSend, 4)
	p.expect("SEND_ONLY 2 4B ackreq")
}

// Inline data is copied when posted; results are scattered over the entries of the list.
func TestScatteredResultsAndInlineData(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		text := []byte("posted")
		p.post(1, verbs.OpSend, 0, func(wr *verbs.SendWR) {
			wr.Flags |= verbs.SendInline
			wr.SGL, wr.Inline = nil, text
		})
		copy(text, "eraser")
		split := func(wr *verbs.SendWR) { wr.SGL = []verbs.SGE{p.h.sge(sinkAt, 3), p.h.sge(sinkAt+100, 5)} }
		p.post(2, verbs.OpAtomicFetchAdd, 8, split)
		p.expect("SEND_ONLY 0 6B ackreq", "FETCH_ADD 1 va+0 0 0 ackreq")
		if got := string(p.got[0].Payload); got != "posted" {
			p.Errorf("sent %q", got)
		}
		p.send(wire.OpAtomicAcknowledge, 1, func(k *wire.Packet) { k.AtomicAckETH.Original = 0x0807060504030201 })
		p.wcs("1 SUCCESS SEND", "2 SUCCESS FETCH_ADD 8B")
		if a, b := p.h.mem[sinkAt:][:4], p.h.mem[sinkAt+99:][:7]; string(a) != "\x01\x02\x03\x00" || string(b) != "\x00\x04\x05\x06\x07\x08\x00" {
			p.Errorf("the result is in %x and %x", a, b)
		}
	})
}
